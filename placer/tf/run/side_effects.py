"""What calls of a function do that cannot be put back afterwards, as its variables can."""

from __future__ import annotations

import fnmatch
import functools

from cost_models.ops import entry_of
from placer.tf.trace.op_types import is_stateful
from placer.tf.trace.tracing import Trace

_LEAVES_NOTHING = (
    # TensorFlow's registry says that these have state, but a call leaves none of it behind, or only in variables.
    *("Assert", "CheckNumerics*", "Timestamp", "DeviceIndex", "Empty", "DeepCopy", "GuaranteeConst", "DtypeWithDefaultOp"),
    *("IsTensorFloat32Enabled", "IsResourceHandleRefCounting", "VarHandleOp", "DisableCopyOnRead", "ResourceCountUpTo"),
    *("LookupTableFindV2", "LookupTableSizeV2", "LookupTableExportV2", "TensorArray*", "Stack*V2", "CudnnRNN*"),
    # The replicas of a strategy exchange values.
    "Collective*",
    # They make a resource that belongs to one copy of the function.
    *("HashTableV2", "MutableHashTable*V2", "MutableDenseHashTableV2", "AnonymousHashTable", "AnonymousMutable*HashTable*"),
    # Random numbers: the state is in a variable, or belongs to one copy of the function.
    *("RngReadAndSkip", "RngSkip", "StatelessRandomGetAlg", "*CandidateSampler", "NonDeterministicInts", "RandomCrop"),
    *("RandomPoisson", "SampleDistortedBoundingBox*", "StatefulRandomBinomial", "StatefulStandardNormal", "Skipgram"),
)


def lasting_effects(trace: Trace) -> tuple[str, ...]:
    """The ops of a function whose effects last and cannot be put back, each with its type.

    Such ops write files, tables or queues, print, take from an iterator, or run code that no graph shows (Python, datasets).
    """
    return tuple(
        f"{body.names[name]!r} ({node.op})"
        for body in trace.root.walk()
        for name, node in body.nodes.items()
        if name not in body.inputs and name not in body.children and _lasts(node.op)
    )


@functools.cache
def _lasts(op_type: str) -> bool:
    entry = entry_of(op_type)
    if entry.side_effects or entry.unseen_code:
        return True
    harmless = entry.reads or entry.updates or entry.draws or entry.own_state_only or entry.control
    return is_stateful(op_type) and not harmless and not any(fnmatch.fnmatchcase(op_type, p) for p in _LEAVES_NOTHING)
