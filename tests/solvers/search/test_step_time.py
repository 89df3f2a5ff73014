"""The step time search and its bound."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placer
from cost_models.auto import shipped_model
from cost_models.machine_files import load_machine
from placer.common.clock import counted
from placer.graph.shipped import shipped_graph
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator, simulate
from placer.problem.validate import validate
from placer.research.instances.families import SHAPES, synthetic
from placer.solvers.base import MIN_GAIN, Solution, Status, StopReason
from placer.solvers.bounds.destructive_bound import destructive_bound_ns
from placer.solvers.bounds.limited_load import limited_load_ns
from placer.solvers.bounds.step_bound import step_bound_ns
from placer.solvers.bounds.step_program import step_program_ns
from placer.solvers.registry import solver, solvers
from placer.solvers.run import run
from placer.solvers.search.step_time import StepTime
from tests.helpers.changed import changed
from tests.helpers.random_problems import alike, assignments, interchangeable, problems, uneven
from tests.solvers.test_optima import with_another


@settings(deadline=None, max_examples=150)
@given(problems() | uneven(most=6))
def test_no_step_goes_under_the_bound(problem: PlacementProblem) -> None:
    simulator = Simulator(problem.without_memory_limits())
    steps_ns = [simulator.step_ns(assignment) for assignment in assignments(problem)]
    assert max(step_bound_ns(simulator), step_program_ns(simulator, min(steps_ns))) <= min(steps_ns)
    assert step_program_ns(simulator, 2 * max(steps_ns)) <= min(steps_ns)


@settings(deadline=None, max_examples=40)
@given(problems() | uneven(most=6) | alike() | interchangeable(), st.integers(-1, 1))
def test_no_step_that_fits_is_said_to_be_impossible(problem: PlacementProblem, longer_ns: int) -> None:
    """With the shortest step, one ns less and one more as the limit."""
    simulator = Simulator(problem)
    steps_ns = [simulator.step_ns(assignment) for assignment in assignments(problem) if validate(problem, assignment).ok]
    if steps_ns:
        limit_ns = min(steps_ns) + longer_ns
        assert destructive_bound_ns(simulator, limit_ns // 2, limit_ns, seconds=10.0) <= min(steps_ns)


@settings(deadline=None, max_examples=40)
@given(problems(limits=True) | alike(), st.sampled_from([0.01, 1.0]))
def test_no_step_that_fits_goes_under_the_bound_that_knows_the_limits(problem: PlacementProblem, seconds: float) -> None:
    simulator = Simulator(problem)
    bound = max(limited_load_ns(simulator, seconds=seconds), step_program_ns(simulator, 10**7))
    for assignment in assignments(problem):
        if validate(problem, assignment).ok:
            assert simulator.step_ns(assignment) >= bound


@settings(deadline=None, max_examples=40)
@given(problems(devices=2))
def test_with_time_for_all_assignments_the_shortest_step_is_proved(problem: PlacementProblem) -> None:
    fitting = [a for a in assignments(problem) if validate(problem, a).ok]
    solution = StepTime().solve(problem, "step_time", time_limit_s=100.0)
    if solution.assignment is not None:
        assert solution.status is Status.OPTIMAL
        assert solution.objective_ns == min(map(Simulator(problem).step_ns, fitting))


@pytest.mark.parametrize(("gpus", "near"), [(1, 1.25), (2, 1.75)])
def test_what_has_no_room_on_the_gpus_is_work_for_the_cpu(gpus: int, near: float) -> None:
    """20 ops that use the whole CPU for longer than they take on a GPU; all GPUs have room for a quarter of what they make."""
    problem = synthetic("chain", ops=20, gpus=gpus, speedup=30, cpu_only=0.0, on_host=0.0, memory=0.25 / gpus)
    slow = np.where(problem.devices.asynchronous, 2_500, 400_000)
    compute = np.where(problem.devices.asynchronous, slow, slow - 500)
    problem = changed(problem, ops_time_ns=np.tile(slow, (20, 1)), ops_compute_ns=np.tile(compute, (20, 1)))
    free = step_bound_ns(Simulator(problem))
    bound = limited_load_ns(Simulator(problem), seconds=60.0)
    found = StepTime().solve(problem, "step_time")
    assert free < bound <= found.objective_ns < near * bound


@settings(deadline=None, max_examples=100)
@given(problems(), st.integers(0, 3))
def test_never_worse_than_the_simple_placements(problem: PlacementProblem, seed: int) -> None:
    solution = StepTime().solve(problem, "step_time", seed=seed)
    if solution.assignment is None:
        assert solution.status is Status.UNKNOWN
        return
    assert solution.objective_ns == simulate(problem, solution.assignment).step_ns
    assert solution.lower_bound_ns <= solution.objective_ns
    assert validate(problem, solution.assignment).ok
    for name in ("tf_default", "all_cpu", "all_gpu", "greedy"):
        simple = solver(name).solve(problem, "step_time")
        if simple.status is Status.FEASIBLE:
            assert solution.objective_ns <= simple.objective_ns
    again = StepTime().solve(problem, "step_time", seed=seed)
    assert again.assignment is not None
    assert (again.assignment.device == solution.assignment.device).all()


@settings(deadline=None, max_examples=40)
@given(problems())
def test_auto_leaves_the_default_only_for_a_clear_gain(problem: PlacementProblem) -> None:
    default = solver("tf_default").solve(problem, "step_time")
    best = StepTime().solve(problem, "step_time")
    chosen = solver("auto").solve(problem, "step_time")
    if best.assignment is None or chosen.assignment is None or default.assignment is None:
        return
    assert validate(problem, chosen.assignment).ok
    assert chosen.objective_ns == simulate(problem, chosen.assignment).step_ns
    assert chosen.lower_bound_ns <= chosen.objective_ns
    clear = best.objective_ns < (1 - MIN_GAIN) * default.objective_ns
    if default.status is Status.UNKNOWN or clear or best.objective_ns == default.objective_ns:  # it does not fit, or is no better
        assert chosen.objective_ns == best.objective_ns
    else:
        assert (chosen.assignment.device == default.assignment.device).all()


@pytest.mark.parametrize("ops", [20, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_unit_and_no_two_neighbours_are_better_elsewhere(shape: str, ops: int) -> None:
    problem = synthetic(shape, ops=ops)
    solution = StepTime().solve(problem, "step_time")
    assert solution.stop_reason in {StopReason.LOCAL_OPTIMUM, StopReason.PROVED_OPTIMAL}
    assert solution.assignment is not None
    maker, user = problem.ops.unit[problem.tensors.op[problem.consumers.tensor]], problem.ops.unit[problem.consumers.op]
    sets = [*np.arange(problem.num_units)[:, None], *np.column_stack([maker, user])]
    for units, device in itertools.product(sets, range(problem.num_devices)):
        moved = solution.assignment.device.copy()
        moved[units] = device
        if problem.units.allowed[units, device].all():
            assert Simulator(problem).step_ns(Assignment(moved)) >= solution.objective_ns


@pytest.mark.parametrize("memory", [0.0, 0.5])
@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_shortest_step_of_eleven_units_is_proved_and_no_solver_is_better(shape: str, gpus: int, memory: float) -> None:
    problem = synthetic(shape, ops=12, gpus=gpus, memory=memory)
    ours = StepTime().solve(problem, "step_time")
    assert ours.status is Status.OPTIMAL
    for name in set(solvers()) - {"auto", "step_time"}:
        if not solver(name).unsupported(problem, "step_time"):
            other = solver(name).solve(problem, "step_time", time_limit_s=0.05)
            assert other.status in {Status.UNKNOWN, Status.INFEASIBLE} or ours.objective_ns <= other.objective_ns


@pytest.mark.parametrize("shape", SHAPES)
def test_few_choices_among_many_ops_are_decided_exactly(shape: str) -> None:
    for cpu_only in (0.96, 1.0):
        problem = synthetic(shape, ops=200, cpu_only=cpu_only, on_host=0.0)
        solution = StepTime().solve(problem, "step_time")
        assert solution.status is Status.OPTIMAL
        assert solution.objective_ns == solution.lower_bound_ns


@pytest.mark.parametrize("memory", [0.0, 0.5])
@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_registered_search_is_better_at_the_same_effort(shape: str, gpus: int, memory: float) -> None:
    problem = synthetic(shape, ops=13, gpus=gpus, memory=memory)
    ours = run(StepTime(), problem, "step_time", effort=12_000)
    assert isinstance(ours, Solution)
    for name in ("annealing", "genetic"):
        other = run(solver(name), problem, "step_time", effort=12_000)
        assert isinstance(other, Solution)
        assert other.status is Status.UNKNOWN or ours.objective_ns <= other.objective_ns


@settings(deadline=None, max_examples=6)
@given(problems(devices=2))
def test_another_device_lengthens_no_step(problem: PlacementProblem) -> None:
    before, after = (StepTime().solve(p, "step_time") for p in (problem, with_another(problem)))
    if before.assignment is not None:
        assert after.assignment is not None
        assert after.objective_ns <= before.objective_ns
        assert after.lower_bound_ns <= after.objective_ns
        assert (after.status is Status.OPTIMAL) == (after.objective_ns == after.lower_bound_ns)


@settings(deadline=None, max_examples=20)
@given(problems(devices=2, limits=True))
def test_more_room_lengthens_no_shortest_step(problem: PlacementProblem) -> None:
    less, more = (StepTime().solve(p, "step_time") for p in (problem, problem.without_memory_limits()))
    assert more.status is Status.OPTIMAL
    assert less.assignment is None or more.objective_ns <= less.objective_ns


@settings(deadline=None, max_examples=6)
@given(st.sampled_from(sorted(SHAPES)), st.integers(1, 3), st.integers(0, 99), st.sampled_from([None, 0.02]))
def test_a_plan_for_less_room_is_a_start_for_one_that_is_no_longer(
    shape: str, gpus: int, seed: int, limit_s: float | None
) -> None:
    less, more = (synthetic(shape, ops=30, gpus=gpus, memory=memory, seed=seed) for memory in (0.5, 0.8))
    with counted():
        before = StepTime().solve(less, "step_time", time_limit_s=limit_s)
        if before.status is Status.UNKNOWN:
            return
        assert before.assignment is not None
        assert validate(more, before.assignment).ok
        assert Simulator(more).step_ns(before.assignment) == before.objective_ns
        after = StepTime(start=before.assignment).solve(more, "step_time", time_limit_s=limit_s)
        assert after.objective_ns <= before.objective_ns


def test_a_second_gpu_leaves_a_loop_on_the_cpu() -> None:
    """Its work there passes beside the GPU's, which with several GPUs is not what counts."""
    graph, two = shipped_graph("lstm_then_wide"), load_machine("2xh100")
    kept = [device for device in two.devices if device.name != "GPU:1"]
    links = tuple(link for link in two.links if "GPU:1" not in (link.src, link.dst))
    reserved = {name: nbytes for name, nbytes in two.reserve_bytes.items() if name != "GPU:1"}
    one = replace(two, devices=tuple(kept), links=links, reserve_bytes=reserved)
    for effort in (None, 3_333):
        given = {"cost_model": shipped_model(), "effort": effort}
        before, after = (placer.solve(graph, machine, **given) for machine in (one, two))
        assert after.step_time_ns <= before.step_time_ns


@settings(deadline=None, max_examples=60)
@given(problems(limits=False))
def test_small_problems_are_nearly_solved(problem: PlacementProblem) -> None:
    """Local search may miss the best of a random problem, never by much more than a tenth here."""
    best = min(simulate(problem, assignment).step_ns for assignment in assignments(problem))
    solution = StepTime().solve(problem, "step_time")
    assert solution.objective_ns <= 1.5 * best
    assert np.isfinite(solution.gap)
