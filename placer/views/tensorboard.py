"""A placement for TensorBoard's graph page: runs "before" and "after", coloured by device, compute time and memory.

"before" is TensorFlow's own placement, "after" the plan. The predicted step is each run's metadata.
"""

from __future__ import annotations

import io
from collections import defaultdict
from typing import Any, Literal

from placer.common.device_spec import parse
from placer.plan.placement import Placement
from placer.views.graphdef import graph_def, protos

TAG = "predicted step"
FILE = "events.out.tfevents.0.placer"


def tensorboard(placement: Placement) -> dict[str, bytes]:
    """Event files by their paths below a log folder. Raises OptionError where tensorboard is not installed."""
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
    """Step statistics: when each op runs and what its outputs take. Whole microseconds, at least one for what takes time.

    The plan's ops are when they are predicted to be; TensorFlow's, whose schedule a plan does not carry, one after the other.
    """
    _, config_pb2, _, _, _ = protos()
    made = config_pb2.RunMetadata()
    stats: dict[str, Any] = {}
    clock: dict[str, int] = defaultdict(int)
    for op in placement.graph:
        plan = placement.ops[op.name]
        device = plan.device if devices == "plan" else plan.default
        if not device:
            continue
        if device not in stats:
            stats[device] = made.step_stats.dev_stats.add(device=parse(device).full)
        taken = plan.time_ns.get(device, 0)
        start = plan.start_ns if devices == "plan" else clock[device]
        clock[device] += taken
        node = stats[device].node_stats.add(node_name=op.name, all_start_micros=start // 1000)
        node.op_end_rel_micros = node.all_end_rel_micros = max(round(taken / 1000), int(taken > 0))
        node.memory.add(allocator_name=device, total_bytes=sum(spec.nbytes for spec in op.signature.outputs))
    return made
