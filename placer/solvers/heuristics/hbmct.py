"""HBMCT: groups of independent ops, each group balanced over the devices by moves from the device that ends last."""

from __future__ import annotations

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import Schedule, upward_rank_ns
from placer.solvers.primitives.ready_list import ReadyList, earliest_end, ready_list_scheduler

SOURCE = (
    "R. Sakellariou, H. Zhao, A hybrid heuristic for DAG scheduling on heterogeneous systems, International Parallel and "
    "Distributed Processing Symposium (IPDPS), 2004, doi:10.1109/IPDPS.2004.1303065"
)

ROW_OP_RUNS = 0.2
"""The work for each op on a device whose end is computed, see `placer.common.clock.spend`."""


def hbmct_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules groups of independent ops, one group after the other.

    Ops come in the order of upward ranks; a new group begins at each op that takes a tensor of its group. In a group, each op is
    put where it would end first if it were alone. Then one op of the device that ends last moves to another device, again and
    again, as long as the other device then ends before that time. The moves tried first are of ops that can start early; of
    devices, the one that ends first is taken. Devices run the ops of a group by when these can start. An op does not move if its
    unit has another op in the group, or a device already. Time: up to G² moves for the G ops of a group, each in time G D.
    """
    ready = ReadyList(problem)
    for group in independent_groups(ready.schedule):
        for op, device in _balanced(ready, np.array(group)):
            there = device if ready.open[problem.ops.unit[op], device] else earliest_end(ready, op)
            while ready.place(op, there) is None:
                there = earliest_end(ready, op)
    return ready.schedule


def independent_groups(schedule: Schedule) -> list[list[int]]:
    """The ops by descending upward rank, in groups of ops that do not take tensors of each other."""
    rank = upward_rank_ns(schedule)
    groups: list[list[int]] = []
    group: set[int] = set()
    for op in sorted(range(len(rank)), key=lambda op: (-rank[op], op)):
        if not groups or any(schedule.producer[e] in group for e in schedule.into[op]):
            groups.append([])
            group = set()
        groups[-1].append(op)
        group.add(op)
    return groups


def _balanced(ready: ReadyList, ops: Ints) -> list[tuple[int, int]]:
    """The ops of a group with their devices, in the order in which each device runs them."""
    units, times = ready.problem.ops.unit[ops], ready.problem.ops.time_ns[ops].tolist()
    earliest = ready.starts(ops)
    starts: list[list[int]] = earliest.tolist()
    _, first, number, members = np.unique(units, return_index=True, return_inverse=True, return_counts=True)
    device = ready.ends(ops).argmin(axis=1)[first][number].tolist()  # of each row; ops of one unit follow the first
    choices = [np.flatnonzero(row).tolist() for row in ready.open[units]]
    moves = [alone and len(some) > 1 for alone, some in zip((members[number] == 1).tolist(), choices, strict=True)]
    mean = np.where(ready.open[units], earliest, 0).sum(axis=1) / ready.open[units].sum(axis=1)
    by_mean, free = np.argsort(mean, kind="stable").tolist(), ready.free.tolist()
    runs = [[row for row in range(len(ops)) if device[row] == d] for d in range(len(free))]

    def in_order(d: int, rows: list[int]) -> list[int]:
        return sorted(rows, key=lambda row: starts[row][d])

    def end(d: int, rows: list[int]) -> int:
        spend(ROW_OP_RUNS * len(rows))
        at = free[d]
        for row in in_order(d, rows):
            at = max(at, starts[row][d]) + times[row][d]
        return int(at)

    def shorter() -> tuple[int, int] | None:
        """The row to move and where to, so that the device that ends last ends earlier and no other device so late."""
        ends = [end(d, rows) for d, rows in enumerate(runs)]
        last = int(np.argmax(ends))
        for row in by_mean:
            if device[row] == last and moves[row] and end(last, [other for other in runs[last] if other != row]) < ends[last]:
                moved, d = min((end(d, [*runs[d], row]), d) for d in choices[row] if d != last)
                if moved < ends[last]:
                    return row, d
        return None

    while move := shorter():
        row, d = move
        runs[device[row]].remove(row)
        runs[d].append(row)
        device[row] = d
    return [(int(ops[row]), d) for d, rows in enumerate(runs) for row in in_order(d, rows)]


def solver() -> Heuristic:
    """Hybrid balanced minimum completion time (HBMCT), by list scheduling."""
    return ready_list_scheduler("hbmct", hbmct_schedule, SOURCE)
