"""Strings, lookup tables and the parsing of records. One core handles strings one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cost_models.base import OpSignature
from cost_models.ops.optype import OpType
from cost_models.ops.recipes import shape_in
from cost_models.ops.table import register
from cost_models.ops.work import Formula, Work, elements, host_only

_LOOKUP_NS = 60.0
"""A key looked up on one core."""


def _each(ns_each: float) -> Formula:
    """So much time for each string."""

    def formula(op: OpSignature) -> Work:
        count = max((spec.elements for spec in (*op.inputs[:1], *op.outputs[:1])), default=1)
        return Work(kernels=0, cpu_serial_ns=ns_each * count)

    return formula


def _lookup(op: OpSignature) -> Work:
    return Work(kernels=0, cpu_serial_ns=_LOOKUP_NS * elements(op.inputs[1:2]))


def _first_letters(op: OpSignature) -> Mapping[int, Any]:
    return {1: np.zeros(shape_in(op, 1)), 2: np.full(shape_in(op, 2), 3)}


register("StringToHashBucketFast StringLength StringToHashBucket", OpType(work=_each(15), cpu_serial=True))
register("DecodeRaw EncodeBase64 DecodeBase64", OpType(work=_each(15)))
register(
    "StringLower StringUpper StringStrip StringToNumber StringToHashBucketStrong StringJoin",
    OpType(work=_each(50), cpu_serial=True),
)
register("AsString UnicodeScript", OpType(work=_each(50)))
register("Substr", OpType(work=_each(50), recipe=_first_letters))
register("StringSplit StringSplitV2 StringNGrams", OpType(work=_each(120), cpu_serial=True))
register(
    """RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode
    UnicodeTranscode ReduceJoin UnsortedSegmentJoin""",
    OpType(work=_each(120)),
)
register("StringFormat", OpType(work=host_only, cpu_serial=True))
register(
    "ParseExample ParseExampleV2 ParseSingleExample ParseSequenceExampleV2 DecodeCSV DecodeProtoV2",
    OpType(work=_each(1_000)),
)
register("HashTableV2 MutableHashTableV2", OpType(work=host_only))
register("LookupTableSizeV2", OpType(work=host_only, cpu_serial=True))
register(
    "LookupTableFindV2 LookupTableInsertV2 LookupTableImportV2 LookupTableExportV2 LookupTableRemoveV2",
    OpType(work=_lookup, cpu_serial=True),
)
register("LookupTableFind LookupTableInsert LookupTableImport LookupTableExport LookupTableSize", OpType(cpu_serial=True))
