"""Programs spread over logical CPU devices, planned, run and compared with the plain function; prints JSON.

A process of its own, since the tests' one has two devices: python -m tests.helpers.spread
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import placer
from placer.tf._private.runtime import recorded_partitions
from tests.helpers.copies import copies
from tests.helpers.machines import cpus
from tests.helpers.model_parallel import Program, encoder, mlp_training, towers

DEVICES, STEPS = 5, 5

RUNS = {
    "towers_2_prediction": (partial(towers, "small", trains=False), 3, 0.6),
    "towers_2_training": (partial(towers, "small"), 3, 0.5),
    "towers_8_training": (partial(towers, "small", count=8), 5, 0.3),
    "mlp_training": (partial(mlp_training, "small"), 3, 0.6),
    "mlp_training_on_4": (partial(mlp_training, "small"), 5, 0.35),
    "table_and_towers_2_training": (partial(towers, "small", rows=1_000), 3, 0.6),
    "encoder_training": (partial(encoder, "small"), 3, 0.5),
}
"""The program, how many devices there are with the host's, and what share of all of it each but the host's may hold."""


def run(program: Program, devices: int, share: float) -> dict[str, Any]:
    """How a placed program differs from the plain one in `STEPS` steps, where it ran, and what crossed between devices."""
    work, machine = program.work, cpus(devices)
    others = [device.name for device in machine.devices[1:]]
    whole = placer.solve(placer.build_graph(work.fn, *work.args), cpus(2), solver="all_cpu").totals["CPU:0"].peak_bytes
    limits = dict.fromkeys(others, int(share * whole))
    start = [v.numpy() for v in work.state]
    expected = steps(work.fn, program, start)

    placed = placer.place(work.fn, *work.args, devices=machine, variables="move", memory_limits=limits)
    seen = placed.observe(*work.args)
    plan, got = placed.placement, steps(placed, program, start)
    with recorded_partitions() as found:
        again = placed.prepare(*work.args).run.again()
        tf.nest.map_structure(lambda t: t.numpy(), again(*work.args))
    planned = {(t.tensor, t.src, t.dst) for t in plan.transfers if t.nbytes}
    made = set(copies(largest(found)))
    return {
        "wrong": [k for k, (a, b) in enumerate(zip(expected, got, strict=True)) if not np.allclose(a, b, rtol=1e-4, atol=1e-5)],
        "mismatches": [str(m) for m in seen.mismatches],
        "devices": sorted({p.device for p in plan.ops.values()}),
        "variables": sorted({short(v.device) for v in work.state}),
        "over limits": [name for name, limit in limits.items() if plan.totals[name].peak_bytes > limit],
        "copies": len(made),
        "not predicted": sorted(made - planned),
        "not made": sorted(copy for copy in planned - made if copy[0].partition(":")[0] not in seen.folded),
    }


def steps(fn: Any, program: Program, start: list[Any]) -> list[Any]:
    """What some steps from the start give, and the state after them."""
    for variable, value in zip(program.work.state, start, strict=True):
        variable.assign(value)
    results = [tf.nest.flatten(fn(*program.work.args)) for _ in range(STEPS)]
    return [t.numpy() for t in (*tf.nest.flatten(results), *program.work.state)]


def largest(found: list[Any]) -> Any:
    """The partitions of the largest of the functions that ran."""
    return max((f.partition_graphs for f in found), key=lambda parts: sum(len(graph.node) for graph in parts))


def short(device: str) -> str:
    spec = tf.DeviceSpec.from_string(device)
    return f"{spec.device_type}:{spec.device_index}"


def main() -> None:
    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * DEVICES)
    print(json.dumps({name: run(program(), devices, share) for name, (program, devices, share) in RUNS.items()}))


if __name__ == "__main__":
    main()
