"""Small split problems, and all ways to split them."""

from __future__ import annotations

import itertools

import numpy as np

from placer.research.splits.problem import SplitProblem, excess_bytes, latency_ns, max_load_ns


def random_split(seed: int, *, ops: int = 8, accelerators: int = 2, cpus: int = 1) -> SplitProblem:
    """Ops that an accelerator speeds up, a few colocated, few for CPUs only; memory for about half on each accelerator."""
    rng = np.random.default_rng(seed)
    edges = [(a, b) for b in range(ops) for a in range(b) if rng.random() < 2 / ops]
    makers = sorted({a for a, _ in edges})
    users = [[b for a, b in edges if a == maker] for maker in makers]
    unit = np.arange(ops)
    if rng.random() < 0.5:
        unit[ops - 1] = 1
    _, unit = np.unique(unit, return_inverse=True)
    units = int(unit.max()) + 1
    fast = rng.integers(1, 50, ops)
    nbytes = rng.integers(0, 10, units)
    return SplitProblem(
        name=f"random {seed}",
        accelerators=accelerators,
        cpus=cpus,
        memory_limit_bytes=int(nbytes.sum() * rng.choice([0.4, 0.6, 1.0])),
        op_names=tuple(f"op{i}" for i in range(ops)),
        op_unit=unit,
        op_time_ns=np.stack([fast * rng.integers(2, 20, ops), fast], axis=1),
        unit_bytes=nbytes,
        unit_supported=rng.random(units) > 0.1,
        tensor_op=np.array(makers, np.int64),
        tensor_ns=rng.integers(0, 30, len(makers)),
        consumer_start=np.append(0, np.cumsum([len(u) for u in users], dtype=np.int64)),
        consumer_op=np.array([b for found in users for b in found], np.int64),
    )


def every_split(problem: SplitProblem) -> list[np.ndarray]:
    """Those that meet the memory limit and supported devices."""
    devices = [range(problem.devices) if ok else range(problem.accelerators, problem.devices) for ok in problem.unit_supported]
    splits = (np.array(chosen) for chosen in itertools.product(*devices))
    return [split for split in splits if not excess_bytes(problem, split)]


def least_max_load_ns(problem: SplitProblem) -> int:
    return min(max_load_ns(problem, split) for split in every_split(problem))


def least_latency_ns(problem: SplitProblem) -> int:
    values = (latency_ns(problem, split) for split in every_split(problem))
    return min(value for value in values if value is not None)
