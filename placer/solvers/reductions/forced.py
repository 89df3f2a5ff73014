"""Units that can only be on one device are one unit."""

from __future__ import annotations

import numpy as np

from placer.solvers.reductions.reduced import Reduced


def forced(reduced: Reduced) -> Reduced:
    """Joins the units of each device that nothing else can take. Any limits, any objective."""
    allowed = reduced.problem.units.allowed
    alone = allowed.sum(axis=1) == 1
    group = np.where(alone, len(allowed) + allowed.argmax(axis=1), np.arange(len(allowed)))
    return reduced.then("forced", group, allowed)
