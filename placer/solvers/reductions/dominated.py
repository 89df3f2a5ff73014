"""A device is ruled out for a unit that works so much faster on another that no copies outweigh it."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from placer.solvers.reductions.moves import Moves
from placer.solvers.reductions.reduced import Reduced, lends, roomy


def dominated(reduced: Reduced) -> Reduced:
    """Rules out each device that another is no worse than, wherever all other units are.

    That other device must be roomy, and the first one too for a unit that lends memory: what any other unit leaves never holds
    more then, nor does a third device. Since the bound holds wherever the others are, all units may be narrowed at once.
    """
    problem = reduced.problem
    moves, has_room, lender = Moves(problem), roomy(problem), lends(problem)
    allowed = problem.units.allowed.copy()
    for here, there in permutations(range(problem.num_devices), 2):
        if has_room[there]:
            change = problem.unit_time_ns[:, there] - problem.unit_time_ns[:, here] + moves.copies_ns(here, there)
            no_worse = (change < 0) | ((change == 0) & (there < here))
            no_worse &= has_room[here] | ~lender
            allowed[:, here] &= ~(no_worse & problem.units.allowed[:, there])
    return reduced.then("dominated", np.arange(problem.num_units), allowed)
