"""Times of a placed function's ops in real steps, read from TensorFlow's profiler.

The profiler names each run of a kernel on the host "node:type". On a GPU, it gives for each kernel and copy the node that started
it. A fused op has the name of one of its parts and a type of its own: its time is reported, but is no measurement of an op.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from placer.tf.run.executed_names import planned_names
from placer.tf.run.observing import TRANSFER_OPS

ALL_OPS = 3
"""The profiler's `host_tracer_level` at which it records cheap ops too."""
_ONEDNN_PREFIXES = ("_MklNative", "_Mkl")
"""oneDNN's kernels have one of these before the type of the op that they run."""


@dataclass(frozen=True)
class NodeTime:
    """Times of a node, one for each run."""

    op_type: str
    """The op type that ran; for a fused op, the type of the fused op."""
    host_ns: tuple[int, ...]
    """Host time in the kernel's code: on a CPU, the whole computation; on a GPU, the launch."""
    device_ns: tuple[int, ...]
    """GPU time: the sum over the kernels that a run started."""


@dataclass(frozen=True)
class CopyTime:
    """Times of the copies of a tensor from one device's memory to another's."""

    node: str
    """The node that made the tensor, by its name in the executed graph."""
    nbytes: int
    kind: str
    """"MemcpyH2D", "MemcpyD2H" or "MemcpyP2P"."""
    time_ns: tuple[int, ...]
    """One for each copy: how long bytes were transferred, without waiting."""


@dataclass(frozen=True)
class Harvest:
    """Times from real steps of a placed function."""

    steps: int
    nodes: Mapping[str, NodeTime]
    """By planned op; without ops that TensorFlow folded away or moves to other places."""
    copies: tuple[CopyTime, ...]
    others: Mapping[str, NodeTime]
    """Nodes that belong to no planned op, by name in the executed graph."""
    spans: tuple[Span, ...]
    """Every run of a node, kernel and copy, times from the first: for `placement.view("timeline", measured=spans)`."""

    def measurements(self, placement: Placement, machine: Machine) -> Iterator[tuple[str, OpSignature, Measurement]]:
        """Device model, signature and measurement of each op that ran under its own type; equal ops are measured together."""
        host = machine.devices[0]
        runs: dict[tuple[str, OpSignature], list[NodeTime]] = defaultdict(list)
        for name, node in self.nodes.items():
            op = placement.graph.op(name)
            types = {node.op_type, *(node.op_type.removeprefix(prefix) for prefix in _ONEDNN_PREFIXES)}
            if node.host_ns and op.op_type in types:
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
        step: a call that waits for its results.
        placement: the plan that it runs by.
        steps: how many.

    Raises:
        PlacerError: another part of this process uses the profiler.
    """
    return read_record(record_steps(step, steps), placement, steps)


def record_steps(step: Callable[[], object], steps: int) -> bytes:
    """TensorFlow's record of some steps: a serialised XSpace."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.profiler.experimental.start(folder, tf.profiler.experimental.ProfilerOptions(host_tracer_level=ALL_OPS))
        except tf.errors.OpError as error:
            raise PlacerError(f"TensorFlow's profiler does not start: {error.message}") from error
        try:
            for _ in range(steps):
                step()
        finally:
            tf.profiler.experimental.stop()
        return next(Path(folder).rglob("*.xplane.pb")).read_bytes()


def read_record(space: bytes, placement: Placement, steps: int) -> Harvest:
    """The times of a plan's ops in a record of `record_steps`."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    events = _Events()
    for plane in xplane_pb2.XSpace.FromString(space).planes:
        events.add_plane(plane)
    nodes: dict[str, NodeTime] = {}
    others: dict[str, NodeTime] = {}
    for key in dict.fromkeys((*events.host, *events.kernels)):
        name, op_type = key
        host_ns = tuple(events.host[key])
        node = NodeTime(op_type, host_ns, _per_run(events.kernels[key], len(host_ns) or steps))
        planned = next((p for p in planned_names(name) if p in placement.ops), None)
        if planned is None or planned in nodes:
            others[name] = node
        else:
            nodes[planned] = node
    copies = tuple(CopyTime(node, nbytes, kind, tuple(times)) for (node, nbytes, kind), times in events.copies.items())
    begin = min((span.start_ns for span in events.spans), default=0)
    spans = (replace(span, start_ns=span.start_ns - begin, end_ns=span.end_ns - begin) for span in events.spans)
    return Harvest(steps, nodes, copies, others, tuple(spans))


@dataclass
class _Events:
    """The events of a record, by what they time."""

    host: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    """By node and op type: ns of each run on the host."""
    kernels: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By node and op type: start and duration in ns of each kernel on a GPU."""
    copies: dict[tuple[str, int, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    """By node, bytes and kind of copy: ns of each copy."""
    spans: list[Span] = field(default_factory=list)

    def add_plane(self, plane: Any) -> None:
        """Adds the events of the host or of one GPU."""
        on_gpu = plane.name.startswith("/device:GPU")
        process = f"{plane.name.removeprefix('/device:')} measured" if on_gpu else "host measured"
        for number, line in enumerate(plane.lines, 1):
            # TensorFlow's threads are called, for example, "tf_Compute/-3111843294912215327".
            track = line.name or f"line {line.id}" if on_gpu else f"{line.name.partition('/')[0] or 'thread'} {number}"
            for event in line.events:
                label = plane.event_metadata[event.metadata_id].name
                duration_ns, start_ns = round(event.duration_ps / 1000), line.timestamp_ns + event.offset_ps // 1000
                end_ns = line.timestamp_ns + (event.offset_ps + event.duration_ps) // 1000
                if on_gpu:
                    named = self._add_gpu_event(label, _stats(plane, event), start_ns, duration_ns)
                else:
                    named = self._add_host_event(label, duration_ns)
                if named is not None:
                    name, about = named
                    self.spans.append(Span(process, track, name, start_ns, end_ns, about))

    def _add_host_event(self, label: str, duration_ns: int) -> tuple[str, dict[str, str]] | None:
        """Adds an event of the host; returns the name and details of its span, None for an event of no node."""
        node, colon, op_type = label.rpartition(":")
        if not colon or "::" in label or " " in label:
            return None
        if op_type not in TRANSFER_OPS:
            self.host[node, op_type].append(duration_ns)
        return op_type, {"op": node}

    def _add_gpu_event(
        self, label: str, stats: Mapping[str, Any], start_ns: int, duration_ns: int
    ) -> tuple[str, dict[str, str]] | None:
        """Adds a copy or a kernel; returns the name and details of its span, None for an event of no node."""
        node, _, op_type = str(stats.get("tf_op", "")).rpartition(":")
        if label.startswith("Memcpy"):
            details = dict(part.partition(":")[::2] for part in str(stats.get("memcpy_details", "")).split())
            nbytes = int(details.get("size", 0))
            self.copies[node, nbytes, label].append(duration_ns)
            return f"{label} {format_bytes(nbytes)}", {"op": node}
        if not node:
            return None
        self.kernels[node, op_type].append((start_ns, duration_ns))
        return label, {"op": node, "type": op_type}


def _per_run(kernels: list[tuple[int, int]], runs: int) -> tuple[int, ...]:
    """The sum of an op's kernel times for each run. Each run has equally many kernels, in the order of their starts.

    If the kernels cannot be divided among the runs, each run gets the mean.
    """
    if not kernels or len(kernels) % runs:
        return (round(sum(duration for _, duration in kernels) / runs),) * runs if kernels else ()
    times = np.array([duration for _, duration in sorted(kernels)], np.int64).reshape(runs, -1)
    return tuple(times.sum(axis=1).tolist())


def _stats(plane: Any, event: Any) -> dict[str, Any]:
    """The stats of an event by name."""
    values: dict[str, Any] = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind) if kind else None
        name = plane.stat_metadata[stat.metadata_id].name
        values[name] = plane.stat_metadata[value].name if kind == "ref_value" else value
    return values
