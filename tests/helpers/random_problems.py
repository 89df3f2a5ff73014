"""Random small placement problems for property tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from placer.problem.arrays import Ints
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import Assignment, PlacementProblem
from tests.helpers.changed import changed


def random_problem(
    rng: np.random.Generator, *, devices: int, ops: int, units: int, limits: bool, forced: float = 0.2
) -> PlacementProblem:
    """A problem with a CPU, then GPUs (or more CPUs), hyperedges, both memory kinds, control edges and forced units.

    In a third of the problems, the devices from the first of the further CPUs on are a worker's.
    """
    kinds = ("CPU", *(str(rng.choice(["GPU", "GPU", "CPU"])) for _ in range(devices - 1)))
    gpu = np.array([kind == "GPU" for kind in kinds])
    unit = rng.integers(units, size=ops)
    unit[:units] = rng.permutation(units)[: len(unit[:units])]
    present, unit = np.unique(unit, return_inverse=True)
    units = len(present)
    allowed = rng.random((units, devices)) > forced
    allowed[np.arange(units), rng.integers(devices, size=units)] = True

    tensor_op, start, consumers = [], [0], []
    for op in range(ops):
        for _ in range(int(rng.integers(3))):
            later = np.arange(op + 1, ops)
            some = rng.choice(later, size=min(len(later), int(rng.integers(4)))) if len(later) else later
            tensor_op.append(op)
            consumers.extend(some.tolist())
            start.append(len(consumers))
    tensors, entries = len(tensor_op), len(consumers)
    control = [(a, b) for a, b in itertools.combinations(range(ops), 2) if rng.random() < 0.05]

    slow = rng.integers(0, 300, size=(2 * devices, 2 * devices))
    per_byte = rng.random((2 * devices, 2 * devices)) * 2
    np.fill_diagonal(slow, 0)
    np.fill_diagonal(per_byte, 0)
    tensor_bytes = rng.integers(0, 100, size=tensors)
    moment = _other_order(rng, ops, [*zip(np.repeat(tensor_op, np.diff(start)).tolist(), consumers, strict=True), *control])
    made = moment[np.repeat(np.array(tensor_op, np.int64), np.diff(start))]
    until = np.clip(moment[np.array(consumers, np.int64)] + rng.integers(-1, 3, size=entries), made, ops - 1)
    dispatch = rng.integers(0, 100, size=(ops, devices))
    compute = rng.integers(0, 400, size=(ops, devices)) * np.array([1, 1, 1, 30, 150])[rng.integers(5, size=(ops, 1))]
    problem = PlacementProblem(
        devices=Devices(
            names=tuple(f"{kind}:{kinds[:i].count(kind)}" for i, kind in enumerate(kinds)),
            kinds=kinds,
            memory_limit_bytes=rng.integers(150, 700, size=devices) if limits else np.full(devices, -1),
            asynchronous=gpu,
            call_overhead_ns=50,
            waiting_ns=2_000_000,  # much, since ops take little
            threads=np.where(gpu, 1, rng.integers(1, 4, size=devices)),
            shares_cores=~gpu & (rng.random() < 0.5),
            call_ns=rng.integers(0, 30, size=devices) * gpu,
            split_ns=int(rng.integers(0, 30)),
            wake_ns=rng.integers(0, 3000, size=devices) * ~gpu,
        ),
        ops=Ops(
            names=tuple(f"op{i}" for i in range(ops)),
            unit=unit,
            time_ns=np.where(gpu, np.maximum(dispatch, compute), dispatch + compute),
            dispatch_ns=dispatch,
            compute_ns=compute,
            count=np.array([1.0, 1.0, 2.5, 10.0])[rng.integers(4, size=ops)],
            workspace_bytes=rng.integers(0, 30, size=(ops, devices)),
            moment=moment,
            control_src=np.array([a for a, _ in control], np.int64),
            control_dst=np.array([b for _, b in control], np.int64),
            awaited=rng.random(ops) < 0.1,
        ),
        units=Units(
            allowed=allowed,
            persistent_bytes=rng.integers(0, 60, size=units),
        ),
        tensors=Tensors(
            op=np.array(tensor_op, np.int64),
            nbytes=tensor_bytes,
            held_bytes=tensor_bytes + rng.integers(0, 8, size=tensors),
            copy_bytes=rng.integers(0, 300, size=tensors),
            count=np.array([1.0, 1.0, 0.5, 10.0])[rng.integers(4, size=tensors)],
            on_host=(rng.random((tensors, devices)) < 0.3) & gpu,
            free=rng.random(tensors) < 0.15,
            is_result=rng.random(tensors) < 0.2,
            shared=rng.random(tensors) < 0.3,
        ),
        consumers=Consumers(
            start=np.array(start, np.int64),
            op=np.array(consumers, np.int64),
            on_host=(rng.random((entries, devices)) < 0.3) & gpu,
            until=until,
        ),
        links=Links(
            latency_ns=slow,
            ns_per_byte=per_byte,
            interval_ns=np.where(slow > 0, rng.integers(0, 30), 0),
        ),
    )
    if "CPU" in kinds[1:] and rng.random() < 1 / 3:
        first = kinds.index("CPU", 1)
        tasks = [""] * first + ["worker:0"] * (devices - first)
        problem = replace(problem, devices=replace(problem.devices, tasks=tuple(tasks)))
    return problem


def _other_order(rng: np.random.Generator, ops: int, edges: list[tuple[int, int]]) -> Ints:
    """[ops]: when each runs, in a random topological order."""
    moment = np.full(ops, -1, np.int64)
    for now in range(ops):
        ready = [op for op in range(ops) if moment[op] < 0 and all(moment[a] >= 0 for a, b in edges if b == op)]
        moment[int(rng.choice(ready))] = now
    return moment


def relabelled(problem: PlacementProblem, order: list[int]) -> PlacementProblem:
    """The same machine with its devices in another order; device 0, the first CPU, must stay."""
    return problem.on_devices(np.array(order))


@st.composite
def problems(draw: st.DrawFn, *, devices: int | None = None, limits: bool | None = None) -> PlacementProblem:
    """Problems of at most 10 ops and 8 units."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return random_problem(
        rng,
        devices=devices or draw(st.integers(2, 3)),
        ops=draw(st.integers(1, 10)),
        units=draw(st.integers(1, 8 if devices == 2 else 6)),
        limits=draw(st.booleans()) if limits is None else limits,
    )


@st.composite
def uneven(draw: st.DrawFn, *, most: int = 40) -> PlacementProblem:
    """Problems of at most `most` units, one for each op: some do nothing, never run, run in a part of the steps, or often,
    between devices that are near, far, or far for a few bytes as for many.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ops = int(rng.integers(1, most + 1))
    problem = random_problem(rng, devices=int(rng.integers(1, 4)), ops=ops, units=ops, limits=False, forced=0.1)
    count = rng.choice([1.0, 1.0, 0.25, 2.5, 100.0], size=ops) if rng.random() < 0.5 else np.ones(ops)
    count[rng.random(ops) < 0.05] = 0.0
    works = ((rng.random(ops) < rng.choice([0.6, 0.9])) & (count > 0))[:, None]
    times = {f"ops_{name}": getattr(problem.ops, name) * works for name in ("time_ns", "dispatch_ns", "compute_ns")}
    busiest = np.zeros(problem.num_tensors)
    np.maximum.at(busiest, problem.consumers.tensor, count[problem.consumers.op])
    interval = int(rng.choice([0, 1_500]))
    return changed(
        problem,
        ops_count=count,
        ops_serial=rng.random(ops) < 0.2,
        tensors_count=np.minimum(count[problem.tensors.op], busiest),
        tensors_free=problem.tensors.free & bool(rng.random() < 0.5),
        links_latency_ns=problem.links.latency_ns * int(rng.choice([0, 3, 100])),
        links_ns_per_byte=problem.links.ns_per_byte * rng.choice([1.0, 0.001]),
        links_interval_ns=np.where(problem.links.latency_ns > 0, interval, 0) if rng.random() < 0.8 else None,
        devices_wake_ns=problem.devices.wake_ns if rng.random() < 0.3 else None,
        devices_waiting_ns=int(rng.choice([0, 2_000_000])),
        links_contention=bool(rng.random() < 0.8),
        **times,
    )


@st.composite
def alike(draw: st.DrawFn) -> PlacementProblem:
    """Problems on a CPU and two devices of one kind, whose kernels keep the same in host memory."""
    problem = draw(problems(devices=3))
    first = [0, 1, 1]
    return changed(
        problem,
        devices_kinds=tuple(problem.devices.kinds[d] for d in first),
        devices_names=("CPU:0", "second:0", "second:1"),
        devices_asynchronous=problem.devices.asynchronous[first],
        devices_shares_cores=problem.devices.shares_cores[first],  # no stream runs on the cores of a CPU
        tensors_on_host=problem.tensors.on_host[:, first],
        consumers_on_host=problem.consumers.on_host[:, first],
    )


@st.composite
def interchangeable(draw: st.DrawFn) -> PlacementProblem:
    """Problems on a CPU and two devices that can trade places."""
    problem = draw(alike())
    first = [0, 1, 1]
    swapped = np.array([0, 2, 1, 3, 5, 4])
    links = problem.links
    latency, per_byte, interval = (
        cost + cost[np.ix_(swapped, swapped)] for cost in (links.latency_ns, links.ns_per_byte, links.interval_ns)
    )
    allowed = problem.units.allowed[:, first]
    allowed[~allowed.any(axis=1), 0] = True
    return changed(
        problem,
        devices_tasks=("", "", ""),  # the first CPU of a worker is the host of its second
        **{
            f"devices_{name}": getattr(problem.devices, name)[first] for name in ("threads", "shares_cores", "call_ns", "wake_ns")
        },
        devices_memory_limit_bytes=problem.devices.memory_limit_bytes[first],
        ops_time_ns=problem.ops.time_ns[:, first],
        ops_dispatch_ns=problem.ops.dispatch_ns[:, first],
        ops_compute_ns=problem.ops.compute_ns[:, first],
        ops_workspace_bytes=problem.ops.workspace_bytes[:, first],
        units_allowed=allowed,
        links_latency_ns=latency,
        links_ns_per_byte=per_byte,
        links_interval_ns=interval,
    )


def assignments(problem: PlacementProblem) -> Iterator[Assignment]:
    """Every allowed assignment."""
    for devices in itertools.product(*(np.flatnonzero(row).tolist() for row in problem.units.allowed)):
        yield Assignment(np.array(devices, np.int64))


def random_assignment(problem: PlacementProblem, seed: int) -> Assignment:
    """An allowed assignment."""
    weight = np.random.default_rng(seed).random(problem.units.allowed.shape)
    return Assignment(np.where(problem.units.allowed, weight, -1).argmax(axis=1))
