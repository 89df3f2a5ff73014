"""Plans for a GPU made by a TensorFlow without GPU support, compared with those made by this environment's TensorFlow.

    python -m tests.benchmarks.cpu_build PYTHON

PYTHON is the interpreter of an environment with `tensorflow-cpu` and placer's other dependencies. `make cpu-build` makes one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import placer
from examples.workloads import WORKLOADS
from tests.benchmarks.more_workloads import MORE

MACHINES = ("h100", "2xh100")
EFFORT = 2000


def plans() -> dict[str, dict[str, Any]]:
    """By function and machine: the graph's fingerprint, the device of each op, the predicted step time, and the snapshot used."""
    made = {}
    for name, build in {**WORKLOADS, **MORE}.items():
        work = build("small")
        graph = placer.build_graph(work.fn, *work.args, devices="h100")
        for machine in MACHINES:
            plan = placer.solve(graph, machine, effort=EFFORT)
            made[f"{name} on {machine}"] = {
                "fingerprint": plan.fingerprint,
                "devices": {op: planned.device for op, planned in plan.ops.items()},
                "step_time_ns": plan.step_time_ns,
                "snapshot": graph.kernel_snapshot,
            }
    return made


def plans_by(python: str) -> dict[str, dict[str, Any]]:
    """The plans that an interpreter makes, from nothing that is remembered or measured."""
    environment = {**os.environ, "PLACER_CACHE": os.devnull}
    command = [python, "-m", "tests.benchmarks.cpu_build"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    plans: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return plans


def main() -> None:
    if len(sys.argv) == 1:
        print(json.dumps(plans()))
        return
    here, there = map(plans_by, (sys.executable, sys.argv[1]))
    different = 0
    for name, own in here.items():
        other = there[name]
        snapshot = other.pop("snapshot")
        assert snapshot, f"{sys.argv[1]} has a TensorFlow with GPU support"
        assert not own.pop("snapshot"), f"{sys.executable} has a TensorFlow without GPU support"
        on_gpu = sum(device.startswith("GPU") for device in own["devices"].values())
        different += own != other
        print(f"{name}: {'equal' if own == other else 'DIFFERENT'}; {on_gpu} of {len(own['devices'])} ops on GPUs ({snapshot})")
    print(f"{len(here) - different} plans equal, {different} different")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
