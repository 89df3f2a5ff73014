"""Variables: reads, assignments, optimizer steps, and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.gather_scatter import BOUNDS, BOUNDS_AND_SUMS, gathers, scatters
from cost_models.ops.optype import OpType
from cost_models.ops.recipes import indices_below, indices_of, random_points, table_of_points, table_of_rows, whole_variable
from cost_models.ops.table import is_copied, register
from cost_models.ops.work import CORE_NS_PER_BYTE, Formula, Timed, Work, host_only, nbytes, once


def _read(op: OpSignature) -> Work:
    """Gives the variable's own memory, or a copy of it, which a CPU makes on one core."""
    if not is_copied(op):
        return host_only(op)
    moved = 2 * nbytes(op.outputs)
    return Work(nbytes=moved, cpu_serial_ns=CORE_NS_PER_BYTE * moved)


def _step(passes: int) -> Formula:
    """An optimizer step: `passes` reads and writes of something of the gradient's size, which is the largest input's."""

    def formula(op: OpSignature) -> Work:
        size = max((spec.nbytes for spec in op.inputs), default=0)
        return Work(flops=passes * size / 4, nbytes=passes * size)

    return formula


def _rows(op: OpSignature) -> float:
    return sum(spec.elements for spec in op.inputs if spec.dtype in ("int32", "int64"))


def _largest(op: OpSignature) -> float:
    """Elements of the largest input, which is the gradient."""
    return max((spec.elements for spec in op.inputs), default=0)


def _row_numbers(op: OpSignature) -> Mapping[int, Any]:
    return {op.inputs.index(indices_of(op)): indices_below(table_of_rows(op).shape[0], indices_of(op))}


def _row_numbers_and_power(op: OpSignature) -> Mapping[int, Any]:
    """The last input is a power, of which none above 0 is allowed."""
    return {**_row_numbers(op), len(op.inputs) - 1: -0.5}


def _power(op: OpSignature) -> Mapping[int, Any]:
    return {len(op.inputs) - 1: -0.5}


def _points(op: OpSignature) -> Mapping[int, Any]:
    return {1: random_points(op.inputs[1], table_of_points(op).shape)}


register("VarHandleOp DestroyResourceOp", OpType(work=host_only))
register("VarIsInitializedOp VariableShape", OpType(work=host_only, reads="metadata"))
register("ReadVariableOp", OpType(work=_read, reads="value", variable=whole_variable))

_UPDATE = OpType(updates="value", variable=whole_variable)

register("AssignVariableOp", replace(_UPDATE, work=host_only))
register(
    "AssignAddVariableOp AssignSubVariableOp ResourceApplyGradientDescent ResourceApplyProximalGradientDescent",
    replace(_UPDATE, work=_step(3)),
)
register(
    "ResourceApplyMomentum ResourceApplyKerasMomentum ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdagradDA",
    replace(_UPDATE, work=_step(5)),
)
register(
    """ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyRMSProp
    ResourceApplyCenteredRMSProp ResourceApplyPowerSign ResourceApplyAddSign""",
    replace(_UPDATE, work=_step(7)),
)
register("ResourceApplyFtrl ResourceApplyFtrlV2", replace(_UPDATE, work=_step(7), recipe=_power))
register("ResourceApplyProximalAdagrad", _UPDATE)
register("Assign AssignAdd AssignSub AssignVariableXlaConcatND", OpType(updates="value"))
register("ResourceStridedSliceAssign", OpType(work=scatters, updates="slice"))

_READ_ROWS = OpType(work=gathers, reads="rows", differs=BOUNDS)
_UPDATE_ROWS = OpType(updates="rows", variable=table_of_rows, recipe=_row_numbers)
_SCATTER = replace(_UPDATE_ROWS, work=scatters, differs=BOUNDS)
_SCATTER_POINTS = OpType(work=scatters, updates="rows", differs=BOUNDS, variable=table_of_points, recipe=_points)

register("ResourceGather", replace(_READ_ROWS, start_factor=1.4, variable=table_of_rows, recipe=_row_numbers))
register("ResourceGatherNd", replace(_READ_ROWS, variable=table_of_points, recipe=_points))
register("ResourceScatterAdd ResourceScatterSub", replace(_SCATTER, differs=BOUNDS_AND_SUMS))
register("ResourceScatterMul ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterUpdate", _SCATTER)
register("ResourceScatterNdAdd ResourceScatterNdSub", replace(_SCATTER_POINTS, differs=BOUNDS_AND_SUMS))
register("ResourceScatterNdUpdate", _SCATTER_POINTS)
register("ResourceScatterNdMax ResourceScatterNdMin", replace(_SCATTER_POINTS, work=None))
register(
    """ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyAdadelta
    ResourceSparseApplyProximalAdagrad""",
    _SCATTER,
)
register("ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2", replace(_SCATTER, recipe=_row_numbers_and_power))
register(
    "ResourceSparseApplyMomentum ResourceSparseApplyRMSProp ResourceSparseApplyCenteredRMSProp",
    replace(_UPDATE_ROWS, work=Timed(cpu=((once, 4_090), (_rows, 605), (_largest, 2.3)))),
)
register("ResourceSparseApplyAdagradDA ResourceSparseApplyProximalGradientDescent", _UPDATE_ROWS)

# Variables of TensorFlow 1, which a function of TensorFlow 2 can have in its graph.
register(
    """ScatterAdd ScatterSub ScatterMul ScatterDiv ScatterMin ScatterMax ScatterUpdate ScatterNdAdd ScatterNdSub ScatterNdMin
    ScatterNdMax ScatterNdUpdate SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradV2 SparseApplyFtrl SparseApplyFtrlV2
    SparseApplyProximalAdagrad""",
    OpType(differs=BOUNDS),
)
