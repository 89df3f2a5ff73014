"""All ops on the first GPU, except ops that may not be there."""

from __future__ import annotations

from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.one_kind import one_kind_solver


def solver() -> Heuristic:
    """Every unit on the first GPU it may use. Ignores memory limits."""
    return one_kind_solver("GPU")
