"""The cut against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.problem.memory import usage
from placer.problem.price import total_cost_ns
from placer.problem.problem import PlacementProblem
from placer.solvers.base import Status
from placer.solvers.exact.min_cut import MinCut
from placer.solvers.primitives.graph_cut import expansion, minimum_cut
from tests.helpers.changed import changed
from tests.helpers.random_problems import assignments, problems, random_assignment


def cheapest(problem: PlacementProblem) -> int:
    return min(total_cost_ns(problem, assignment) for assignment in assignments(problem))


@settings(deadline=None, max_examples=300)
@given(problems(devices=2, limits=False))
def test_bound_never_exceeds_the_optimum_and_optimal_means_it(problem: PlacementProblem) -> None:
    solution = MinCut().solve(problem, "total_cost")
    best = cheapest(problem)
    assert solution.lower_bound_ns <= best <= solution.objective_ns
    assert (solution.status is Status.OPTIMAL) == (solution.lower_bound_ns == solution.objective_ns)


@settings(deadline=None, max_examples=200)
@given(problems(devices=2, limits=False))
def test_exact_where_copies_within_a_device_cost_no_more_than_from_the_other(problem: PlacementProblem) -> None:
    """Then no crossing is beyond a cut, with several users or not, in host memory or not."""
    latency, per_byte = problem.links.latency_ns.copy(), problem.links.ns_per_byte.copy()
    for own, view, other in ((1, 3, [0, 2]), (3, 1, [0, 2]), (0, 2, [1, 3]), (2, 0, [1, 3])):
        latency[own, view] = min(latency[q, view] for q in other)
        per_byte[own, view] = min(per_byte[q, view] for q in other)
    shortcut = changed(problem, links_latency_ns=latency, links_ns_per_byte=per_byte)
    solution = MinCut().solve(shortcut, "total_cost")
    assert solution.status is Status.OPTIMAL
    assert solution.objective_ns == cheapest(shortcut)


@settings(deadline=None, max_examples=150)
@given(problems(limits=False), st.integers(0, 2**32 - 1))
def test_no_moves_to_a_device_cost_less_than_the_bound_with_memory_prices(problem: PlacementProblem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory_price = rng.random((problem.num_devices, problem.num_ops)) * rng.integers(0, 2, (problem.num_devices, problem.num_ops))
    stay, to = random_assignment(problem, seed), int(rng.integers(problem.num_devices))
    cut = expansion(problem, stay, to, memory_price=memory_price)
    assert ((cut.assignment.device == stay.device) | (cut.assignment.device == to)).all()
    sums = [
        total_cost_ns(problem, a) + float((memory_price * usage(problem, a)).sum())
        for a in assignments(problem)
        if ((a.device == stay.device) | (a.device == to)).all()
    ]
    assert cut.bound_ns <= min(sums) + 1e-6


@settings(deadline=None, max_examples=50)
@given(problems(devices=2, limits=False))
def test_scaling_the_costs_scales_the_optimum(problem: PlacementProblem) -> None:
    whole = changed(problem, links_ns_per_byte=np.rint(problem.links.ns_per_byte), tensors_count=np.ceil(problem.tensors.count))
    whole = changed(whole, ops_count=np.ceil(whole.ops.count))
    scaled = changed(
        whole,
        ops_time_ns=7 * whole.ops.time_ns,
        links_latency_ns=7 * whole.links.latency_ns,
        links_ns_per_byte=7 * whole.links.ns_per_byte,
    )
    assert minimum_cut(scaled).bound_ns == 7 * minimum_cut(whole).bound_ns


def test_unsupported_says_what_does_not_fit() -> None:
    from tests.problem.test_price import chain

    assert MinCut().unsupported(chain(), "total_cost") == ""
    assert "step_time" in MinCut().unsupported(chain(), "step_time")
    cramped = chain(devices_memory_limit_bytes=np.array([-1, 1100]))
    assert "GPU:0 would hold 1.18 KiB, 107 B over its limit of 1.07 KiB" in MinCut().unsupported(cramped, "total_cost")
