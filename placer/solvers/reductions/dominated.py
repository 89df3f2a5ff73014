"""Rules out a device for a unit that is faster on another by more than any copies can cost."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from placer.solvers.reductions.moves import Moves
from placer.solvers.reductions.reduced import Reduced, holds_anything, lends_memory


def dominated(reduced: Reduced) -> Reduced:
    """Rules out a device for a unit if another device is no worse for it, wherever all other units are.

    The other device must be one that `holds_anything`, so that the move exceeds no memory limit. For a unit that lends memory,
    the first device must be one too, because it may hold more after the move. The test holds wherever the other units are, so all
    units may be treated at once.
    """
    problem = reduced.problem
    moves, unlimited, lender = Moves(problem), holds_anything(problem), lends_memory(problem)
    allowed = problem.units.allowed.copy()
    for old, new in permutations(range(problem.num_devices), 2):
        if unlimited[new]:
            change = problem.unit_time_ns[:, new] - problem.unit_time_ns[:, old] + moves.copies_ns(old, new)
            no_worse = (change < 0) | ((change == 0) & (new < old))
            no_worse &= unlimited[old] | ~lender
            allowed[:, old] &= ~(no_worse & problem.units.allowed[:, new])
    return reduced.joined(np.arange(problem.num_units), allowed)
