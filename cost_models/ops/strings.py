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

_LOOKUP_NS = 16.0
"""A key looked up on one core."""
_WORDS, _WORD_NS = 8, 47.0
"""Words of a text, and the time to split off one, on one core."""


def _each(ns_each: float) -> Formula:
    """So much time for each string. Measured on texts of `_WORDS` words of six characters."""

    def formula(op: OpSignature) -> Work:
        count = max((spec.elements for spec in (*op.inputs[:1], *op.outputs[:1])), default=1)
        return Work(kernels=0, cpu_serial_ns=ns_each * count)

    return formula


def _split(op: OpSignature) -> Work:
    """The words are an output. If their number is not known, there are eight in each text."""
    words = max(_WORDS * elements(op.inputs[:1]), elements(op.outputs[1:2]))
    return Work(kernels=0, cpu_serial_ns=_WORD_NS * words)


def _lookup(op: OpSignature) -> Work:
    return Work(kernels=0, cpu_serial_ns=_LOOKUP_NS * elements(op.inputs[1:2]))


def _first_letters(op: OpSignature) -> Mapping[int, Any]:
    return {1: np.zeros(shape_in(op, 1)), 2: np.full(shape_in(op, 2), 3)}


register("StringToHashBucketFast StringToHashBucket", OpType(work=_each(9), cpu_serial=True))
register("StringLength", OpType(work=_each(2), cpu_serial=True))
register("DecodeRaw EncodeBase64 DecodeBase64", OpType(work=_each(15)))
register(
    "StringLower StringUpper StringStrip StringToNumber StringToHashBucketStrong StringJoin",
    OpType(work=_each(175), cpu_serial=True),
)
register("AsString UnicodeScript", OpType(work=_each(50)))
register("Substr", OpType(work=_each(50), recipe=_first_letters))
register("StringSplit StringSplitV2 StringNGrams", OpType(work=_split, cpu_serial=True))
register("RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch", OpType(work=_each(3_200)))
register(
    "UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode ReduceJoin UnsortedSegmentJoin",
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
