"""What an assignment costs in all: the objective "total_cost"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.problem import Assignment, Ints, PlacementProblem


def total_cost_ns(problem: PlacementProblem, assignment: Assignment) -> int:
    """The work of a step, nothing overlapping: op times plus copies plus control hops.

    - Each op costs ``op_time_ns`` on its unit's device.
    - Each tensor that is not free costs, for each distinct place of its consumers other than the place p it is produced in,
      ``round(count * (copy_latency_ns[p, q] + bytes * copy_ns_per_byte[p, q]))`` (halves to even), however many wait at q.
    - Each op with control edges to ops on other devices costs, for each such device,
      ``round(op_count * copy_latency_ns[p, q])`` between the two devices' views of host memory.
    """
    device = assignment.device
    crossings = problem.crossings
    work = problem.unit_time_ns[np.arange(problem.units), device].sum()
    src = crossings.place[np.arange(len(crossings.unit)), device[crossings.unit]]
    dst = crossings.user_place[np.arange(len(crossings.user)), device[crossings.user]]
    x, dst = _distinct(problem, crossings.user_crossing, src, dst)
    return int(work + problem.copy_ns(crossings.nbytes[x], crossings.count[x], src[x], dst).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """The tensors an assignment copies, one row for each further place, in the order of tensors, then places; X rows."""

    tensor: Ints
    """[X]"""
    src: Ints
    """[X]: place it is produced in."""
    dst: Ints
    """[X]: place it is copied to."""
    cost_ns: Ints
    """[X]: all copies of one step."""


def transfers(problem: PlacementProblem, assignment: Assignment) -> Transfers:
    """Every copy of a tensor that is not free. Their costs and those of control hops are the copies' part of `total_cost_ns`."""
    op_device = assignment.device[problem.op_unit]
    src = problem.tensor_place[np.arange(len(problem.tensor_op)), op_device[problem.tensor_op]]
    dst = problem.consumer_place[np.arange(len(problem.consumer_op)), op_device[problem.consumer_op]]
    tensor, dst = _distinct(problem, problem.consumer_tensor, src, dst)
    paid = ~problem.tensor_free[tensor]
    tensor, dst = tensor[paid], dst[paid]
    cost = problem.copy_ns(problem.tensor_bytes[tensor], problem.tensor_count[tensor], src[tensor], dst)
    return Transfers(tensor, src[tensor], dst, cost)


def _distinct(problem: PlacementProblem, what: Ints, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    """The pairs (what, place) among the uses ``(what[i], dst[i])`` that differ from where it is made, each once."""
    used = np.zeros((len(src), 2 * problem.devices), np.bool_)
    used[what, dst] = True
    used[np.arange(len(src)), src] = False
    x, place = np.nonzero(used)
    return x, place
