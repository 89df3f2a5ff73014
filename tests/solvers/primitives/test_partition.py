"""Work spread over several accelerators."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.problem.memory import usage
from placer.problem.price import total_cost_ns
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.research.instances.families import SHAPES, synthetic
from placer.solvers.bounds.lagrangian_relaxation import lagrangian_relaxation
from placer.solvers.primitives.device_subset import halved
from placer.solvers.primitives.partition import partitions
from tests.helpers.random_problems import alike, interchangeable, problems, random_assignment
from tests.helpers.shapes import shaped

SHAPED = st.builds(shaped, st.sampled_from(list(SHAPES)), devices=st.integers(3, 5), limited=st.booleans())


@settings(deadline=None, max_examples=60)
@given(problems(devices=3) | alike() | interchangeable() | SHAPED)
def test_a_partition_is_an_assignment_of_the_whole(problem: PlacementProblem) -> None:
    found = list(partitions(problem))
    for (reduced, coarse), (_, again) in zip(found, partitions(problem), strict=True):
        whole = reduced.invert(coarse)
        assert problem.units.allowed[np.arange(problem.num_units), whole.device].all()
        assert total_cost_ns(reduced.problem, coarse) == total_cost_ns(problem, whole)
        assert (coarse.device == again.device).all()


def test_nothing_is_spread_over_one_accelerator() -> None:
    assert not list(partitions(shaped("chain", devices=2, limited=True)))


@settings(deadline=None, max_examples=40)
@given(problems(devices=3) | interchangeable(), st.integers(0, 3))
def test_on_fewer_devices_all_is_as_it_was(problem: PlacementProblem, seed: int) -> None:
    for fewer in halved(problem):
        there = random_assignment(fewer.problem, seed)
        whole = fewer.invert(there)
        assert fewer.problem.num_devices < problem.num_devices
        assert total_cost_ns(fewer.problem, there) == total_cost_ns(problem, whole)
        assert Simulator(fewer.problem).step_ns(there) == Simulator(problem).step_ns(whole)
        assert (usage(fewer.problem, there) == usage(problem, whole)[fewer.devices]).all()


def test_a_chain_that_two_gpus_can_hold_is_not_cut_again_for_two_more() -> None:
    two, four = (synthetic("chain", ops=40, gpus=k, memory=0.7, cpu_only=0.0, on_host=0.0) for k in (2, 4))
    least, found = (total_cost_ns(p, lagrangian_relaxation(p).assignments[0]) for p in (two, four))
    assert found <= least
