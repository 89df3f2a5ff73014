"""The published workloads: where they are, what is known of them, and values recomputed from the files alone."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

DATA = Path(os.environ.get("PLACER_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = DATA / "dnn-partitioning"
THROUGHPUT = sorted((FOLDER / "throughput-inputs").glob("*/*.json"))
LATENCY = sorted((FOLDER / "latency-inputs").glob("*/*.json"))
INTRA_OPERATOR = sorted((DATA / "iopddl").glob("asplos-2025-iopddl-*.json.gz"))

CPU = -1
"""Devices below: accelerators from 0; all CPUs but one of throughput problems are from -1 down."""


def node_ids(op_names: tuple[str, ...]) -> list[int]:
    """The file's node of each op."""
    return [int(name.rsplit(":", 1)[1]) for name in op_names]


def checked(path: Path, device: Mapping[int, int], *, limit_bytes: float | None = None) -> None:
    """Raises AssertionError unless every node has a device, colours are together, limits hold and devices are there."""
    file = json.loads(path.read_text())
    assert device.keys() == {node["id"] for node in file["nodes"]}
    colours: dict[int, set[int]] = {}
    held: dict[int, float] = {}
    for node in file["nodes"]:
        d = device[node["id"]]
        assert -file["maxCPUs"] <= d < file["maxFPGAs"]
        if node.get("colorClass") is not None:
            colours.setdefault(node["colorClass"], set()).add(d)
        if d > CPU:
            assert node["supportedOnFpga"]
            held[d] = held.get(d, 0.0) + node["size"]
    assert all(len(found) == 1 for found in colours.values())
    assert max(held.values(), default=0.0) <= (file["maxSizePerFPGA"] if limit_bytes is None else limit_bytes)


def loads(path: Path, device: Mapping[int, int]) -> dict[int, float]:
    """The load of each device that has nodes: compute, and on an accelerator each tensor that goes in or out, once."""
    file = json.loads(path.read_text())
    load = dict.fromkeys(device.values(), 0.0)
    for node in file["nodes"]:
        load[device[node["id"]]] += node["fpgaLatency" if device[node["id"]] > CPU else "cpuLatency"]
    paid: set[tuple[int, int]] = set()
    for edge in file["edges"]:
        a, b = edge["sourceId"], edge["destId"]
        if device[a] != device[b]:
            for d in (device[a], device[b]):
                if d > CPU and (a, d) not in paid:
                    paid.add((a, d))
                    load[d] += edge["cost"]
    return load


def latency(path: Path, device: Mapping[int, int]) -> float:
    """The time for one sample, each accelerator running once. Raises RecursionError where they wait for each other."""
    file = json.loads(path.read_text())
    load = loads(path, device)
    time = {node["id"]: node["cpuLatency"] for node in file["nodes"]}
    block = {i: ("acc", d) if d > CPU else ("cpu", i) for i, d in device.items()}
    before: dict[tuple[str, int], set[tuple[str, int]]] = {b: set() for b in block.values()}
    for edge in file["edges"]:
        a, b = block[edge["sourceId"]], block[edge["destId"]]
        if a != b:
            before[b].add(a)
    ends: dict[tuple[str, int], float] = {}

    def end(b: tuple[str, int]) -> float:
        if b not in ends:
            kind, i = b
            ends[b] = max((end(a) for a in before[b]), default=0.0) + (load[i] if kind == "acc" else time[i])
        return ends[b]

    return max(end(b) for b in before)


def total_cost(path: Path, device: Mapping[int, int]) -> float:
    """One CPU and one accelerator: all nodes' times, and each tensor that crosses, once."""
    file = json.loads(path.read_text())
    work = sum(node["fpgaLatency" if device[node["id"]] > CPU else "cpuLatency"] for node in file["nodes"])
    crossing = {e["sourceId"]: e["cost"] for e in file["edges"] if device[e["sourceId"]] != device[e["destId"]]}
    return float(work + sum(crossing.values()))


def pairwise(path: Path, choice: Sequence[int]) -> tuple[int, int, int]:
    """An instance of the contest on intra-operator parallelism: cost, most memory in use at any time, and its limit."""
    problem = json.loads(gzip.decompress(path.read_bytes()))["problem"]
    nodes, edges = problem["nodes"], problem["edges"]
    cost = sum(costs[c] for costs, c in zip(nodes["costs"], choice, strict=True))
    for (a, b), costs in zip(edges["nodes"], edges["costs"], strict=True):
        cost += costs[choice[a] * len(nodes["costs"][b]) + choice[b]]
    change = [0] * (1 + max(end for _, end in nodes["intervals"]))
    for (begin, end), usages, c in zip(nodes["intervals"], nodes["usages"], choice, strict=True):
        if begin < end:
            change[begin] += usages[c]
            change[end] -= usages[c]
    return cost, max(itertools.accumulate(change)), problem["usage_limit"]
