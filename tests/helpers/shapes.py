"""Placement problems without op graphs: of the families by shape, and published ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import PlacementProblem
from placer.research.instances.families import synthetic


def shaped(shape: str, *, devices: int, limited: bool, ops: int = 24, seed: int = 0) -> PlacementProblem:
    """A problem of a family; limited: each GPU may hold half of what the first would hold with everything there."""
    return synthetic(shape, ops=ops, gpus=devices - 1, seed=seed, memory=0.5 if limited else 0.0)


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
        devices=Devices(
            names=tuple(f"CPU:{d}" for d in range(devices)),
            kinds=("CPU",) * devices,
        ),
        ops=Ops(
            names=tuple(f"n{i + 1}" for i in range(ops)),
            unit=np.arange(ops),
            time_ns=time,
        ),
        units=Units(
            allowed=np.ones((ops, devices), np.bool_),
        ),
        tensors=Tensors(
            op=np.array([a - 1 for a, _, _ in edges], np.int64),
            nbytes=np.array([cost for _, _, cost in edges], np.int64),
            on_host=nowhere,
        ),
        consumers=Consumers(
            start=np.arange(len(edges) + 1),
            op=np.array([b - 1 for _, b, _ in edges], np.int64),
            on_host=nowhere,
        ),
        links=Links(
            latency_ns=np.zeros((2 * devices, 2 * devices), np.int64),
            ns_per_byte=1.0 - np.eye(2 * devices),
        ),
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
