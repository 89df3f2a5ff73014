"""What a GPU really holds: the limit that plans are made for, and moves that need room for one more variable only.

TensorFlow fixes how much of a GPU a process gets when it starts, so each case is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

MIB = 1 << 20
CHILD_S = 120

pytestmark = pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="needs a GPU")


def child(case: str, **options: Any) -> dict[str, Any]:
    """What the function of this name in this module gives, in a process of its own."""
    with started(case, **options) as process:
        out, _ = process.communicate(timeout=CHILD_S)
    assert process.returncode == 0
    return dict(json.loads(out.splitlines()[-1]))


def started(case: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.tf.run.test_gpu_limits", case, json.dumps(options)]
    root = Path(__file__).parents[3]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=root, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    )


@pytest.mark.parametrize("start", ["default", "growth", "limit"])
def test_plans_count_on_what_tensorflow_gets(start: str) -> None:
    """As much as plans may use can be held at once, and no more than the memory that they say the GPU has."""
    found = child("filled", start=start)
    assert found["usable_bytes"] <= found["held_bytes"] <= found["memory_bytes"]
    if start == "limit":
        assert found["memory_bytes"] == LIMIT_MIB * MIB


@pytest.mark.parametrize("start", ["default", "growth"])
def test_plans_do_not_count_on_what_other_processes_hold(start: str) -> None:
    with started("holding", mib=HELD_MIB) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        total = int(other.stdout.readline())
        found = child("filled", start=start)
        other.stdin.close()
    assert found["usable_bytes"] <= found["held_bytes"] <= found["memory_bytes"] <= total - HELD_MIB * MIB


@pytest.mark.parametrize("there", ["CPU:0", "GPU:1"])
def test_an_exchange_needs_room_for_one_variable(there: str) -> None:
    """Four variables leave a GPU that has room for one more, and four come."""
    found = child("exchanged", there=there)
    assert found["moved"] == found["sums"] == [True] * (2 * COUNT)
    assert max(found["peak_bytes"]) <= (COUNT + 1) * VARIABLE_MIB * MIB + MIB


# -- in a process of its own -----------------------------------------------------------------------------------------------

LIMIT_MIB = 1024
HELD_MIB = 20 * 1024
COUNT, VARIABLE_MIB = 4, 160


def begin(start: str, parts: int = 1) -> None:
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_visible_devices([gpu], "GPU")
    if start == "growth":
        tf.config.experimental.set_memory_growth(gpu, True)
    elif start == "limit":
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MIB)] * parts)


def filled(start: str) -> dict[str, Any]:
    """What plans may use of a GPU, and how much was held of it when TensorFlow refused more."""
    from placer.problem.formulate import limits
    from placer.tf.devices import local_machine

    begin(start)
    machine = local_machine()
    memory = machine.device("GPU:0").memory_bytes
    piece = max(MIB, memory >> 9)
    held: list[tf.Tensor] = []
    try:
        with tf.device("GPU:0"):
            while len(held) * piece <= 2 * memory:
                held.append(tf.zeros([piece // 4]))
    except tf.errors.ResourceExhaustedError:
        pass
    return {
        "memory_bytes": memory,
        "usable_bytes": limits(machine, {})["GPU:0"],
        "held_bytes": tf.config.experimental.get_memory_info("GPU:0")["current"],
    }


def holding(mib: int) -> dict[str, Any]:
    """Holds as much of the GPU until its input ends; says first how much the GPU has."""
    from placer.tf.devices import local_machine

    begin("growth")
    with tf.device("GPU:0"):
        kept = tf.zeros([mib * MIB // 4])
    print(local_machine().device("GPU:0").memory_bytes, flush=True)
    sys.stdin.read()
    return {"kept": int(tf.size(kept))}


def exchanged(there: str) -> dict[str, Any]:
    """Variables of GPU:0 and ones of another device change places before a placed call."""
    import placer

    begin("limit", parts=2)
    variables = []
    for k in range(2 * COUNT):
        with tf.device("GPU:0" if k < COUNT else there):
            variables.append(tf.Variable(tf.fill([VARIABLE_MIB * MIB // 4], k + 1.0), name=f"v{k}"))
    pins = {f"v{k}": there if k < COUNT else "GPU:0" for k in range(2 * COUNT)}
    devices = [there, "GPU:0"]

    @placer.optimized_placement(variables="move", pins=pins)
    def corners() -> list[Any]:
        return [v[:4] for v in variables]

    for name in ("GPU:0", "GPU:1"):
        tf.config.experimental.reset_memory_stats(name)
    ends = corners()
    return {
        "moved": [variables[k].device.endswith(devices[k >= COUNT]) for k in range(2 * COUNT)],
        "sums": [float(tf.reduce_sum(end)) == 4 * (k + 1) for k, end in enumerate(ends)],
        "peak_bytes": [tf.config.experimental.get_memory_info(name)["peak"] for name in ("GPU:0", "GPU:1")],
    }


if __name__ == "__main__":
    CASES: dict[str, Callable[..., dict[str, Any]]] = {"filled": filled, "holding": holding, "exchanged": exchanged}
    print(json.dumps(CASES[sys.argv[1]](**json.loads(sys.argv[2]))))
