"""Problems of a comparison: made up by a seed, told apart, saved, and read from targets."""

from __future__ import annotations

import copy
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from placer.errors import OptionError, PlanError
from placer.problem.memory import peaks
from placer.problem.problem import PlacementProblem
from placer.research.arena.problems import problem_of
from placer.research.formats.problem_file import fingerprint, load_problem, save_problem
from placer.research.instances.dnn_partitioning import load_placement
from placer.research.instances.families import MIN_OPS, SHAPES, synthetic
from placer.research.instances.task_graphs import SHAPES as TASK_GRAPHS
from placer.research.instances.task_graphs import task_graph
from placer.solvers.primitives.list_scheduling import mean_copy_ns, mean_time_ns
from placer.solvers.primitives.one_kind import all_on
from tests.helpers.graphs import layers
from tests.helpers.published import THROUGHPUT
from tests.helpers.random_problems import problems


@given(st.sampled_from(list(SHAPES)), st.integers(MIN_OPS, 60), st.integers(1, 3), st.integers(0, 2**31 - 1))
def test_a_family_has_problems_of_every_size_by_seed(shape: str, ops: int, gpus: int, seed: int) -> None:
    problem = synthetic(shape, ops=ops, gpus=gpus, seed=seed, memory=0.5)
    assert (problem.num_ops, problem.num_devices) == (ops, 1 + gpus)
    assert problem.devices.memory_limit_bytes[1] == peaks(problem, all_on(problem, "GPU"))[1] // 2
    assert fingerprint(problem) == fingerprint(synthetic(shape, ops=ops, gpus=gpus, seed=seed, memory=0.5))
    assert fingerprint(problem) != fingerprint(synthetic(shape, ops=ops, gpus=gpus, seed=seed + 1, memory=0.5))


@given(st.sampled_from(list(TASK_GRAPHS)), st.integers(6, 60), st.integers(2, 4), st.floats(0.1, 10), st.integers(0, 2**31 - 1))
def test_a_family_of_task_graphs_has_the_ratio_that_is_asked_for(
    shape: str, ops: int, processors: int, ccr: float, seed: int
) -> None:
    problem = task_graph(shape, ops=ops, processors=processors, ccr=ccr, seed=seed)
    assert problem.num_devices == processors
    assert problem.num_ops == ops or (shape in {"etl", "stats", "train", "predict"} and problem.num_ops <= max(11, ops))
    edges = np.unique(problem.tensors.op[problem.consumers.tensor] * problem.num_ops + problem.consumers.op)
    assert len(edges) == len(problem.consumers)
    assert mean_copy_ns(problem).mean() / mean_time_ns(problem).mean() == pytest.approx(ccr, rel=0.01)
    assert fingerprint(problem) == fingerprint(task_graph(shape, ops=ops, processors=processors, ccr=ccr, seed=seed))


def test_a_task_graph_is_saved_with_its_links_free(tmp_path: Path) -> None:
    problem = problem_of("family:in_trees,ops=15,ccr=2.5,processors=3,speedup=2", {})
    save_problem(problem, tmp_path / "problem.npz")
    assert not load_problem(tmp_path / "problem.npz").links.contention
    assert fingerprint(load_problem(tmp_path / "problem.npz")) == fingerprint(problem)
    for wrong in ("family:in_trees,gpus=2", "family:in_trees,ccr=-1", "family:in_trees,ops=5", "family:in_tree"):
        with pytest.raises(OptionError, match="in_tree"):
            problem_of(wrong, {})


def test_every_parameter_of_a_family_counts() -> None:
    plain = fingerprint(synthetic("layered"))
    for text in ("ops=99", "gpus=2", "seed=1", "memory=0.5", "speedup=10", "copy_ns=5", "cpu_only=0.5", "on_host=0.5"):
        assert fingerprint(problem_of(f"family:layered,{text}", {})) != plain


@given(problems())
def test_a_saved_problem_is_the_same_problem(tmp_path_factory: pytest.TempPathFactory, problem: PlacementProblem) -> None:
    path = tmp_path_factory.mktemp("problems") / "problem.npz"
    save_problem(problem, path)
    assert fingerprint(load_problem(path)) == fingerprint(problem_of(str(path), {})) == fingerprint(problem)


def test_problems_differ_that_differ_in_anything() -> None:
    problem = synthetic("layered", ops=12)
    hashes = [fingerprint(problem)]
    named = [(part.name, field.name) for part in fields(problem) for field in fields(getattr(problem, part.name))]
    for part, field in named:
        other, value = copy.deepcopy(problem), getattr(getattr(problem, part), field)
        if isinstance(value, np.ndarray):
            changed = value.copy()
            changed.flat[-1] = not changed.flat[-1] if value.dtype == bool else changed.flat[-1] + 1
        else:
            changed = (*value[:-1], "other") if isinstance(value, tuple) else value + 1
        object.__setattr__(getattr(other, part), field, changed)
        hashes.append(fingerprint(other))
    assert len(set(hashes)) == len(hashes) == 1 + len(named)


@pytest.mark.skipif(not THROUGHPUT, reason="the published workloads are not here")
def test_a_published_workload_is_a_target() -> None:
    path = next(path for path in THROUGHPUT if path.stem == "bert_l-3_inference")
    assert fingerprint(problem_of(str(path), {})) == fingerprint(load_placement(path))


def test_a_broken_file_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not a zip file")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    for path in ("broken.npz", "other.npz", "missing.npz"):
        with pytest.raises(PlanError, match=path):
            load_problem(tmp_path / path)


def test_a_graph_its_file_and_its_plan_are_one_problem(tmp_path: Path) -> None:
    graph = layers()
    graph.save(tmp_path / "graph.json")
    plan = placer.solve(graph, "h100")
    plan.save(tmp_path / "plan.json")
    on = {"devices": "h100"}
    hashes = [
        fingerprint(problem_of(target, options))
        for target, options in [
            (graph, on), (plan, on), (plan, {}), (str(tmp_path / "graph.json"), on), (str(tmp_path / "plan.json"), {}),
        ]
    ]  # fmt: skip
    assert len(set(hashes)) == 1
    assert fingerprint(problem_of(graph, on | {"memory_limits": {"GPU:0": 10**6}})) != hashes[0]
