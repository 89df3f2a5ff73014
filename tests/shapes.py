"""Placement problems of known shapes, without op graphs: chains, layers, series-parallel, towers, random; and published ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placer.problem.memory import peaks
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristics.fixed import all_on

Edge = tuple[int, int]
Rng = np.random.Generator


def chain(rng: Rng, ops: int) -> list[Edge]:
    return [(i, i + 1) for i in range(ops - 1)]


def layered(rng: Rng, ops: int) -> list[Edge]:
    """Layers of five, each op taking from one or two of the layer before."""
    return [(int(a), b) for b in range(5, ops) for a in np.unique(rng.integers(b // 5 * 5 - 5, b // 5 * 5, size=2))]


def series_parallel(rng: Rng, ops: int) -> list[Edge]:
    """One edge, of which ever more edges are split in two, one after the other or side by side; numbered topologically."""
    edges = [(0.0, 1.0)]
    while len({v for edge in edges for v in edge}) < ops:
        a, b = edges[int(rng.integers(len(edges)))]
        middle = (a + b) / 2 + (b - a) * float(rng.uniform(-0.1, 0.1))
        if rng.random() < 0.5:
            edges.remove((a, b))
        edges += [(a, middle), (middle, b)]
    number = {v: k for k, v in enumerate(sorted({v for edge in edges for v in edge}))}
    return sorted({(number[a], number[b]) for a, b in edges})


def towers(rng: Rng, ops: int) -> list[Edge]:
    """Three chains from one op to one op."""
    inner = range(1, ops - 1)
    return [(max(0, i - 3), i) for i in inner] + [(i, ops - 1) for i in inner if i + 3 not in inner]


def scattered(rng: Rng, ops: int) -> list[Edge]:
    return [(a, b) for b in range(ops) for a in range(b) if rng.random() < 2 / ops]


SHAPES: dict[str, Callable[[Rng, int], list[Edge]]] = {
    f.__name__: f for f in (chain, layered, series_parallel, towers, scattered)
}


def shaped(shape: str, *, devices: int, limited: bool, ops: int = 24, seed: int = 0) -> PlacementProblem:
    """A CPU and GPUs, ops that a GPU speeds up by different factors, some colocated, some for the CPU only.

    Limited: each GPU may hold half of what the first would hold with everything there.
    """
    rng = np.random.default_rng(seed)
    edges = sorted(SHAPES[shape](rng, ops))
    gpu = np.arange(devices) > 0
    unit = np.arange(ops)
    unit[7::10] = unit[3::10][: len(unit[7::10])]
    _, unit = np.unique(unit, return_inverse=True)
    cpu = rng.integers(1_000, 50_000, ops)
    fast = np.maximum(2_000, (cpu / rng.choice([1, 5, 30], ops)).astype(np.int64))
    allowed = np.ones((int(unit.max()) + 1, devices), np.bool_)
    allowed[unit[::9], 1:] = False
    on_host = [0, *range(devices, 2 * devices)]
    latency, per_byte = np.full((2 * devices, 2 * devices), 10_000), np.full((2 * devices, 2 * devices), 0.5)
    latency[np.ix_(on_host, on_host)], per_byte[np.ix_(on_host, on_host)] = 1_000, 0.0
    np.fill_diagonal(latency, 0)
    np.fill_diagonal(per_byte, 0)
    producers, start = np.unique([a for a, _ in edges], return_index=True)
    problem = PlacementProblem(
        device_names=("CPU:0", *(f"GPU:{i}" for i in range(devices - 1))),
        device_kinds=("CPU", *["GPU"] * (devices - 1)),
        memory_limit_bytes=np.full(devices, -1),
        asynchronous=gpu,
        op_names=tuple(f"op{i}" for i in range(ops)),
        op_unit=unit,
        op_time_ns=np.where(gpu, fast[:, None], cpu[:, None]),
        op_dispatch_ns=np.where(gpu, np.full((ops, 1), 2_000), 500),
        op_compute_ns=np.where(gpu, fast[:, None], cpu[:, None] - 500),
        op_count=np.ones(ops),
        op_workspace_bytes=np.where(gpu, rng.integers(0, 2_000, (ops, 1)), 0),
        unit_allowed=allowed,
        unit_persistent_bytes=np.where(np.arange(len(allowed)) % 4 == 0, 50_000, 0),
        tensor_op=producers,
        tensor_bytes=rng.integers(1_000, 100_000, len(producers)),
        tensor_count=np.ones(len(producers)),
        tensor_on_host=(np.arange(len(producers)) % 8 == 5)[:, None] & gpu,
        consumer_start=np.append(start, len(edges)),
        consumer_op=np.array([b for _, b in edges]),
        consumer_on_host=(np.arange(len(edges)) % 11 == 4)[:, None] & gpu,
        tensor_free=np.arange(len(producers)) % 10 == 9,
        tensor_is_result=np.zeros(len(producers), np.bool_),
        control_src=np.array([0]),
        control_dst=np.array([ops - 1]),
        copy_latency_ns=latency,
        copy_ns_per_byte=per_byte,
        call_overhead_ns=10_000,
        device_threads=np.where(gpu, 1, 4),
    )
    if limited:
        most = peaks(problem, all_on(problem, "GPU"))[1]
        problem.memory_limit_bytes[1:] = most // 2
    return problem


def tasks(times: Sequence[Sequence[int]], edges: Sequence[tuple[int, int, int]], devices: int = 3) -> PlacementProblem:
    """A task graph of the scheduling literature: task numbers from 1, a time on each processor, and (from, to, time to send).

    Processors are CPUs of one thread. An edge is a tensor of its own, as edges out of one task differ; sending takes as long
    between any two processors.
    """
    ops, devices = len(times), len(times[0]) if times else devices
    edges = sorted(edges)
    time = np.array(times, np.int64).reshape(ops, devices)
    nowhere = np.zeros((len(edges), devices), np.bool_)
    return PlacementProblem(
        device_names=tuple(f"CPU:{d}" for d in range(devices)),
        device_kinds=("CPU",) * devices,
        memory_limit_bytes=np.full(devices, -1),
        asynchronous=np.zeros(devices, np.bool_),
        op_names=tuple(f"n{i + 1}" for i in range(ops)),
        op_unit=np.arange(ops),
        op_time_ns=time,
        op_dispatch_ns=np.zeros((ops, devices), np.int64),
        op_compute_ns=time,
        op_count=np.ones(ops),
        op_workspace_bytes=np.zeros((ops, devices), np.int64),
        unit_allowed=np.ones((ops, devices), np.bool_),
        unit_persistent_bytes=np.zeros(ops, np.int64),
        tensor_op=np.array([a - 1 for a, _, _ in edges], np.int64),
        tensor_bytes=np.array([cost for _, _, cost in edges], np.int64),
        tensor_count=np.ones(len(edges)),
        tensor_on_host=nowhere,
        consumer_start=np.arange(len(edges) + 1),
        consumer_op=np.array([b - 1 for _, b, _ in edges], np.int64),
        consumer_on_host=nowhere,
        tensor_free=np.zeros(len(edges), np.bool_),
        tensor_is_result=np.zeros(len(edges), np.bool_),
        control_src=np.zeros(0, np.int64),
        control_dst=np.zeros(0, np.int64),
        copy_latency_ns=np.zeros((2 * devices, 2 * devices), np.int64),
        copy_ns_per_byte=1.0 - np.eye(2 * devices),
        call_overhead_ns=0,
    )


TOPCUOGLU = tasks(
    [[14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10], [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20],
     [21, 7, 16]],
    [(1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23), (4, 8, 27), (4, 9, 23),
     (5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13)],
)  # fmt: skip
"""Topcuoglu, Hariri, Wu 2002, figure 1."""
ARABNEJAD = tasks(
    [[22, 21, 36], [22, 18, 18], [32, 27, 43], [7, 10, 4], [29, 27, 35], [26, 17, 24], [14, 25, 30], [29, 23, 36], [15, 21, 8],
     [13, 16, 33]],
    [(1, 2, 17), (1, 3, 31), (1, 4, 29), (1, 5, 13), (1, 6, 7), (2, 8, 3), (2, 9, 30), (3, 7, 16), (4, 8, 11), (4, 9, 7),
     (5, 9, 57), (6, 8, 5), (7, 10, 9), (8, 10, 42), (9, 10, 7)],
)  # fmt: skip
"""Arabnejad, Barbosa 2014, figure 1."""
