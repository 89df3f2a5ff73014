"""Work spread over several accelerators."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.problem.price import total_cost_ns
from placer.problem.problem import PlacementProblem
from placer.problems.families import SHAPES
from placer.solvers.partition import partitions
from tests.random_problems import alike, interchangeable, problems
from tests.shapes import shaped

SHAPED = st.builds(shaped, st.sampled_from(list(SHAPES)), devices=st.integers(3, 5), limited=st.booleans())


@settings(deadline=None, max_examples=60)
@given(problems(devices=3) | alike() | interchangeable() | SHAPED)
def test_a_partition_is_an_assignment_of_the_whole(problem: PlacementProblem) -> None:
    found = list(partitions(problem))
    for (reduced, coarse), (_, again) in zip(found, partitions(problem), strict=True):
        whole = reduced.invert(coarse)
        assert problem.unit_allowed[np.arange(problem.units), whole.device].all()
        assert total_cost_ns(reduced.problem, coarse) == total_cost_ns(problem, whole)
        assert (coarse.device == again.device).all()


def test_nothing_is_spread_over_one_accelerator() -> None:
    assert not list(partitions(shaped("chain", devices=2, limited=True)))
