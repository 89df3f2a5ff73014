"""Datasets, their iterators, and optional values."""

from __future__ import annotations

from cost_models.ops.optype import OpType
from cost_models.ops.table import register
from cost_models.ops.work import host_only

register("GeneratorDataset IteratorGetNext", OpType(work=host_only, unseen_code="dataset"))
register("*Dataset* *Iterator*", OpType(unseen_code="dataset"))
register("OptionalHasValue OptionalNone", OpType(work=host_only))
register("OptionalGetValue OptionalFromValue", OpType(work=host_only, passes_on=True))
