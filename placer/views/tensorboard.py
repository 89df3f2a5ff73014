"""A placement for TensorBoard's graph page: runs "before" and "after", coloured by device, compute time and memory.

"before" is TensorFlow's own placement, "after" is the plan. Each run's metadata has the predicted step.
"""

from __future__ import annotations

import io
from collections import defaultdict
from typing import Any, Literal

from placer.common.device_spec import parse
from placer.common.escaping import identifier
from placer.plan.placement import Placement
from placer.views.shared.graph_def import graph_def, protos

TAG = "predicted step"
FILE = "events.out.tfevents.0.placer"


def tensorboard(placement: Placement) -> dict[str, bytes]:
    """Event files by their paths below a log folder. Raises OptionError if tensorboard is not installed."""
    _, _, event_pb2, _, _ = protos()
    from tensorboard.summary.writer.record_writer import RecordWriter

    runs: dict[str, Literal["plan", "default"]] = {"before": "default", "after": "plan"}
    files = {}
    for run, devices in runs.items():
        metadata = event_pb2.TaggedRunMetadata(tag=TAG, run_metadata=_predicted(placement, devices).SerializeToString())
        events = [
            event_pb2.Event(file_version="brain.Event:2"),
            event_pb2.Event(graph_def=graph_def(placement, devices).SerializeToString()),
            event_pb2.Event(tagged_run_metadata=metadata),
        ]
        out = io.BytesIO()
        writer = RecordWriter(out)
        for event in events:
            writer.write(event.SerializeToString())
        files[f"{run}/{FILE}"] = out.getvalue()
    return files


def _predicted(placement: Placement, devices: Literal["plan", "default"]) -> Any:
    """Step statistics: the time of each op and the bytes of its outputs.

    Times are whole microseconds, and at least one for an op that takes time. Ops of the plan start when they are predicted to
    start. A plan has no schedule of TensorFlow's own placement, so its ops are shown one after the other.
    """
    _, config_pb2, _, _, _ = protos()
    metadata = config_pb2.RunMetadata()
    stats: dict[str, Any] = {}
    next_ns: dict[str, int] = defaultdict(int)
    for op in placement.graph:
        plan = placement.ops[op.name]
        device = plan.device if devices == "plan" else plan.default
        if not device:
            continue
        if device not in stats:
            stats[device] = metadata.step_stats.dev_stats.add(device=parse(device).full)
        time_ns = plan.time_ns.get(device, 0)
        start_ns = plan.start_ns if devices == "plan" else next_ns[device]
        next_ns[device] += time_ns
        node = stats[device].node_stats.add(node_name=identifier(op.name), all_start_micros=start_ns // 1000)
        node.op_end_rel_micros = node.all_end_rel_micros = max(round(time_ns / 1000), int(time_ns > 0))
        node.memory.add(allocator_name=device, total_bytes=sum(spec.nbytes for spec in op.signature.outputs))
    return metadata
