"""Measures the phases of planning beside tracing and the first call, and how they grow with the number of ops.

    python -m tests.benchmarks.bench_planning

It plans training steps of stacked encoders for the devices that TensorFlow sees. Without a GPU these are two logical CPU
devices, one of which is priced as a GPU. The first line is a cold start, which includes every import. "sizes s" is the part of
"graph s" that derives sizes. "place+call" is `placer.place` and a first call of a function that is traced already: planning, and
what the first call of a plain function takes too. In the line with "open", batch and length are unknown in the trace, and follow
from the arguments. The last line is a graph of 100,000 ops: copies of the graph of the 12-layer encoder, each fed by the one
before. It has no function, so it is only solved.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import networkx as nx
import tensorflow as tf

import placer
from cost_models.base import OpSignature
from examples.workloads import encoder_training
from placer.graph.op_graph import OpGraph, OpNode, TensorEdge
from placer.tf.devices import full_name
from placer.tf.rewrite.rewriting import rewrite
from placer.tf.trace.known_sizes import KnownSizes

T = TypeVar("T")

SYNTHETIC_OPS = 100_000
COLUMNS = (
    ("", 10),
    ("ops", 8),
    ("trace s", 10),
    ("call s", 10),
    ("graph s", 10),
    ("sizes s", 10),
    ("costs+solve s", 15),
    ("rewrite s", 11),
    ("planning s", 12),
    ("us an op", 10),
    ("of trace+call", 15),
    ("place+call s", 14),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[12, 3, 6, 12, 25], help="encoder layers, in this order; 12 brings the last line"
    )
    args = parser.parse_args()
    os.environ["PLACER_CACHE"] = os.devnull  # a plan that is remembered would not be planned
    machine = machine_to_plan_for()
    print_row(*(title for title, _ in COLUMNS))
    twelve: OpGraph | None = None
    for layers in args.layers:
        graph = encoder_row(layers, machine)
        twelve = graph if layers == 12 else twelve
    if twelve:
        encoder_row(12, machine, is_open=True)
        synthetic_row(twelve, machine)
    return 0


def machine_to_plan_for() -> Any:
    """None, which is what TensorFlow sees, where that has a GPU."""
    if tf.config.list_physical_devices("GPU"):
        return None
    from tests.helpers.machines import two_cpus

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return two_cpus(link_latency_ns=70_000)  # what a GPU's link takes


def encoder_row(layers: int, machine: Any, is_open: bool = False) -> OpGraph:
    work = encoder_training("full", layers)
    fn = work.fn
    if is_open:
        fn = tf.function(fn.python_function, input_signature=[tf.TensorSpec([None, None], x.dtype) for x in work.args])
    _, trace_s = timed(lambda: fn.get_concrete_function(*work.args))
    _, call_s = timed(lambda: fn(*work.args))
    trace, read_s = timed(lambda: placer.trace(fn, *work.args))
    _, sizes_s = timed(lambda: KnownSizes(trace))
    graph, build_s = timed(lambda: placer.build_graph(trace))
    placement, solve_s = timed(lambda: placer.solve(graph, machine))
    devices = {name: full_name(plan.device) for name, plan in placement.ops.items()}
    _, rewrite_s = timed(lambda: rewrite(trace, devices))
    _, whole_s = timed(lambda: placer.place(fn, *work.args, devices=machine)(*work.args))
    graph_s = read_s + build_s
    planning_s, ops = graph_s + solve_s + rewrite_s, len(graph.graph)
    times = (f"{t:.2f}" for t in (trace_s, call_s, graph_s, sizes_s, solve_s, rewrite_s, planning_s))
    share = f"{planning_s / (trace_s + call_s):.0%}"
    print_row(
        f"{layers} {'open' if is_open else 'layers'}", ops, *times, f"{1e6 * planning_s / ops:.0f}", share, f"{whole_s:.2f}"
    )
    return graph


def synthetic_row(graph: OpGraph, machine: Any) -> None:
    long, _ = timed(lambda: in_a_row(graph, round(SYNTHETIC_OPS / len(graph.graph))))
    _, solve_s = timed(lambda: placer.solve(long, machine))
    ops = len(long.graph)
    print_row("synthetic", ops, "", "", "", "", f"{solve_s:.2f}", "", f"{solve_s:.2f}", f"{1e6 * solve_s / ops:.0f}")


def print_row(*cells: object) -> None:
    print("".join(f"{cell!s:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=False)), flush=True)


def in_a_row(graph: OpGraph, copies: int) -> OpGraph:
    """Copies of a graph with variables of their own, each copy's arguments computed from the result of the one before."""
    result, index = graph.outputs[0]
    spec = node(graph, result).signature.outputs[index]
    long = nx.DiGraph()
    for i in range(copies):
        for name in graph.graph:
            op = node(graph, name)
            signature = op.signature
            fed = i > 0 and op.role == "argument"
            if fed:
                signature = OpSignature("Identity", (spec,), signature.outputs)
            copy = dataclasses.replace(
                op,
                name=f"{i}/{name}",
                op_type=signature.op_type,
                signature=signature,
                role="op" if fed else op.role,
                location="" if fed else op.location,
                resource=op.resource and f"{i}/{op.resource}",
                group=op.group and f"{i}/{op.group}",
            )
            long.add_node(copy.name, op=copy)
            if fed:
                long.add_edge(f"{i - 1}/{result}", copy.name, tensors=(TensorEdge(index, 0),), control=False)
        long.add_edges_from((f"{i}/{a}", f"{i}/{b}", data) for a, b, data in graph.graph.edges(data=True))
    return dataclasses.replace(
        graph,
        name=f"{copies} x {graph.name}",
        graph=long,
        resources={f"{i}/{key}": resource for i in range(copies) for key, resource in graph.resources.items()},
        group_reasons={f"{i}/{key}": reason for i in range(copies) for key, reason in graph.group_reasons.items()},
        outputs=((f"{copies - 1}/{result}", index),),
    )


def node(graph: OpGraph, name: str) -> OpNode:
    op: OpNode = graph.graph.nodes[name]["op"]
    return op


def timed(run: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    value = run()
    return value, time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
