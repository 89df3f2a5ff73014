"""What the ops of a placed function took in real steps, read from TensorFlow's profiler.

The profiler names each kernel's run on the host "node:type", and on a GPU gives each kernel and copy the node that started it.
What Grappler fused goes by the name of one of its parts and has another type, so it is told but is no op's measurement.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cost_models.base import OpSignature
from cost_models.machines import Machine
from cost_models.measurements import Measurement
from placer.common.units import format_bytes
from placer.errors import PlacerError
from placer.plan.placement import Placement
from placer.plan.spans import Span
from placer.tf.run.observing import planned_names

EVERYTHING = 3
"""The profiler's level at which it records cheap ops too."""
_ONE_DNN = ("_MklNative", "_Mkl")
"""What oneDNN's kernels have before the type of the op that they run."""


@dataclass(frozen=True)
class NodeTime:
    """What a node took; a figure for each run."""

    op_type: str
    """As it ran: a fused op's own."""
    host_ns: tuple[int, ...]
    """In the kernel's code: all of it on a CPU, the launch on a GPU."""
    device_ns: tuple[int, ...]
    """On a GPU, the kernels that a run started, together."""


@dataclass(frozen=True)
class CopyTime:
    """A tensor's way from one device's memory to another's, a figure for each copy."""

    node: str
    """That made it, by its name in the executed graph."""
    nbytes: int
    kind: str
    """"MemcpyH2D", "MemcpyD2H" or "MemcpyP2P"."""
    time_ns: tuple[int, ...]
    """Of the bytes on their way, waiting not included."""


@dataclass(frozen=True)
class Harvest:
    """Real steps of a placed function."""

    steps: int
    nodes: Mapping[str, NodeTime]
    """By planned op. What TensorFlow folded away or moves around is not there."""
    copies: tuple[CopyTime, ...]
    others: Mapping[str, NodeTime]
    """By name in the executed graph: what no planned op became."""
    spans: tuple[Span, ...]
    """Every run of a node, kernel and copy, times from the first: for `placement.view("timeline", measured=spans)`."""

    def measurements(self, placement: Placement, machine: Machine) -> Iterator[tuple[str, OpSignature, Measurement]]:
        """Device model, signature and figures of each op that ran as itself; equal ops together."""
        host = machine.devices[0]
        runs: dict[tuple[str, OpSignature], list[NodeTime]] = defaultdict(list)
        for name, node in self.nodes.items():
            op = placement.graph.op(name)
            if node.host_ns and op.op_type in {node.op_type, *(node.op_type.removeprefix(prefix) for prefix in _ONE_DNN)}:
                runs[placement.ops[name].device, op.signature].append(node)
        for (name, signature), nodes in runs.items():
            device = machine.device(name)
            host_ns = np.concatenate([node.host_ns for node in nodes])
            if device.asynchronous:
                device_ns = np.concatenate([node.device_ns or (0,) for node in nodes])
                dispatch, compute = host.dispatch_ns + round(float(np.median(host_ns))), round(float(np.median(device_ns)))
                time_ns, samples = max(dispatch, compute), host_ns if dispatch > compute else device_ns
            else:
                dispatch, compute = device.dispatch_ns, round(float(np.median(host_ns)))
                time_ns, samples = dispatch + compute, host_ns
            low, quarter = np.percentile(samples, (0, 25))
            yield (
                device.model,
                signature,
                Measurement(time_ns, dispatch, compute, round(float((quarter - low) / (time_ns or 1)), 3), harvested=True),
            )


def harvest(step: Callable[[], object], placement: Placement, steps: int) -> Harvest:
    """Runs a function for some steps under the profiler.

    Args:
        step: a call that waits for what it starts.
        placement: the plan that it runs by.
        steps: how many.

    Raises:
        PlacerError: something else in this process is being profiled.
    """
    return read(recorded(step, steps), placement, steps)


def recorded(step: Callable[[], object], steps: int) -> bytes:
    """TensorFlow's record of some steps: an XSpace, serialised."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.profiler.experimental.start(folder, tf.profiler.experimental.ProfilerOptions(host_tracer_level=EVERYTHING))
        except tf.errors.OpError as error:
            raise PlacerError(f"TensorFlow's profiler does not start: {error.message}") from error
        try:
            for _ in range(steps):
                step()
        finally:
            tf.profiler.experimental.stop()
        return next(Path(folder).rglob("*.xplane.pb")).read_bytes()


def read(space: bytes, placement: Placement, steps: int) -> Harvest:
    """What an XSpace tells of a plan's ops; see `recorded`."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    record = xplane_pb2.XSpace.FromString(space)
    host: dict[tuple[str, str], list[int]] = defaultdict(list)
    device: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    copies: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    spans: list[Span] = []
    for plane in record.planes:
        on_device = plane.name.startswith("/device:GPU")
        process = f"{plane.name.removeprefix('/device:')} measured" if on_device else "host measured"
        for number, line in enumerate(plane.lines, 1):
            # TensorFlow's threads are called "tf_Compute/-3111843294912215327".
            track = line.name or f"line {line.id}" if on_device else f"{line.name.partition('/')[0] or 'thread'} {number}"
            for event in line.events:
                label, stats = plane.event_metadata[event.metadata_id].name, _stats(plane, event)
                took, start = round(event.duration_ps / 1000), line.timestamp_ns + event.offset_ps // 1000
                end = line.timestamp_ns + (event.offset_ps + event.duration_ps) // 1000
                if not on_device:
                    node, colon, op_type = label.rpartition(":")
                    if not colon or "::" in label or " " in label:
                        continue
                    if op_type not in _MOVING:
                        host[node, op_type].append(took)
                    name, about = op_type, {"op": node}
                elif label.startswith("Memcpy"):
                    details = dict(part.partition(":")[::2] for part in str(stats.get("memcpy_details", "")).split())
                    nbytes = int(details.get("size", 0))
                    copies[_node(stats)[0], nbytes, label].append(took)
                    name, about = f"{label} {format_bytes(nbytes)}", {"op": _node(stats)[0]}
                elif _node(stats)[0]:
                    device[_node(stats)].append((start, took))
                    name, about = label, dict(zip(("op", "type"), _node(stats), strict=True))
                else:
                    continue
                spans.append(Span(process, track, name, start, end, about))
    nodes: dict[str, NodeTime] = {}
    others: dict[str, NodeTime] = {}
    for key in dict.fromkeys((*host, *device)):
        name, op_type = key
        found = NodeTime(op_type, tuple(host[key]), _per_run(device[key], len(host[key]) or steps))
        planned = next((p for p in planned_names(name) if p in placement.ops), None)
        if planned is None or planned in nodes:
            others[name] = found
        else:
            nodes[planned] = found
    moved = tuple(CopyTime(node, nbytes, kind, tuple(took)) for (node, nbytes, kind), took in copies.items())
    begin = min((span.start_ns for span in spans), default=0)
    since = (replace(span, start_ns=span.start_ns - begin, end_ns=span.end_ns - begin) for span in spans)
    return Harvest(steps, nodes, moved, others, tuple(since))


_MOVING = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv"})


def _node(stats: Mapping[str, Any]) -> tuple[str, str]:
    name, _, op_type = str(stats.get("tf_op", "")).rpartition(":")
    return name, op_type


def _per_run(kernels: list[tuple[int, int]], runs: int) -> tuple[int, ...]:
    """An op's kernels, of all its runs, as a sum for each run; each run has the same number of them, in order of time."""
    if not kernels or len(kernels) % runs:
        return (round(sum(took for _, took in kernels) / runs),) * runs if kernels else ()
    times = np.array([took for _, took in sorted(kernels)], np.int64).reshape(runs, -1)
    return tuple(times.sum(axis=1).tolist())


def _stats(plane: Any, event: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind) if kind else None
        found[plane.stat_metadata[stat.metadata_id].name] = plane.stat_metadata[value].name if kind == "ref_value" else value
    return found
