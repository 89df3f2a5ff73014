"""The total cost of an assignment: the objective "total_cost"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.crossings import crossings_of
from placer.problem.problem import Assignment, PlacementProblem


def total_cost_ns(problem: PlacementProblem, assignment: Assignment) -> int:
    """The time of a step if nothing overlapped: op times, copies, and control signals that cross devices.

    - Each op costs ``ops.time_ns`` on its unit's device.
    - Each tensor that is made at place p, and is not free, is copied to each other place q at which consumers take it. A copy
      costs ``round(count * (links.latency_ns[p, q] + bytes * links.ns_per_byte[p, q]))`` (halves to even).
    - Each op with control edges to ops on other devices costs, for each such device q, ``round(n * links.latency_ns[p, q])``.
      Places p and q are the own memories of the two devices, as TensorFlow sends the signal, and n is ``ops.control_count``.
    """
    device = assignment.device
    crossings = crossings_of(problem)
    work = problem.unit_time_ns[np.arange(problem.num_units), device].sum()
    src = crossings.place[np.arange(len(crossings.unit)), device[crossings.unit]]
    dst = crossings.user_place[np.arange(len(crossings.user)), device[crossings.user]]
    x, dst = _distinct(problem, crossings.user_crossing, src, dst)
    return int(work + problem.links.copy_ns(crossings.nbytes[x], crossings.count[x], src[x], dst).sum())


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
    """All copies of tensors that are not free. With control signals, their costs are the part of copies in `total_cost_ns`."""
    op_device = assignment.device[problem.ops.unit]
    src = problem.tensor_place[np.arange(problem.num_tensors), op_device[problem.tensors.op]]
    dst = problem.consumer_place[np.arange(len(problem.consumers)), op_device[problem.consumers.op]]
    tensor, dst = _distinct(problem, problem.consumers.tensor, src, dst)
    paid = ~problem.tensors.free[tensor]
    tensor, dst = tensor[paid], dst[paid]
    cost = problem.links.copy_ns(problem.tensors.copy_bytes[tensor], problem.tensors.count[tensor], src[tensor], dst)
    return Transfers(tensor, src[tensor], dst, cost)


def handed_ns(problem: PlacementProblem, assignment: Assignment, group: Ints) -> int:
    """The time of all copies of tensors from one device of a group to another."""
    copies = transfers(problem, assignment)
    src, dst = copies.src % problem.num_devices, copies.dst % problem.num_devices
    return int(copies.cost_ns[np.isin(src, group) & np.isin(dst, group) & (src != dst)].sum())


def move_costs_ns(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """[U, D]: the cost per step of copies of all messages that a unit makes or takes, if it alone moved to device d.

    With the unit's own time on d, the difference to its present device is the change of `total_cost_ns` by the move.
    """
    spend(60 + 0.3 * problem.num_ops)
    crossings, device = crossings_of(problem), assignment.device
    places = 2 * problem.num_devices
    count = len(crossings.unit)
    # A pair is one crossing seen from one unit that makes or uses it.
    key = np.concatenate(
        [np.arange(count) * problem.num_units + crossings.unit, crossings.user_crossing * problem.num_units + crossings.user]
    )
    pairs, pair_of = np.unique(key, return_inverse=True)
    pair_x, pair_unit = pairs // problem.num_units, pairs % problem.num_units
    use_pair = pair_of[count:]  # of each use: the pair of its own unit

    here = crossings.user_place[np.arange(len(crossings.user)), device[crossings.user]]
    uses = np.bincount(crossings.user_crossing * places + here, minlength=count * places).reshape(count, places)
    mine = np.bincount(use_pair * places + here, minlength=len(pairs) * places).reshape(len(pairs), places)
    fixed = uses[pair_x] > mine  # [pairs, P]: taken at a place by others
    src_here = crossings.place[np.arange(count), device[crossings.unit]][pair_x]
    makes = crossings.unit[pair_x] == pair_unit

    costs = np.zeros((problem.num_units, problem.num_devices), np.int64)
    for d in range(problem.num_devices):
        copied_to = fixed.copy()
        copied_to[use_pair, crossings.user_place[:, d]] = True
        src = np.where(makes, crossings.place[pair_x, d], src_here)
        copied_to[np.arange(len(pairs)), src] = False
        pair, place = np.nonzero(copied_to)
        x = pair_x[pair]
        cost = problem.links.copy_ns(crossings.nbytes[x], crossings.count[x], src[pair], place)
        np.add.at(costs[:, d], pair_unit[pair], cost)
    return costs


def _distinct(problem: PlacementProblem, item: Ints, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    """The pairs (item, place) among the uses ``(item[i], dst[i])`` whose place is not where the item is made, each once."""
    used = np.zeros((len(src), 2 * problem.num_devices), np.bool_)
    used[item, dst] = True
    used[np.arange(len(src)), src] = False
    x, place = np.nonzero(used)
    return x, place
