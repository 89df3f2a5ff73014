"""The execution model: cases worked out by hand, and what must hold in every schedule."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.problem import moving_schedule, replay
from placer.problem.arrays import Ints
from placer.problem.model_tables import SMALL, WIDE
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator, simulate
from tests.helpers.changed import changed
from tests.helpers.random_problems import problems, random_assignment, uneven
from tests.helpers.slow_simulation import described_step


def ops_of(
    edges: list[tuple[int, int]], cpu: int, dispatch: int, compute: int, *, nbytes: int = 0, count: float = 1, **changes: Any
) -> PlacementProblem:
    """Equal ops joined by tensors, on a CPU and a GPU 100 ns and 1 ns/byte apart."""
    ops = 1 + max((max(edge) for edge in edges), default=0)
    base = PlacementProblem(
        devices=Devices(
            names=("CPU:0", "GPU:0"),
            kinds=("CPU", "GPU"),
            asynchronous=np.array([False, True]),
            call_overhead_ns=7,
        ),
        ops=Ops(
            names=tuple(f"op{i}" for i in range(ops)),
            unit=np.arange(ops),
            time_ns=np.tile([cpu, max(dispatch, compute)], (ops, 1)),
            dispatch_ns=np.tile([0, dispatch], (ops, 1)),
            compute_ns=np.tile([cpu, compute], (ops, 1)),
            count=np.full(ops, float(count)),
        ),
        units=Units(
            allowed=np.ones((ops, 2), np.bool_),
        ),
        tensors=Tensors(
            op=np.array([a for a, _ in edges], np.int64),
            nbytes=np.full(len(edges), nbytes),
            on_host=np.zeros((len(edges), 2), np.bool_),
        ),
        consumers=Consumers(
            start=np.arange(len(edges) + 1),
            op=np.array([b for _, b in edges], np.int64),
            on_host=np.zeros((len(edges), 2), np.bool_),
        ),
        links=Links(
            latency_ns=100 * (1 - np.eye(4, dtype=np.int64)),
            ns_per_byte=1.0 - np.eye(4),
        ),
    )
    return changed(base, **changes)


def step(problem: PlacementProblem, device: list[int]) -> int:
    return simulate(problem, Assignment(np.array(device))).step_ns


LINE = [(i, i + 1) for i in range(9)]


@pytest.mark.parametrize(
    ("dispatch", "compute", "expected"),
    [(5, 1, 10 * 5 + 1), (5, 50, 5 + 10 * 50), (0, 50, 10 * 50)],
    ids=["dispatch decides", "the stream decides", "nothing to dispatch"],
)
def test_stream_overlaps_with_dispatch(dispatch: int, compute: int, expected: int) -> None:
    assert step(ops_of(LINE, 20, dispatch, compute), [1] * 10) == expected + 7


def test_what_follows_an_op_that_is_awaited_waits_for_its_end() -> None:
    """The next op of a chain is issued once it is done; one that does not need it is issued meanwhile."""
    awaited = np.array([True, False, False])
    assert step(ops_of([(0, 1), (1, 2)], 20, 5, 100, ops_awaited=awaited), [1] * 3) == (5 + 100) + 5 + 100 + 100 + 7
    assert step(ops_of([(0, 1)], 20, 5, 100, ops_awaited=awaited[:2]), [0, 1]) == 20 + 100 + 5 + 100 + 7
    apart = ops_of([(1, 2)], 20, 5, 100, ops_awaited=awaited)
    assert step(apart, [1] * 3) == 5 + 3 * 100 + 7


def test_the_ops_of_a_loop_overlap_on_a_stream() -> None:
    problem = ops_of([(0, 1)], 20, 500, 100, count=100)
    assert step(problem, [1, 1]) == 2 * 500 + 100 + 7


def test_crossing_waits_for_the_stream_then_the_link() -> None:
    problem = ops_of([(0, 1), (1, 2)], 20, 5, 50, nbytes=30)
    there, work, back = 20 + 100 + 30, 5 + 50, 100 + 30
    assert step(problem, [0, 1, 0]) == there + work + back + 20 + 7


def test_a_control_edge_out_of_a_gpu_waits_for_the_stream_and_for_a_copy() -> None:
    """For all that the stream was given by then, also by an op that was ready at the same time."""
    told = ops_of([(0, 2)], 20, 5, 50, nbytes=30, ops_control_src=np.array([0]), ops_control_dst=np.array([1]))
    assert step(told, [1, 0, 1]) == (5 + 2 * 50) + 100 + 20 + 7
    assert step(told, [1, 1, 1]) == 5 + 3 * 50 + 7
    often = changed(told, ops_count=np.array([3.0, 1.0, 3.0]))
    assert step(often, [1, 0, 1]) == (5 + 2 * 50) + 100 + 20 + 7  # what waits runs once, so it is told once
    on_host = np.array([[False, False], [False, True]])
    shape = ops_of([(0, 1), (1, 3)], 2000, 5, 1000, tensors_on_host=on_host, consumers_on_host=on_host)
    at_last = {"ops_control_src": np.array([1]), "ops_control_dst": np.array([2])}
    told = changed(shape, ops_time_ns=np.array([[0, 1000], [0, 5], [2000, 0], [0, 1000]]), **at_last)
    assert step(told, [1, 1, 0, 1]) == (5 + 2 * 1000) + 100 + 2000 + 7  # told by an op that is not in the stream itself


def test_who_waits_for_a_call_takes_longer_to_wake_the_longer_that_is() -> None:
    ops = ops_of([(0, 1)], 250_000, 0, 0, devices_waiting_ns=1_000)
    assert step(ops, [0, 0]) == 500_000 + 500 + 7
    assert step(changed(ops, ops_time_ns=10 * ops.ops.time_ns), [0, 0]) == 5_000_000 + 1_000 + 7


def test_copies_share_bandwidth_but_not_latency() -> None:
    problem = ops_of([(0, 2), (1, 2)], 0, 0, 0, nbytes=1000)
    assert step(problem, [0, 0, 1]) == 1000 + 1000 + 100 + 7


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_copies_queue_in_the_order_in_which_they_are_ready(order: tuple[int, int]) -> None:
    """An op of 1 ms and one of 5 us send to ops of 1 us and 900 us: the second copy leaves first, whatever the numbers."""
    long, short = order
    times = {"ops_time_ns": np.zeros((4, 2), np.int64)}
    times["ops_time_ns"][[long, short], 0] = 1_000_000, 5_000
    times["ops_time_ns"][[2 + long, 2 + short], 1] = 1_000, 900_000
    apart = ops_of(
        [(0, 2), (1, 3)], 0, 0, 0, nbytes=900, devices_threads=np.array([4, 1]), ops_compute_ns=times["ops_time_ns"], **times
    )
    assert step(apart, [0, 0, 1, 1]) == 1_000_000 + 1_000 + 1_000 + 7
    assert simulate(apart, Assignment(np.array([0, 0, 1, 1]))).copy_start_ns[[long, short]].tolist() == [1_000_000, 5_000]


def test_many_small_copies_queue_for_their_interval() -> None:
    """The last of three leaves two intervals after the first; the next op of a GPU that sends waits for one."""
    out = [(0, 3), (1, 4), (2, 5)]
    every = np.full((4, 4), 40)
    spread = ops_of(out, 0, 0, 1, links_interval_ns=every)
    assert step(spread, [1, 1, 1, 0, 0, 0]) == (2 * 40 + 1) + 2 * 40 + 100 + 7
    loaded = ops_of([(0, 1), (0, 2)], 0, 5, 1, links_interval_ns=10 * every)
    assert step(loaded, [1, 0, 1]) == (5 + 400 + 5 + 1) + 100 + 7


def test_what_a_cpu_sends_to_a_gpu_takes_its_thread_and_the_one_that_feeds_the_gpu() -> None:
    every = np.full((4, 4), 400)
    onward = ops_of([(0, 1), (0, 2)], 1000, 0, 1, links_interval_ns=every)
    assert step(onward, [0, 0, 1]) == 1000 + 400 + 1000 + 7
    on_two = changed(onward, devices_threads=np.array([2, 1]))  # small ops wait for each other all the same
    assert step(on_two, [0, 0, 1]) == 1000 + 400 + 1000 + 7
    larger = ops_of([(0, 1), (0, 2)], 5000, 0, 1, links_interval_ns=every)
    assert step(larger, [0, 0, 1]) == 5000 + 400 + 5000 + 7
    in_turn = ops_of([(0, 2), (1, 3)], 5000, 0, 1, links_interval_ns=every, devices_threads=np.array([2, 1]))
    assert step(in_turn, [0, 0, 1, 1]) == 5000 + 2 * 400 + 2 * 1 + 7
    beside = ops_of([(0, 2), (1, 3)], 0, 5, 1, links_interval_ns=every)
    assert step(beside, [0, 1, 1, 1]) == 400 + 3 * 5 + 1 + 7


def test_a_tensor_crosses_once_for_all_who_wait() -> None:
    problem = ops_of([(0, 2)], 0, 0, 0, nbytes=1000)
    both = changed(
        problem, consumers_start=np.array([0, 2]), consumers_op=np.array([1, 2]), consumers_on_host=np.zeros((2, 2), np.bool_)
    )
    result = simulate(both, Assignment(np.array([0, 1, 1])))
    assert len(result.copy_tensor) == 1
    assert result.step_ns == 1000 + 100 + 7


def test_cpu_threads_run_ops_side_by_side_unless_they_are_small_or_large() -> None:
    apart: list[tuple[int, int]] = [(0, 3), (1, 3), (2, 3)]
    threads = np.array([3, 1])
    assert step(ops_of(apart, 5000, 5, 5), [0] * 4) == 4 * 5000 + 7
    assert step(ops_of(apart, 5000, 5, 5, devices_threads=threads), [0] * 4) == 2 * 5000 + 7
    assert step(ops_of(apart, 1000, 5, 5, devices_threads=threads), [0] * 4) == 4 * 1000 + 7
    assert step(ops_of(apart, 100_000, 5, 5, devices_threads=threads), [0] * 4) == 4 * 100_000 + 7
    serial = np.ones(4, np.bool_)
    assert step(ops_of(apart, 100_000, 5, 5, devices_threads=threads, ops_serial=serial), [0] * 4) == 2 * 100_000 + 7


def test_threads_that_have_nothing_to_do_are_woken() -> None:
    """Two ops on all cores: one right after the other, or with an op of a GPU in between."""
    wide, wake = 100_000, 3000
    waking = {"devices_wake_ns": np.array([wake, 0]), "links_latency_ns": np.zeros((4, 4), np.int64)}
    assert step(ops_of([(0, 1)], wide, 5, 5, **waking), [0, 0]) == wake + 2 * wide + 7
    assert step(ops_of([(0, 1), (1, 2)], wide, 0, 1, **waking), [0, 1, 0]) == 2 * wake + 2 * wide + 1 + 7
    often = ops_of([(0, 1), (1, 2)], 10 * wide, 0, 10, count=10, **waking)
    assert step(often, [0, 1, 0]) == 10 * (2 * wake + 2 * wide + 1) + 7
    assert step(ops_of([(0, 1)], 1000, 5, 5, **waking), [0, 0]) == 2 * 1000 + 7


def test_a_copy_into_a_gpu_waits_for_its_stream() -> None:
    problem = ops_of([(1, 2)], 20, 5, 500)
    assert step(problem, [1, 0, 1]) == 5 + 500 + 100 + 5 + 500 + 7


def test_shapes_on_a_gpu_stay_with_the_host() -> None:
    """A host-memory output does not wait for the stream, and the stream does not wait for it."""
    on_host = np.array([[False, False], [False, True]])
    problem = ops_of([(0, 1), (1, 2)], 20, 5, 1000, tensors_on_host=on_host, consumers_on_host=on_host)
    host_only = changed(problem, ops_time_ns=np.array([[20, 1000], [20, 5], [20, 1000]]))
    assert step(host_only, [1, 1, 1]) == 5 + 1000 + 1000 + 7


def test_a_call_takes_what_its_devices_add_and_more_for_each_further_one() -> None:
    problem = ops_of([(0, 1)], 20, 5, 1, devices_call_ns=np.array([10, 40]), devices_split_ns=300, tensors_free=np.array([True]))
    assert step(problem, [0, 0]) == 20 + 20 + 7 + 10
    assert step(problem, [1, 1]) == 5 + 5 + 1 + 7 + 40
    assert step(problem, [0, 1]) == 20 + 5 + 1 + 7 + 40 + 300
    idle = changed(problem, ops_time_ns=np.array([[0, 0], [20, 5]]), ops_dispatch_ns=np.array([[0, 0], [0, 5]]))
    assert step(idle, [0, 1]) == step(idle, [1, 1])  # a constant is where its consumers are


def at_once(start: Ints, end: Ints) -> int:
    """Of how many spans the most lie over one moment."""
    events = sorted([*((at, 1) for at in start.tolist()), *((at, -1) for at in end.tolist())])
    return max(itertools.accumulate((change for _, change in events), initial=0))


@settings(deadline=None, max_examples=200)
@given(problems(), st.integers(0, 2**32 - 1))
def test_every_schedule_holds(problem: PlacementProblem, seed: int) -> None:
    assignment = random_assignment(problem, seed)
    result = simulate(problem, assignment)
    device = assignment.device[problem.ops.unit]
    end = result.end_ns
    call_ns = Simulator(problem).call_ns(assignment)
    assert (
        result.step_ns == Simulator(problem).whole_ns(max(end.tolist()), call_ns) >= call_ns >= problem.devices.call_overhead_ns
    )
    threads = problem.devices.threads
    runner = problem.devices.runner
    busy = np.bincount(runner, weights=result.busy_ns, minlength=problem.num_devices)
    assert ((result.step_ns - problem.devices.call_overhead_ns) * threads >= busy).all()
    spent = end - result.start_ns
    for d in range(problem.num_devices):
        running = (runner[device] == d) & ~result.streamed & (spent > 0)
        assert at_once(result.start_ns[running], end[running]) <= threads[d]
        for alone in (SMALL, WIDE):
            kinds = Simulator(problem).tables.sharing[np.arange(problem.num_ops), device]
            some = running & (kinds == alone) & ~problem.devices.asynchronous[d]
            assert at_once(result.start_ns[some], end[some]) <= 1
        in_stream = (device == d) & result.streamed & (spent > 0)
        assert at_once(result.start_ns[in_stream], end[in_stream]) <= 1
        assert (spent[in_stream] >= problem.ops.compute_ns[in_stream, d]).all()
        on_a_thread = 0 if problem.devices.asynchronous[d] else problem.ops.time_ns[(device == d) & ~result.streamed, d].sum()
        assert result.busy_ns[d] == problem.ops.compute_ns[(device == d) & result.streamed, d].sum() + on_a_thread
    count = np.append(problem.tensors.count, 0)[result.copy_tensor]
    count[result.copy_tensor < 0] = problem.ops.control_count[result.copy_op[result.copy_tensor < 0]]
    apart = np.rint(count * problem.links.interval_ns[result.copy_src, result.copy_dst])
    for link in set(zip(result.copy_src.tolist(), result.copy_dst.tolist(), strict=True)):
        on_link = np.flatnonzero((result.copy_src == link[0]) & (result.copy_dst == link[1]))
        moved = result.copy_end_ns - result.copy_start_ns - np.rint(count * problem.links.latency_ns[link])
        occupied = np.maximum(moved, apart)
        on_link = on_link[np.lexsort((occupied[on_link], result.copy_start_ns[on_link]))]
        assert (np.diff(result.copy_start_ns[on_link]) >= occupied[on_link[:-1]]).all()
    arrival = {
        (int(t), int(q)): int(at)
        for t, q, at in zip(result.copy_tensor, result.copy_dst, result.copy_end_ns, strict=True)
        if t >= 0
    }
    for c, t in enumerate(problem.consumers.tensor):
        src, dst = problem.tensors.op[t], problem.consumers.op[c]
        here = problem.tensor_place[t, device[src]]
        there = problem.consumer_place[c, device[dst]]
        if here == there or problem.tensors.free[t]:
            assert device[src] != device[dst] or problem.devices.asynchronous[device[src]] or result.start_ns[dst] >= end[src]
        else:
            assert end[src] <= arrival[int(t), int(there)] <= result.start_ns[dst]
    again = simulate(problem, assignment)
    assert again.step_ns == result.step_ns
    assert (again.start_ns == result.start_ns).all()


@settings(deadline=None, max_examples=300)
@given(problems() | uneven(), st.integers(0, 2**32 - 1))
def test_a_step_is_what_its_description_says(problem: PlacementProblem, seed: int) -> None:
    assignment = random_assignment(problem, seed)
    found, told = simulate(problem, assignment), described_step(problem, assignment)
    assert (found.step_ns, found.start_ns.tolist(), found.end_ns.tolist()) == told


def test_a_replay_waits_for_what_a_move_sends() -> None:
    """What was there at once comes late, when nothing else is as it was."""
    slow = {"links_latency_ns": 10_000 * (1 - np.eye(4, dtype=np.int64))}
    late = ops_of([(0, 4), (1, 2), (2, 3), (3, 4)], 1_000, 0, 0, **slow)
    late = changed(late, ops_time_ns=late.ops.time_ns * (np.arange(5) > 0)[:, None])
    after = [1, 0, 0, 0, 0]
    kept = replay.Replay(Simulator(late), Assignment(np.zeros(5, np.int64)))
    assert kept.moved_ns(Assignment(np.array(after))) == step(late, after) != kept.step_ns


@settings(deadline=None, max_examples=300)
@given(problems() | uneven(), st.integers(0, 2**32 - 1), st.integers(1, 48))
def test_a_replay_prices_every_move_as_a_whole_step_does(problem: PlacementProblem, seed: int, marks: int) -> None:
    rng = np.random.default_rng(seed)
    assignment = random_assignment(problem, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "MAX_CHECKPOINTS", marks)
        kept, moving = replay.Replay(Simulator(problem), assignment), Simulator(problem)
    assert kept.step_ns == moving.step_ns(assignment)
    for share in rng.permutation([0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.5, 0.9]):  # of the units beside one
        other = random_assignment(problem, int(rng.integers(2**32)))
        moves = rng.random(problem.num_units) < share
        moves[rng.integers(problem.num_units)] = True
        moved = Assignment(np.where(moves, other.device, assignment.device))
        assert kept.moved_ns(moved) == moving.step_ns(moved) == simulate(problem, moved).step_ns


@settings(deadline=None, max_examples=150)
@given(problems() | uneven(), st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_a_moving_schedule_prices_every_move_as_a_whole_step_does(problem: PlacementProblem, seed: int, stride: int) -> None:
    """Kept or not, with a limit or without. For a step over its limit it is a lower bound that is over the limit, too."""
    rng, simulator = np.random.default_rng(seed), Simulator(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving_schedule, "MIN_STRIDE", stride)
        schedule = moving_schedule.MovingSchedule(simulator, random_assignment(problem, seed))
    for limited, kept in rng.random((12, 2)) < 0.5:
        units = rng.choice(problem.num_units, size=int(rng.integers(1, 3)))
        devices = random_assignment(problem, int(rng.integers(2**32))).device[units]
        moved = schedule.device.copy()
        moved[units] = devices
        step_ns, limit_ns = simulator.step_ns(Assignment(moved)), schedule.step_ns * float(rng.uniform(0.7, 1.3))
        found_ns = schedule.move(units.tolist(), devices.tolist(), limit_ns if limited else None)
        over = limited and step_ns > limit_ns
        assert limit_ns < found_ns <= step_ns if over else found_ns == step_ns
        if kept and not over:
            schedule.keep()
            assert (schedule.step_ns, schedule.device.tolist()) == (step_ns, moved.tolist())
