"""Op types whose behaviour, not only whose speed, depends on the device."""

from __future__ import annotations

import functools

from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry

_UPDATES = ("Add", "Sub", "Min", "Max", "Update")
_SEGMENTS = ("Sum", "Prod", "Min", "Max")
_SPARSE_SEGMENTS = ("", "WithNumSegments", "Grad", "GradV2")
_SPARSE_UPDATES = ("Adadelta", "Adagrad", "AdagradV2", "Ftrl", "FtrlV2", "ProximalAdagrad")

BOUNDS_SENSITIVE = frozenset(
    {
        *("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd"),
        *(f"{kind}Scatter{update}" for kind in ("", "Resource") for update in (*_UPDATES, "Mul", "Div")),
        *(f"{kind}Scatter{nd}{update}" for kind, nd in (("", "Nd"), ("Resource", "Nd"), ("Tensor", "")) for update in _UPDATES),
        *("ScatterNd", "ScatterNdNonAliasingAdd"),
        *(f"{kind}Segment{reduction}" for kind in ("", "Unsorted") for reduction in _SEGMENTS),
        *(f"SparseSegment{mean}{kind}" for mean in ("Mean", "SqrtN", "Sum") for kind in _SPARSE_SEGMENTS),
        *(f"{kind}SparseApply{rule}" for kind in ("", "Resource") for rule in _SPARSE_UPDATES),
        *("ResourceSparseApplyKerasMomentum", "SparseTensorDenseMatMul", "SparseToDense"),
        *("SegmentMean", "SparseSoftmaxCrossEntropyWithLogits"),
        *("Bincount", "DenseBincount", "DynamicPartition", "ReverseSequence"),
    }
)
"""Ops that raise on a CPU for an index, label, bin or length out of range, and on a GPU skip it or give zeros or NaN and go on.

So TensorFlow documents gathers, scatters, segments and this loss. The others' GPU kernels check nothing that the host would hear
of; what is alike is taken to be alike.
"""

INTEGER_ERRORS = dict.fromkeys(("Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"), "division") | {
    "Pow": "power"
}
"""By op type, the flag of ops on integers that raise on a CPU, for a divisor of zero or an exponent below it, and on a GPU go on
with some value."""

RANDOM_STATEFUL = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)
"""Ops with kernels for both devices that each hold a generator of their own, so that the numbers depend on the device."""

SAVING = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"})
"""Ops whose outputs from the fourth on are for their gradient's op: on a CPU and on a GPU other numbers, or nothing."""


READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"})
"""Ops that leave the variable behind their handle as it is."""

PYTHON_CALLBACKS = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})
"""Ops that call back into Python."""


_GROUPED = ("Collective", "Nccl", "TPU", "_Send", "_Recv", "_HostSend", "_HostRecv")
"""Beginnings of op types that name their partners, which placement would part."""


def depends_on_bounds(node: NodeDef) -> bool:
    """Whether what this node does with an index out of range depends on the device; some are told what to do on any."""
    if node.op == "SparseToDense":
        return not node.attr["validate_indices"].b
    ignores = "bad_indices_policy" in node.attr and node.attr["bad_indices_policy"].s == b"IGNORE"
    return node.op in BOUNDS_SENSITIVE and not ignores


@functools.cache
def is_stateful(op_type: str) -> bool:
    """Whether ops of this type keep state or act on the world, so that they must run once each and in order.

    An unknown type, such as a function called by its name, is taken to.
    """
    definition = op_def_registry.get(op_type)
    return definition is None or bool(definition.is_stateful)


@functools.cache
def function_attributes(op_type: str) -> tuple[str, ...]:
    """The attributes by which ops of this type name functions."""
    definition = op_def_registry.get(op_type)
    return tuple(a.name for a in definition.attr if a.type in ("func", "list(func)")) if definition is not None else ()


@functools.cache
def unplaceable(op_type: str) -> str:
    """Why a function with an op of this type must stay as it is; "" if it need not."""
    definition = op_def_registry.get(op_type)
    if definition is None:
        return "is a function of TensorFlow 1, called by its name"
    if any(output.is_ref for output in definition.output_arg):
        return "gives a reference to a variable of TensorFlow 1"
    if op_type.startswith(_GROUPED):
        return "exchanges values with others of a group, which decides the devices"
    return ""


def functions_of(node: NodeDef) -> list[str]:
    """The functions that a node names."""
    values = [node.attr[attribute] for attribute in function_attributes(node.op)]
    return [name for v in values for name in ([v.func.name] if v.HasField("func") else [f.name for f in v.list.func])]


def takes_handles_from_afar(node: NodeDef) -> bool:
    """Whether it takes handles of state on another device: a dataset whose functions capture them (`InputColocationExemption`).

    They run where the state is, the dataset itself on its host.
    """
    return "Dataset" in node.op and bool(function_attributes(node.op))


@functools.cache
def runs_unseen_code(op_type: str) -> bool:
    """Whether ops of this type run code that may write a variable whose handle they do not take: Python's, a dataset's."""
    return op_type in PYTHON_CALLBACKS or "Iterator" in op_type or "Dataset" in op_type or bool(function_attributes(op_type))
