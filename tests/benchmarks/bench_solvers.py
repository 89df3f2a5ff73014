"""Measures pricing, simulating and each solver on training steps of stacked encoder layers of growing size.

Run: python -m tests.benchmarks.bench_solvers [ops ...]      (default: 3000 12000 100000)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from placer.problem.memory import peaks
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.replay import Replay
from placer.problem.schedule import Simulator
from placer.solvers.base import Objective
from placer.solvers.bounds.step_bound import step_bound_ns
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.hill_climbing import moves
from placer.solvers.registry import solver
from tests.helpers.changed import changed

MOVES = 20
LAYER = 40
"""Forward ops of a layer. It has as many backward ops, and three update ops for each of four weights."""


def training_step(ops: int, seed: int = 0, gpus: int = 1) -> PlacementProblem:
    """About `ops` ops: forward, backward and update of encoder layers of random small and large sizes, on a CPU and GPUs."""
    rng = np.random.default_rng(seed)
    layers = max(1, (ops - 2) // (2 * LAYER + 16))
    edges: list[tuple[int, int]] = []
    shapes: list[tuple[int, int]] = []  # edges in host memory
    kind: list[str] = ["data", "scalar"]
    forward: list[int] = [0]

    def add(what: str, *inputs: int) -> int:
        kind.append(what)
        edges.extend((i, len(kind) - 1) for i in inputs)
        return len(kind) - 1

    weights = []
    for _ in range(layers):
        start = forward[-1]
        for k in range(LAYER):
            inputs = [forward[-1]]
            if k % 10 == 0:
                weights.append((len(forward), add("read")))
                inputs.append(weights[-1][1])
            if k % 10 == 9:
                inputs.append(start)
            if k % 10 == 5:
                shape = add("shape", forward[-1])
                shapes.append((shape, len(kind)))
            forward.append(add("wide" if k % 10 == 0 else "small", *inputs))
    gradient = add("small", forward[-1])
    by_forward = dict(weights)
    for position in range(len(forward) - 1, 0, -1):
        gradient = add("wide" if position in by_forward else "small", gradient, forward[position])
        if position in by_forward:
            update = add("small", gradient, 1)
            add("small", add("small", update), by_forward[position])

    edges = sorted(set(edges + shapes))
    n, d = len(kind), 1 + gpus
    producers = np.array([a for a, _ in edges])
    tensor_op, start_at = np.unique(producers, return_index=True)
    wide = np.array([k == "wide" for k in kind])
    host = np.array([k == "shape" for k in kind])
    compute = np.where(wide, rng.integers(5_000, 60_000, n), rng.integers(1_000, 4_000, n))
    cpu = np.where(wide, compute * 30, rng.integers(500, 30_000, n))
    cpu[host] = compute[host] = 500
    gpu = np.column_stack([compute] * gpus)
    latency = np.full((2 * d, 2 * d), 70_000)
    per_byte = np.full((2 * d, 2 * d), 0.1)
    on_host = [0, *range(d, 2 * d)]
    latency[np.ix_(on_host, on_host)], per_byte[np.ix_(on_host, on_host)] = 3_000, 0
    np.fill_diagonal(latency, 0)
    np.fill_diagonal(per_byte, 0)
    in_host = set(shapes)
    gpu_columns = np.arange(d) > 0
    return PlacementProblem(
        devices=Devices(
            names=("CPU:0", *(f"GPU:{i}" for i in range(gpus))),
            kinds=("CPU", *["GPU"] * gpus),
            asynchronous=gpu_columns,
            call_overhead_ns=100_000,
            threads=np.array([16, *[1] * gpus]),
        ),
        ops=Ops(
            names=tuple(f"{k}{i}" for i, k in enumerate(kind)),
            unit=np.arange(n),
            time_ns=np.column_stack([cpu + 500, np.maximum(5_300, gpu)]),
            dispatch_ns=np.column_stack([np.full(n, 500), np.full((n, gpus), 5_300)]),
            compute_ns=np.column_stack([cpu, gpu]),
        ),
        units=Units(
            allowed=np.column_stack([np.ones(n, np.bool_), *[np.arange(n) > 0] * gpus]),
            persistent_bytes=np.where(np.array([k == "read" for k in kind]), 1 << 20, 0),
        ),
        tensors=Tensors(
            op=tensor_op,
            nbytes=np.where(host[tensor_op], 8, rng.integers(1 << 12, 1 << 20, len(tensor_op))),
            on_host=host[tensor_op][:, None] & gpu_columns,
        ),
        consumers=Consumers(
            start=np.append(start_at, len(edges)),
            op=np.array([b for _, b in edges]),
            on_host=np.array([e in in_host for e in edges])[:, None] & gpu_columns,
        ),
        links=Links(
            latency_ns=latency,
            ns_per_byte=per_byte,
        ),
    )


def moved(problem: PlacementProblem, assignment: Assignment) -> list[Assignment]:
    """The first moves that local search would try from here, and others anywhere among its moves."""
    tried = moves(problem, assignment, MOVES)
    chosen = [*tried[: MOVES // 2], *(tried[i] for i in np.random.default_rng(0).integers(len(tried), size=MOVES - MOVES // 2))]
    found = []
    for units, to in chosen:
        device = assignment.device.copy()
        device[units] = to
        found.append(Assignment(device))
    return found


def seconds(work: Callable[[], object]) -> float:
    """How long one run takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(sizes: list[int]) -> None:
    import ortools.graph.python.max_flow  # noqa: F401  # not counted

    first: dict[str, tuple[int, float]] = {}

    def show(problem: PlacementProblem, what: str, took: float, note: str = "") -> None:
        ops, before = first.setdefault(what, (problem.num_ops, took))
        growth = f"{took / before:5.1f}x for {problem.num_ops / ops:4.1f}x ops" if problem.num_ops != ops else ""
        print(f"{problem.num_ops:7d} ops  {what:24s} {took:8.3f} s  {growth:26s} {note}")

    for size in sizes:
        problem = training_step(size)
        default = default_assignment(problem)
        show(problem, "crossings", seconds(partial(getattr, problem, "crossings")))
        show(problem, "price", seconds(partial(total_cost_ns, problem, default)))
        show(problem, "peaks", seconds(partial(peaks, problem, default)))
        model = Simulator(problem)
        show(problem, "simulate, first", seconds(partial(model.step_ns, default)))
        near = moved(problem, default)
        show(problem, "a move, simulated", seconds(partial(list, map(model.step_ns, near))) / MOVES)
        show(problem, "a step kept for replays", seconds(partial(Replay, model, default)))
        replay = Replay(model, default)
        took = seconds(partial(list, map(replay.moved_ns, near))) / MOVES
        played = (replay.played / problem.num_ops - 1) / MOVES
        show(problem, "a move, replayed", took, f"{played:.0%} of the ops played again")
        show(problem, "minimum cut", seconds(partial(minimum_cut, problem)))
        show(problem, "bound of the step time", seconds(partial(step_bound_ns, model)))
        limits = np.array([-1, int(0.7 * peaks(problem, default)[1])])
        limited = changed(problem, devices_memory_limit_bytes=limits)
        objectives: tuple[Objective, ...] = ("total_cost", "step_time")
        for objective in objectives:
            baseline = solver("tf_default").solve(problem, objective)
            for what, name, case in (("greedy", "greedy", problem), ("auto", "auto", problem), ("70% memory", "auto", limited)):
                solution = solver(name).solve(case, objective)
                ratio = solution.objective_ns / baseline.objective_ns
                note = f"{ratio:.3f} of tf_default, gap {solution.gap:.1%}, {solution.status}: {solution.stop_text}"
                show(problem, f"{what} {objective}", solution.seconds, note)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [3_000, 12_000, 100_000])
