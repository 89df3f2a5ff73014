"""Latency against all splits of small problems, and against what is published."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.research.instances.dnn_partitioning import load_split
from placer.research.splits.bound import Cuts
from placer.research.splits.latency import minimise_latency
from placer.research.splits.latency_bound import pieces_of_path, shortest_path_ns
from placer.research.splits.problem import excess_bytes, latency_ns, loads_ns
from placer.solvers.base import Status
from tests.helpers import published
from tests.helpers.splits import least_latency_ns, random_split


@pytest.mark.parametrize("seed", range(5))
def test_the_least_of_all_splits_is_found_and_proved(seed: int) -> None:
    problem = random_split(seed, ops=6 + seed % 2)
    least = least_latency_ns(problem)
    solution = minimise_latency(problem, time_limit_s=20.0)
    assert solution.device is not None
    assert solution.objective_ns == latency_ns(problem, solution.device) == least
    assert solution.status is Status.OPTIMAL
    assert solution.lower_bound_ns == least
    assert excess_bytes(problem, solution.device) == 0
    assert problem.unit_supported[solution.device < problem.accelerators].all()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_no_bound_exceeds_the_least(seed: int, accelerators: int) -> None:
    problem = random_split(seed, ops=7, accelerators=accelerators)
    least = least_latency_ns(problem)
    assert shortest_path_ns(problem) <= least
    assert pieces_of_path(problem, time_limit_s=0.0)[0] <= pieces_of_path(problem, time_limit_s=20.0)[0] <= least


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_no_accelerator_has_less_to_do_than_its_cut(seed: int) -> None:
    problem = random_split(seed, ops=7)
    problem = replace(problem, tensor_ns=20 * problem.tensor_ns)  # cuts take in more than fits
    cuts = Cuts(problem)
    held = [np.array(chosen) for chosen in itertools.product([0, 1], repeat=problem.units)]
    load = {tuple(h): loads_ns(problem, 1 - h)[0] for h in held if h @ problem.unit_bytes <= problem.memory_limit_bytes}
    for a, b in itertools.permutations(range(problem.units), 2):
        if problem.unit_bytes[a] <= problem.memory_limit_bytes:
            least = min(ns for there, ns in load.items() if there[a] and not there[b])
            bound, near = cuts.least_that_fits([a], [b])
            assert cuts.least([a], [b]) <= bound <= least <= load[tuple(near)]


@pytest.mark.parametrize("seed", range(6))
def test_a_larger_split_fits_and_waits_in_no_circle(seed: int) -> None:
    problem = random_split(seed, ops=40, accelerators=3)
    solution = minimise_latency(problem, time_limit_s=0.5)
    assert solution.device is not None
    assert excess_bytes(problem, solution.device) == 0
    assert solution.lower_bound_ns <= solution.objective_ns == latency_ns(problem, solution.device)
    everything_on_cpus = latency_ns(problem, np.full(problem.units, problem.accelerators))
    assert everything_on_cpus is not None
    assert solution.objective_ns <= everything_on_cpus


@pytest.mark.skipif(not published.LATENCY, reason="no published problems beside this checkout")
def test_a_published_latency_is_met() -> None:
    """That of a graph with few ideals, which is proved."""
    path = next(p for p in published.LATENCY if p.stem == "bert24_inference")
    solution = minimise_latency(load_split(path), time_limit_s=0.5)
    assert solution.objective_ns / 1e6 == pytest.approx(100.218, abs=1e-3)
