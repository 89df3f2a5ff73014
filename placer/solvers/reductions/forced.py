"""Joins the units that can be on one device only."""

from __future__ import annotations

import numpy as np

from placer.solvers.reductions.reduced import Reduced


def forced(reduced: Reduced) -> Reduced:
    """Joins, for each device, the units that no other device can run. Valid for any memory limits and any objective."""
    allowed = reduced.problem.units.allowed
    alone = allowed.sum(axis=1) == 1
    group = np.where(alone, len(allowed) + allowed.argmax(axis=1), np.arange(len(allowed)))
    return reduced.joined(group, allowed)
