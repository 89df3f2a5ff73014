"""Everything on the first GPU, as far as kernels allow."""

from __future__ import annotations

from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.one_kind import one_kind_solver


def solver() -> Heuristic:
    """Every unit on the first GPU it may use. Ignores memory limits."""
    return one_kind_solver("GPU")
