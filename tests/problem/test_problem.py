"""The parts of a problem: read-only arrays, defaults, shapes, and what is computed once per problem."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from placer.problem.crossings import crossings_of
from placer.problem.edges import edges_of
from placer.problem.memory import live_ranges_of
from placer.problem.parts import Consumers, Devices, Ops, Tensors
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.research.formats.problem_file import fingerprint
from placer.solvers.heuristics.tf_default import default_assignment
from tests.helpers.pairwise import random_pairwise
from tests.helpers.random_problems import problems
from tests.helpers.shapes import TOPCUOGLU, shaped
from tests.helpers.solvers_that_fail import halve_times
from tests.helpers.splits import random_split


def arrays(problem: PlacementProblem) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """All arrays of all parts by name."""
    parts = {part.name: getattr(problem, part.name) for part in fields(problem)}
    named = {f"{name}.{f.name}": getattr(part, f.name) for name, part in parts.items() for f in fields(part)}
    return {name: value for name, value in named.items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("how", ["made", "replaced", "pickled", "copied"])
def test_arrays_cannot_be_written(how: str) -> None:
    problem = shaped("layered", devices=2, limited=True)
    if how == "replaced":
        problem = problem.with_memory_limits(np.array([-1, 5])).on_devices(np.array([1, 0]))
    elif how == "pickled":
        problem = pickle.loads(pickle.dumps(problem))
    elif how == "copied":
        problem = copy.deepcopy(problem)
    derived = (problem.unit_time_ns, problem.consumers.tensor, problem.ops.at_moment, problem.devices.runner)
    for array in (*arrays(problem).values(), *derived):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(ValueError, match="read-only"):
        problem.ops.time_ns[:] = 0
    for array in (
        crossings_of(problem).nbytes,
        edges_of(problem).count,
        live_ranges_of(problem).last,
        Simulator(problem).tables.runs,
    ):
        assert not array.flags.writeable


def test_what_is_done_to_a_copy_does_not_change_the_problem() -> None:
    problem = shaped("layered", devices=2, limited=True)
    before, given = fingerprint(problem), problem.copy()
    assert fingerprint(given) == before
    halve_times(given)
    object.__setattr__(given.devices, "call_overhead_ns", 1)
    assert fingerprint(given) != before
    assert fingerprint(problem) == before
    assert problem.unit_time_ns.sum() != given.unit_time_ns.sum()


@pytest.mark.parametrize("problem", [random_split(1), random_pairwise(1)], ids=["split", "pairwise"])
def test_arrays_of_other_problems_cannot_be_written_either(problem: Any) -> None:
    for one in (problem, pickle.loads(pickle.dumps(problem))):
        for f in fields(one):
            if isinstance(value := getattr(one, f.name), np.ndarray):
                with pytest.raises(ValueError, match="WRITEABLE"):
                    value.setflags(write=True)


def test_the_arrays_of_the_caller_stay_writable_and_apart() -> None:
    time_ns = np.array([[1, 2]])
    ops = Ops(names=("a",), unit=np.zeros(1, np.int64), time_ns=time_ns[:, ::-1])
    time_ns[0, 0] = 7
    assert ops.time_ns.tolist() == [[2, 1]]


def test_defaults_are_filled_in() -> None:
    tensors = Tensors(op=np.array([0, 1]), nbytes=np.array([5, 6]), on_host=np.zeros((2, 2), np.bool_))
    assert tensors.copy_bytes.tolist() == tensors.held_bytes.tolist() == [5, 6]
    assert tensors.count.tolist() == [1.0, 1.0]
    ops = Ops(names=("a", "b"), unit=np.array([0, 1]), time_ns=np.array([[1, 2], [3, 4]]))
    assert ops.compute_ns.tolist() == ops.time_ns.tolist()
    assert ops.moment.tolist() == [0, 1]
    assert (len(ops.control_src), ops.dispatch_ns.shape) == (0, (2, 2))
    consumers = Consumers(start=np.array([0, 0, 1]), op=np.array([1]), on_host=np.zeros((1, 2), np.bool_))
    assert consumers.until.tolist() == [1]
    assert Devices(names=("CPU:0",), kinds=("CPU",)).memory_limit_bytes.tolist() == [-1]


def test_arrays_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"devices\.threads has shape \(3,\) where \(D=2\) is expected"):
        Devices(names=("CPU:0", "GPU:0"), kinds=("CPU", "GPU"), threads=np.ones(3, np.int64))
    with pytest.raises(ValueError, match=r"devices\.threads holds float64 where int64 is expected"):
        Devices(names=("CPU:0",), kinds=("CPU",), threads=np.array([1.5]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="links has P=6 where P=4 is expected"):
        replace(TOPCUOGLU, devices=Devices(names=("CPU:0", "CPU:1"), kinds=("CPU", "CPU")))


@settings(deadline=None, max_examples=50)
@given(problems())
def test_a_problem_on_some_devices_prices_what_is_there_as_before(problem: PlacementProblem) -> None:
    kept = np.flatnonzero(problem.units.allowed.all(axis=0))
    if problem.devices.host not in kept:
        return
    some = problem.on_devices(kept)
    assert some.devices.names == tuple(problem.devices.names[d] for d in kept)
    for k, d in enumerate(kept.tolist()):
        here, before = (Assignment(np.full(problem.num_units, device)) for device in (k, d))
        assert total_cost_ns(some, here) == total_cost_ns(problem, before)
        assert Simulator(some).step_ns(here) == Simulator(problem).step_ns(before)


def test_a_pickled_problem_is_the_same_problem() -> None:
    problem = shaped("towers", devices=3, limited=True)
    assert problem.unit_time_ns is problem.unit_time_ns
    again = pickle.loads(pickle.dumps(problem))
    assert "unit_time_ns" not in vars(again)
    assert fingerprint(again) == fingerprint(problem)


def test_what_is_computed_once_goes_with_its_problem() -> None:
    problem = shaped("towers", devices=2, limited=False)
    assert crossings_of(problem) is crossings_of(problem)
    Simulator(problem).step_ns(default_assignment(problem))
    kept = weakref.ref(problem)
    del problem
    gc.collect()
    assert kept() is None
