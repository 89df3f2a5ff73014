"""Price and memory against the independent validator, and against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.problem.memory import peaks
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.price import total_cost_ns, transfers
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.validate import validate
from tests.helpers.changed import changed
from tests.helpers.random_problems import problems, random_assignment


def chain(**changes: object) -> PlacementProblem:
    """in → work → out on a CPU and a GPU: 100 B each way; `out` takes host memory on the GPU."""
    base = PlacementProblem(
        devices=Devices(
            names=("CPU:0", "GPU:0"),
            kinds=("CPU", "GPU"),
            asynchronous=np.array([False, True]),
            call_overhead_ns=50,
        ),
        ops=Ops(
            names=("in", "work", "out"),
            unit=np.arange(3),
            time_ns=np.array([[10, 5], [1000, 50], [10, 5]]),
            dispatch_ns=np.array([[2, 5], [2, 5], [2, 5]]),
            compute_ns=np.array([[8, 1], [998, 50], [8, 1]]),
            workspace_bytes=np.array([[0, 0], [0, 7], [0, 0]]),
            control_src=np.array([0]),
            control_dst=np.array([2]),
        ),
        units=Units(
            allowed=np.ones((3, 2), np.bool_),
            persistent_bytes=np.array([0, 1000, 0]),
        ),
        tensors=Tensors(
            op=np.array([0, 1]),
            nbytes=np.array([100, 100]),
            on_host=np.zeros((2, 2), np.bool_),
        ),
        consumers=Consumers(
            start=np.array([0, 1, 2]),
            op=np.array([1, 2]),
            on_host=np.array([[False, False], [False, True]]),
        ),
        links=Links(
            latency_ns=np.array([[0, 60, 0, 3], [70, 0, 0, 70], [0, 60, 0, 3], [3, 60, 3, 0]]),
            ns_per_byte=np.array([[0, 0.1, 0, 0], [0.2, 0, 0.2, 0.2], [0, 0.1, 0, 0], [0, 0.1, 0, 0]]),
        ),
    )
    return changed(base, **changes)


@pytest.mark.parametrize(
    ("device", "cost", "held"),
    [
        ([0, 0, 0], 1020, [1200, 0]),
        ([0, 1, 0], 10 + 50 + 10 + (60 + 10) + (70 + 20), [200, 1207]),
        ([1, 1, 1], 5 + 50 + 5 + (70 + 20), [100, 1207]),
        ([0, 1, 1], 10 + 50 + 5 + (60 + 10) + (70 + 20) + 60, [200, 1207]),
    ],
)
def test_known_figures(device: list[int], cost: int, held: list[int]) -> None:
    problem, assignment = chain(), Assignment(np.array(device))
    assert total_cost_ns(problem, assignment) == cost
    assert peaks(problem, assignment).tolist() == held


def test_free_tensor_is_held_wherever_it_is_used_and_costs_nothing_to_copy() -> None:
    problem, assignment = chain(tensors_free=np.array([True, False])), Assignment(np.array([0, 1, 1]))
    assert total_cost_ns(problem, assignment) == 10 + 50 + 5 + (70 + 20) + 60
    assert peaks(problem, assignment).tolist() == [200, 1207]


@settings(deadline=None, max_examples=200)
@given(problems(), st.integers(0, 2**32 - 1))
def test_validator_agrees(problem: PlacementProblem, seed: int) -> None:
    assignment = random_assignment(problem, seed)
    cost, held = total_cost_ns(problem, assignment), peaks(problem, assignment)
    report = validate(problem, assignment, cost)
    assert report.total_cost_ns == cost
    assert report.peak_bytes == tuple(held.tolist())
    limits = problem.devices.memory_limit_bytes
    assert report.ok == bool(((limits < 0) | (held <= limits)).all())
    hops = (
        problem if not len(problem.ops.control_src) else changed(problem, ops_control_src=limits[:0], ops_control_dst=limits[:0])
    )
    work = problem.unit_time_ns[np.arange(problem.num_units), assignment.device].sum()
    copies = transfers(problem, assignment)
    assert total_cost_ns(hops, assignment) == work + copies.cost_ns.sum()
    assert (copies.src != copies.dst).all()
    pairs = list(zip(copies.tensor.tolist(), copies.dst.tolist(), strict=True))
    assert pairs == sorted(set(pairs))


def test_violations_are_told_in_words() -> None:
    problem = chain(
        devices_memory_limit_bytes=np.array([-1, 1000]), units_allowed=np.array([[True, False], [True, True], [True, True]])
    )
    told = "; ".join(validate(problem, Assignment(np.array([1, 1, 1])), 5).violations)
    assert "in is on GPU:0" in told
    assert "may be on CPU:0" in told
    assert "GPU:0 holds 1207 bytes at its peak, 207 over its limit of 1000" in told
    assert "said to be 5 ns" in told
    assert "2 units are assigned" in validate(problem, Assignment(np.zeros(2, np.int64))).violations[0]
    assert "device number 7" in validate(problem, Assignment(np.array([0, 7, 0]))).violations[0]


def test_problem_whose_arrays_do_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ops\.count has shape"):
        chain(ops_count=np.ones(2))
    with pytest.raises(ValueError, match="out feeds in"):
        chain(ops_control_src=np.array([2]), ops_control_dst=np.array([0]))
    with pytest.raises(ValueError, match="allowed on no device"):
        chain(units_allowed=np.zeros((3, 2), np.bool_))
    with pytest.raises(ValueError, match="unit 1 has no ops"):
        chain(ops_unit=np.array([0, 2, 2]))
