"""Families of made-up problems: random graphs of a shape and a size, on a CPU and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from placer.errors import OptionError
from placer.problem.memory import peaks
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import Assignment, PlacementProblem

Edge: TypeAlias = tuple[int, int]
Rng: TypeAlias = np.random.Generator
MIN_OPS = 3


def chain(rng: Rng, ops: int) -> list[Edge]:
    """One op after the other."""
    return [(i, i + 1) for i in range(ops - 1)]


def layered(rng: Rng, ops: int) -> list[Edge]:
    """Layers of five ops; each op has one or two inputs from the layer before."""
    return [(int(a), b) for b in range(5, ops) for a in np.unique(rng.integers(b // 5 * 5 - 5, b // 5 * 5, size=2))]


def series_parallel(rng: Rng, ops: int) -> list[Edge]:
    """An edge that grows: a random edge is split in two or gets a parallel path of two, until there are enough ops."""
    edges = [(0.0, 1.0)]
    for _ in range(ops - 2):
        k = int(rng.integers(len(edges)))
        a, b = edges[k]
        middle = (a + b) / 2 + (b - a) * float(rng.uniform(-0.1, 0.1))
        if rng.random() < 0.5:
            edges[k] = (a, middle)
            edges.append((middle, b))
        else:
            edges += [(a, middle), (middle, b)]
    number = {v: k for k, v in enumerate(sorted({v for edge in edges for v in edge}))}
    return sorted({(number[a], number[b]) for a, b in edges})


def towers(rng: Rng, ops: int) -> list[Edge]:
    """Three parallel chains with a common first and a common last op."""
    inner = range(1, ops - 1)
    return [(max(0, i - 3), i) for i in inner] + [(i, ops - 1) for i in inner if i + 3 not in inner]


def scattered(rng: Rng, ops: int) -> list[Edge]:
    """Random edges: op b has 2 b / ops inputs from earlier ops on average."""
    return [(a, b) for b in range(ops) for a in np.flatnonzero(rng.random(b) < 2 / ops).tolist()]


SHAPES: Mapping[str, Callable[[Rng, int], list[Edge]]] = MappingProxyType(
    {"chain": chain, "layered": layered, "series_parallel": series_parallel, "towers": towers, "random": scattered}
)
"""By name, a function from a random generator and a number of ops to edges."""


def synthetic(
    shape: str,
    *,
    ops: int = 100,
    gpus: int = 1,
    seed: int = 0,
    memory: float = 0.0,
    speedup: float = 30.0,
    copy_ns: int = 10_000,
    cpu_only: float = 0.1,
    on_host: float = 0.1,
) -> PlacementProblem:
    """A random problem on a CPU and GPUs: ops of 1 to 50 us, of which some are colocated, and tensors of up to 100 kB.

    Args:
        shape: one of `SHAPES`.
        ops: number of ops, at least `MIN_OPS`.
        gpus: number of GPUs.
        seed: of everything random.
        memory: memory limit of each GPU, as a share of the peak of the first GPU with everything on it; 0 for no limit.
        speedup: a GPU is faster than the CPU by this factor, by a sixth of it, or not at all; an op takes at least 2 us there.
        copy_ns: latency of a copy between memories; the bandwidth is 2 GB/s.
        cpu_only: share of the units that may be on the CPU only.
        on_host: share of the tensors and inputs that GPU kernels keep in host memory.

    Raises:
        OptionError: there is no such shape, or a number is out of range.
    """
    if shape not in SHAPES:
        raise OptionError(f"there is no family {shape!r}; the families are {', '.join(SHAPES)}.")
    for name, value, minimum in (("ops", ops, MIN_OPS), ("gpus", gpus, 1), ("seed", seed, 0), ("copy_ns", copy_ns, 0)):
        check_whole_number(shape, name, value, minimum)
    for name, share in (("memory", memory), ("cpu_only", cpu_only), ("on_host", on_host)):
        if not 0 <= share <= 1:
            raise OptionError(f"{shape}: {name}={share!r} must be from 0 to 1.")
    if not speedup >= 1:
        raise OptionError(f"{shape}: speedup={speedup!r} is not at least 1.")
    rng = np.random.default_rng(seed)
    edges = sorted(SHAPES[shape](rng, ops))
    devices = 1 + gpus
    gpu = np.arange(devices) > 0
    unit = np.arange(ops)
    unit[7::10] = unit[3::10][: len(unit[7::10])]
    _, unit = np.unique(unit, return_inverse=True)
    units = int(unit.max()) + 1
    cpu = rng.integers(1_000, 50_000, ops)
    fast = np.maximum(2_000, (cpu / rng.choice([1, max(1.0, speedup / 6), speedup], ops)).astype(np.int64))
    allowed = np.ones((units, devices), np.bool_)
    allowed[rng.random(units) < cpu_only, 1:] = False
    views = [0, *range(devices, 2 * devices)]
    latency, per_byte = np.full((2 * devices, 2 * devices), copy_ns), np.full((2 * devices, 2 * devices), 0.5)
    latency[np.ix_(views, views)], per_byte[np.ix_(views, views)] = copy_ns // 10, 0.0
    np.fill_diagonal(latency, 0)
    np.fill_diagonal(per_byte, 0)
    producers, start = np.unique(np.array([a for a, _ in edges], np.int64), return_index=True)
    problem = PlacementProblem(
        devices=Devices(
            names=("CPU:0", *(f"GPU:{i}" for i in range(gpus))),
            kinds=("CPU", *["GPU"] * gpus),
            asynchronous=gpu,
            call_overhead_ns=10_000,
            threads=np.where(gpu, 1, 4),
        ),
        ops=Ops(
            names=tuple(f"op{i}" for i in range(ops)),
            unit=unit,
            time_ns=np.where(gpu, fast[:, None], cpu[:, None]),
            dispatch_ns=np.where(gpu, np.full((ops, 1), 2_000), 500),
            compute_ns=np.where(gpu, fast[:, None], cpu[:, None] - 500),
            workspace_bytes=np.where(gpu, rng.integers(0, 2_000, (ops, 1)), 0),
            control_src=np.array([0]),
            control_dst=np.array([ops - 1]),
        ),
        units=Units(
            allowed=allowed,
            persistent_bytes=np.where(np.arange(units) % 4 == 0, 50_000, 0),
        ),
        tensors=Tensors(
            op=producers,
            nbytes=rng.integers(1_000, 100_000, len(producers)),
            on_host=(rng.random(len(producers)) < on_host)[:, None] & gpu,
            free=np.arange(len(producers)) % 10 == 9,
        ),
        consumers=Consumers(
            start=np.append(start, len(edges)),
            op=np.array([b for _, b in edges], np.int64),
            on_host=(rng.random(len(edges)) < on_host)[:, None] & gpu,
        ),
        links=Links(
            latency_ns=latency,
            ns_per_byte=per_byte,
        ),
    )
    if memory:
        on_first = Assignment(np.where(allowed[:, 1], 1, 0))
        limit = int(memory * peaks(problem, on_first)[1])
        return problem.with_memory_limits(np.where(gpu, limit, -1))
    return problem


def check_whole_number(shape: str, name: str, value: object, minimum: int) -> None:
    """Raises OptionError unless the value of a keyword is a whole number of at least a minimum."""
    if not isinstance(value, int) or value < minimum:
        raise OptionError(f"{shape}: {name}={value!r} is not a whole number of at least {minimum}.")
