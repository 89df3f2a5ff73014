"""Families of task graphs on processors of different speeds, as in the literature on list scheduling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from placer.errors import OptionError
from placer.problem.arrays import Floats, Ints
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import PlacementProblem
from placer.research.instances.families import check_whole_number

Edge: TypeAlias = tuple[int, int, float]
"""Producer, consumer, and relative size of what is sent."""
Rng: TypeAlias = np.random.Generator
Shape: TypeAlias = Callable[[Rng, int], list[Edge]]
"""Makes edges, from a random generator and a number of ops."""
MIN_OPS = 6

RIOTBENCH = (
    "A. Shukla, S. Chaturvedi, Y. Simmhan, RIoTBench: an IoT benchmark for distributed stream processing systems, Concurrency"
    " and Computation: Practice and Experience 29(21), 2017, doi:10.1002/cpe.4257"
)
WFCOMMONS = (
    "T. Coleman, H. Casanova, L. Pottier, M. Kaushik, E. Deelman, R. Ferreira da Silva, WfCommons: a framework for enabling "
    "scientific workflow research and development, Future Generation Computer Systems 128, 2022, "
    "doi:10.1016/j.future.2021.09.043"
)


def out_trees(rng: Rng, ops: int) -> list[Edge]:
    """A tree from its root to its leaves; each inner op has two or three successors."""
    branches = int(rng.integers(2, 4))
    return [((op - 1) // branches, op, 1.0) for op in range(1, ops)]


def in_trees(rng: Rng, ops: int) -> list[Edge]:
    """A tree from its leaves to its root; each inner op has two or three producers."""
    return [(ops - 1 - b, ops - 1 - a, size) for a, b, size in out_trees(rng, ops)]


def parallel_chains(rng: Rng, ops: int) -> list[Edge]:
    """Two to five chains of equal length with a common first and a common last op."""
    chains, inner = int(rng.integers(2, 6)), range(1, ops - 1)
    return [(max(0, op - chains), op, 1.0) for op in inner] + [(op, ops - 1, 1.0) for op in inner if op + chains not in inner]


def diamonds(rng: Rng, ops: int) -> list[Edge]:
    """A chain of forks: one op, two to four ops after it, one op after these, and so on."""
    edges: list[Edge] = []
    first = 0
    while first < ops - 1:
        last = min(ops - 1, first + 1 + int(rng.integers(2, 5)))
        middle = range(first + 1, last)
        edges += [(first, op, 1.0) for op in middle] + [(op, last, 1.0) for op in middle] or [(first, last, 1.0)]
        first = last
    return edges


def blast(rng: Rng, ops: int) -> list[Edge]:
    """BLAST: one op splits the work, and two ops gather all results."""
    return [edge for op in range(1, ops - 2) for edge in ((0, op, 1.0), (op, ops - 2, 1.0), (op, ops - 1, 1.0))]


def epigenomics(rng: Rng, ops: int) -> list[Edge]:
    """Epigenomics: one op splits the work over chains of four, and two ops, one after the other, gather the results."""
    inner, last = range(1, ops - 2), ops - 3
    starts = [(0 if op % 4 == 1 else op - 1, op, 1.0) for op in inner]
    return [*starts, *((op, ops - 2, 1.0) for op in inner if op % 4 == 0 or op == last), (ops - 2, ops - 1, 1.0)]


def montage(rng: Rng, ops: int) -> list[Edge]:
    """Montage: images, differences of neighbours, one model of all differences, corrected images, and two ops for the mosaic."""
    images = (ops - 3) // 3
    differences = ops - 3 - 2 * images
    model, add = images + differences, ops - 2
    edges = [(image, images + k, 1.0) for k in range(differences) for image in {k % images, (k + 1) % images}]
    edges += [(images + k, model, 0.1) for k in range(differences)]
    for image in range(images):
        edges += [(image, model + 1 + image, 1.0), (model, model + 1 + image, 0.1), (model + 1 + image, add, 1.0)]
    return [*edges, (add, ops - 1, float(images))]


def seismology(rng: Rng, ops: int) -> list[Edge]:
    """Seismology: one op gathers the results of all others."""
    return [(op, ops - 1, 1.0) for op in range(ops - 1)]


def _flows(*edges: Edge) -> Shape:
    """As many copies of a flow as there is room for, at least one."""
    size = 1 + max(b for _, b, _ in edges)

    def shape(rng: Rng, ops: int) -> list[Edge]:
        return [(a + k, b + k, weight) for k in range(0, max(1, ops // size) * size, size) for a, b, weight in edges]

    return shape


def _chain(first: int, *sizes: float) -> list[Edge]:
    """Ops one after the other."""
    return [(first + k, first + k + 1, size) for k, size in enumerate(sizes)]


ETL = _flows(*_chain(0, 1, 10, 10, 10, 10, 1), (6, 7, 1), (6, 8, 10), (7, 9, 1), (8, 10, 10), (9, 10, 1))
STATS = _flows((0, 1, 1), (1, 2, 10), (1, 3, 1), (1, 4, 1), (3, 5, 1), (2, 6, 10), (5, 6, 1), (4, 6, 1), *_chain(6, 120, 120))
TRAIN = _flows((0, 1, 1), (1, 2, 1), (1, 3, 1), (2, 4, 1), (3, 5, 1), (4, 5, 1), *_chain(5, 2, 2))
PREDICT = _flows(
    (0, 2, 1), (1, 3, 1), (2, 4, 1), (3, 4, 1), (2, 5, 1), (3, 5, 1), (2, 6, 10), (5, 7, 2), (6, 7, 2), (7, 8, 2), (4, 8, 2),
    (8, 9, 2)
)  # fmt: skip

SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "out_trees": out_trees, "in_trees": in_trees, "parallel_chains": parallel_chains, "diamonds": diamonds,
        "etl": ETL, "stats": STATS, "train": TRAIN, "predict": PREDICT,
        "blast": blast, "epigenomics": epigenomics, "montage": montage, "seismology": seismology,
    }
)  # fmt: skip
"""By name.

``etl`` to ``predict`` are the dataflows of RIoTBench, ``blast`` to ``seismology`` workflows that WfCommons describes.
"""


def task_graph(
    shape: str, *, ops: int = 50, processors: int = 4, ccr: float = 1.0, speedup: float = 4.0, seed: int = 0
) -> PlacementProblem:
    """A random problem on processors of different speeds: see `uniform_machine`. Ops take 1 to 50 us at the lowest speed.

    Args:
        shape: one of `SHAPES`.
        ops: number of ops, at least `MIN_OPS`; a dataflow of RIoTBench has as many whole copies as there is room for, at least
        one.
        processors: number of processors.
        ccr: communication-to-computation ratio: the mean time of a transfer between two processors by the mean time of an op.
        speedup: the highest speed that a processor can have; the lowest is 1.
        seed: of everything random.

    Raises:
        OptionError: there is no such shape, or a number is out of range.
    """
    if shape not in SHAPES:
        raise OptionError(f"there is no family {shape!r}; the families are {', '.join(SHAPES)}.")
    for name, value, minimum in (("ops", ops, MIN_OPS), ("processors", processors, 1), ("seed", seed, 0)):
        check_whole_number(shape, name, value, minimum)
    if not 0 <= ccr < np.inf or not 1 <= speedup < np.inf:
        raise OptionError(f"{shape}: ccr={ccr!r} must be at least 0, and speedup={speedup!r} at least 1.")
    rng = np.random.default_rng(seed)
    edges = [(a, b, round(size * rng.uniform(5_000, 15_000))) for a, b, size in sorted(SHAPES[shape](rng, ops))]
    work = rng.uniform(1_000, 50_000, 1 + max(b for _, b, _ in edges))
    speed = np.sort(rng.uniform(1, speedup, processors))[::-1]
    upper = np.triu(rng.uniform(0.5, 2, (processors, processors)), 1)
    ns_per_byte = upper + upper.T
    if processors > 1:
        transfer_ns = np.mean([nbytes for _, _, nbytes in edges]) * ns_per_byte.sum() / (processors * (processors - 1))
        ns_per_byte *= ccr * np.mean(work) * np.mean(1 / speed) / transfer_ns
    return uniform_machine(work, edges, speed, ns_per_byte)


def uniform_machine(
    work_ns: Floats | Ints, edges: Sequence[tuple[int, int, int]], speed: Floats | Ints, ns_per_byte: Floats
) -> PlacementProblem:
    """A task graph on the machine of the literature: a processor has one speed for all tasks, and transfers never queue.

    A processor runs one task at a time. Each edge is a transfer of its own, which takes no time within a processor.

    Args:
        work_ns: [N]: what each task takes at speed 1; tasks are in topological order.
        edges: pairs of tasks, and the bytes that the first sends to the second.
        speed: [D]: of each processor.
        ns_per_byte: [D, D]: of a transfer from processor to processor.
    """
    devices, sent = len(speed), sorted(edges)
    nowhere = np.zeros((len(sent), devices), np.bool_)
    per_byte = np.zeros((2 * devices, 2 * devices))
    per_byte[:devices, :devices] = np.where(np.eye(devices, dtype=np.bool_), 0, ns_per_byte)
    return PlacementProblem(
        devices=Devices(names=tuple(f"CPU:{d}" for d in range(devices)), kinds=("CPU",) * devices),
        ops=Ops(
            names=tuple(f"op{i}" for i in range(len(work_ns))),
            unit=np.arange(len(work_ns)),
            time_ns=np.rint(np.array(work_ns)[:, None] / np.array(speed)).astype(np.int64),
        ),
        units=Units(allowed=np.ones((len(work_ns), devices), np.bool_)),
        tensors=Tensors(
            op=np.array([a for a, _, _ in sent], np.int64),
            nbytes=np.array([nbytes for _, _, nbytes in sent], np.int64),
            on_host=nowhere,
        ),
        consumers=Consumers(start=np.arange(len(sent) + 1), op=np.array([b for _, b, _ in sent], np.int64), on_host=nowhere),
        links=Links(latency_ns=np.zeros((2 * devices, 2 * devices), np.int64), ns_per_byte=per_byte, contention=False),
    )
