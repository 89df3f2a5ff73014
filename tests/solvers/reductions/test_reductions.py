"""Reductions against brute force: each keeps an optimum and prices everything as before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.problem.memory import peaks
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.validate import validate
from placer.research.instances.families import synthetic
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.reductions.dominated import dominated
from placer.solvers.reductions.followers import followers
from placer.solvers.reductions.forced import forced
from placer.solvers.reductions.reduce import REDUCTIONS, reduce
from placer.solvers.reductions.reduced import Reduced, choices
from placer.solvers.reductions.towers import towers
from tests.helpers.changed import changed
from tests.helpers.random_problems import assignments, problems, random_assignment
from tests.helpers.shapes import shaped, tasks


def optimum(problem: PlacementProblem) -> Assignment | None:
    fitting = [a for a in assignments(problem) if validate(problem, a).ok]
    return min(fitting, key=lambda a: total_cost_ns(problem, a), default=None)


@st.composite
def biased(draw: st.DrawFn) -> PlacementProblem:
    """Random problems in which copies, work or memory of some units weigh nothing or much, and the CPU may have room for all."""
    problem = draw(problems())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = rng.choice([0, 1, 1, 20], size=(problem.num_ops, 1))
    light = rng.random(problem.num_ops) < draw(st.sampled_from([0.0, 0.5]))
    limits = problem.devices.memory_limit_bytes.copy()
    limits[0] = draw(st.sampled_from([-1, limits[0]]))
    free = draw(st.sampled_from([1, 1, 0]))
    return changed(
        problem,
        ops_time_ns=problem.ops.time_ns * scale,
        ops_workspace_bytes=np.where(light[:, None], 0, problem.ops.workspace_bytes),
        units_persistent_bytes=np.where(rng.random(problem.num_units) < 0.5, 0, problem.units.persistent_bytes),
        tensors_nbytes=np.where(light[problem.tensors.op], 0, problem.tensors.nbytes),
        tensors_shared=problem.tensors.shared | (rng.random(problem.num_tensors) < draw(st.sampled_from([0.0, 0.5]))),
        links_latency_ns=problem.links.latency_ns * free * draw(st.sampled_from([1, 10])),
        links_ns_per_byte=problem.links.ns_per_byte * free,
        devices_memory_limit_bytes=limits,
    )


@settings(deadline=None, max_examples=250)
@given(biased(), st.sampled_from([*REDUCTIONS, None]))
def test_an_optimum_of_the_reduced_problem_is_one_of_the_original(problem: PlacementProblem, reduction: object) -> None:
    reduced = reduce(problem) if reduction is None else reduction(Reduced.identity(problem))  # type: ignore[operator]
    best, found = optimum(problem), optimum(reduced.problem)
    if best is None or found is None:
        assert best is found
        return
    expanded = reduced.invert(found)
    assert total_cost_ns(reduced.problem, found) == total_cost_ns(problem, expanded) == total_cost_ns(problem, best)
    assert validate(problem, expanded).ok
    assert choices(reduced.problem) <= choices(problem)


@settings(deadline=None, max_examples=100)
@given(problems(), st.integers(0, 2**32 - 1))
def test_what_is_expanded_costs_and_holds_the_same(problem: PlacementProblem, seed: int) -> None:
    reduced = reduce(problem)
    assignment = random_assignment(reduced.problem, seed)
    expanded = reduced.invert(assignment)
    assert (reduced.forward(expanded).device == assignment.device).all()
    assert total_cost_ns(reduced.problem, assignment) == total_cost_ns(problem, expanded)
    assert (peaks(reduced.problem, assignment) == peaks(problem, expanded)).all()
    assert Simulator(reduced.problem).step_ns(assignment) == Simulator(problem).step_ns(expanded)


def twins(devices: int, copies: int, height: int, seed: int) -> PlacementProblem:
    """Equal towers between one op, whose one tensor all take, and one op; each device works and copies at a pace of its own."""
    rng = np.random.default_rng(seed)
    row = np.arange(copies * height) // copies
    times = rng.integers(0, 60, (height + 2, devices))
    sent = rng.integers(0, 60, height + 1)
    first = [(1, k + 2, int(sent[0])) for k in range(copies)]
    inner = [(k + 2, k + 2 + copies, int(sent[row[k] + 1])) for k in range(copies * (height - 1))]
    last = [(2 + copies * (height - 1) + k, copies * height + 2, int(sent[height])) for k in range(copies)]
    problem = tasks(times[[0, *(row + 1), height + 1]].tolist(), first + inner + last)
    pace = problem.links.ns_per_byte * rng.uniform(0.2, 2, problem.links.ns_per_byte.shape)
    return replace(
        problem,
        tensors=problem.tensors.take("T", np.arange(copies - 1, problem.num_tensors)),
        consumers=replace(problem.consumers, start=np.append(0, problem.consumers.start[copies:])),
        links=replace(problem.links, ns_per_byte=pace),
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 3), st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_equal_towers_are_decided_as_one(devices: int, copies: int, seed: int) -> None:
    problem = twins(devices, copies, 2, seed)
    reduced = towers(Reduced.identity(problem))
    assert choices(reduced.problem) <= 4
    best, found = optimum(problem), optimum(reduced.problem)
    assert best is not None
    assert found is not None
    assert total_cost_ns(problem, best) == total_cost_ns(problem, reduced.invert(found))


def test_each_reduction_finds_what_it_is_for() -> None:
    """Ops 1 and 4 may run anywhere, much faster on the second device; 2 and 3 gain less apart than their copy costs."""
    problem = tasks([[9_000, 5], [10, 5], [5, 10], [9_000, 5]], [(1, 2, 40), (2, 3, 60), (3, 4, 40)])
    ruled_out = dominated(Reduced.identity(problem))
    assert ruled_out.problem.units.allowed.tolist() == [[False, True], [True, True], [True, True], [False, True]]
    assert forced(ruled_out).problem.num_units == 3
    assert followers(Reduced.identity(problem)).problem.num_units < 4
    assert reduce(problem).problem.num_units == 1
    capped = changed(problem, devices_memory_limit_bytes=np.array([60, 60]))
    assert reduce(capped).problem.num_units == 4


def test_the_cut_of_a_large_reduced_problem_is_that_of_the_whole() -> None:
    for shape in ("layered", "towers", "series_parallel"):
        problem = shaped(shape, devices=2, limited=False, ops=300)
        reduced = reduce(problem)
        assert minimum_cut(reduced.problem).bound_ns == pytest.approx(minimum_cut(problem).bound_ns, rel=1e-12)
        assert choices(reduced.problem) < choices(problem)


def test_a_device_that_runs_short_keeps_what_lends_it_memory() -> None:
    """What makes a view takes nothing beside it; moved away, it leaves a copy behind, however free copies are."""
    for seed in range(20):
        plain = synthetic("chain", ops=9, seed=seed, copy_ns=0, speedup=3, cpu_only=0)
        rng = np.random.default_rng(seed)
        problem = changed(
            plain,
            links_ns_per_byte=plain.links.ns_per_byte * 0,
            links_latency_ns=plain.links.latency_ns * 0,
            tensors_shared=rng.random(plain.num_tensors) < 0.5,
        )
        held = np.sort([peaks(problem, a)[1] for a in assignments(problem)])
        limited = changed(problem, devices_memory_limit_bytes=np.array([-1, held[len(held) // 5]]))
        best, found = optimum(limited), optimum(reduce(limited).problem)
        assert best is not None
        assert found is not None
        assert total_cost_ns(limited, best) == total_cost_ns(reduce(limited).problem, found)
