"""Making an assignment meet the memory limits."""

from __future__ import annotations

import numpy as np

from placer.problem.memory import excess, usage
from placer.problem.problem import Assignment, Ints, PlacementProblem
from placer.solvers.ledger import Ledger

ROUNDS = 200


def fit(problem: PlacementProblem, assignment: Assignment) -> Assignment | None:
    """Moves units off overfull devices, those first that add least to the total cost per byte they hold at the peak.

    A heuristic: None says that it found nothing, not that there is nothing. A unit never comes back to a device it left.
    """
    if not excess(problem, assignment).any():
        return assignment
    ledger = Ledger(problem, assignment)
    open_to = problem.unit_allowed.copy()
    for _ in range(ROUNDS):
        over = excess(problem, ledger.assignment)
        d = int(np.argmax(over))
        if not over[d]:
            return ledger.assignment
        moment = int(np.argmax(usage(problem, ledger.assignment)[d]))
        held = held_by_unit(problem, ledger.assignment, d, moment)
        open_to[:, d] &= np.array(ledger.device) == d  # who is elsewhere stays elsewhere
        movable = np.flatnonzero((held > 0) & (open_to.sum(axis=1) > open_to[:, d]))
        offers = []
        for unit in movable.tolist():
            change, to = min((ledger.change_ns(unit, to), to) for to in np.flatnonzero(open_to[unit]).tolist() if to != d)
            offers.append((change / held[unit], unit, to))
        if not offers:
            return None
        freed = 0
        for _, unit, to in sorted(offers):
            ledger.move(unit, to)
            open_to[unit, d] = False
            freed += int(held[unit])
            if freed >= over[d]:
                break
    return None


def held_by_unit(problem: PlacementProblem, assignment: Assignment, device: int, moment: int) -> Ints:
    """Bytes of `device`'s memory that each unit has a part in while op `moment` runs, shape [U].

    A tensor counts for its maker where it is made, and for each unit that still waits for it at a place it is copied to.
    """
    op_device = assignment.device[problem.op_unit]
    every, entries = np.arange(len(problem.tensor_op)), np.arange(len(problem.consumer_op))
    src = problem.tensor_place[every, op_device[problem.tensor_op]]
    dst = problem.consumer_place[entries, op_device[problem.consumer_op]]
    last = np.where(problem.tensor_is_result, problem.ops, problem.tensor_op)
    np.maximum.at(last, problem.consumer_tensor, problem.consumer_op)
    begun = problem.tensor_op <= moment
    made = (problem.place_device[src] == device) & (problem.tensor_free | (begun & (last >= moment)))

    held = np.where(assignment.device == device, problem.unit_persistent_bytes, 0)
    np.add.at(held, problem.op_unit[problem.tensor_op[made]], problem.tensor_bytes[made])
    t = problem.consumer_tensor
    waits = problem.tensor_free[t] | (begun[t] & (problem.consumer_op >= moment))
    copied = (problem.place_device[dst] == device) & (dst != src[t]) & waits
    np.add.at(held, problem.op_unit[problem.consumer_op[copied]], problem.tensor_bytes[t[copied]])
    if op_device[moment] == device:
        held[problem.op_unit[moment]] += problem.op_workspace_bytes[moment, device]
    return held
