"""Max load against all splits of small problems, and against what is published."""

from __future__ import annotations

import numpy as np
import pytest

from placer.research.instances.dnn_partitioning import load_split
from placer.research.splits.bound import max_load_bound_ns
from placer.research.splits.chain import chain_split
from placer.research.splits.max_load import minimise_max_load
from placer.research.splits.problem import excess_bytes, max_load_ns
from placer.solvers.base import Status
from tests.helpers import published
from tests.helpers.splits import least_max_load_ns, random_split

CONTIGUOUS = {
    "LayerGraphs/bert24_inference": 17.790,
    "LayerGraphs/bert24_training": 41.746,
    "LayerGraphs/resnet50_inference": 33.775,
    "OperatorGraphs/resnet50_inference": 124.349,
}
"""Where a graph has few ideals, what the authors' programme finds."""


@pytest.mark.parametrize("seed", range(6))
def test_the_least_of_all_splits_is_found_and_proved(seed: int) -> None:
    problem = random_split(seed, ops=6 + seed % 2, cpus=1 + seed % 2)
    least = least_max_load_ns(problem)
    assert max_load_bound_ns(problem) <= least
    solution = minimise_max_load(problem, time_limit_s=20.0)
    assert solution.device is not None
    assert solution.status is Status.OPTIMAL
    assert solution.objective_ns == max_load_ns(problem, solution.device) == least
    assert solution.lower_bound_ns == least
    assert excess_bytes(problem, solution.device) == 0
    assert problem.unit_supported[solution.device < problem.accelerators].all()


@pytest.mark.parametrize("seed", range(6))
def test_a_contiguous_split_fits(seed: int) -> None:
    problem = random_split(seed, ops=30, accelerators=3)
    device = chain_split(problem)
    assert excess_bytes(problem, device) == 0
    assert problem.unit_supported[device < problem.accelerators].all()
    assert max_load_bound_ns(problem) <= max_load_ns(problem, device) <= problem.unit_time_ns[:, 0].sum()


@pytest.mark.parametrize(
    "path",
    [p for p in published.THROUGHPUT if f"{p.parent.name}/{p.stem}" in CONTIGUOUS],
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)
def test_contiguous_splits_are_those_of_the_authors(path: published.Path) -> None:
    problem = load_split(path)
    value = max_load_ns(problem, chain_split(problem))
    assert value / 1e6 == pytest.approx(CONTIGUOUS[f"{path.parent.name}/{path.stem}"], abs=6e-4)


def test_the_same_seed_gives_the_same_split() -> None:
    """Nothing of it ends by time."""
    problem = random_split(3, ops=7)
    first, second = (minimise_max_load(problem, time_limit_s=20.0, seed=7).device for _ in range(2))
    assert first is not None
    assert second is not None
    assert np.array_equal(first, second)
