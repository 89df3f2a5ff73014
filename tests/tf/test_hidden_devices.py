"""Devices that the program hides from TensorFlow, or splits, before it plans: each case is a child process."""

from __future__ import annotations

import pytest

from tests.helpers import forked

SCRIPT = """
import numpy as np
import tensorflow as tf

cpus, gpus = (tf.config.list_physical_devices(kind) for kind in ("CPU", "GPU"))
HIDE

import placer
from placer.errors import DeviceError
from placer.tf.devices import local_machine, process_devices

logical = [*tf.config.list_logical_devices("CPU"), *tf.config.list_logical_devices("GPU")]
visible = [f"{device.device_type}:{device.name.rpartition(':')[2]}" for device in logical]
machine = local_machine()
assert [device.name for device in machine.devices] == [*process_devices()] == visible == EXPECTED, machine.devices
assert all(device.memory_bytes > 0 for device in machine.devices)

w = tf.Variable(tf.ones([4, 4]))

def plain(x):
    return tf.nn.relu(x @ w)

x = tf.ones([4, 4])
placed = placer.place(plain, x)
for _ in range(3):
    np.testing.assert_array_equal(placed(x), plain(x))
assert set(placed.placement.devices) == set(visible)
assert {op.device for op in placed.placement.ops.values()} <= set(visible)
try:
    placer.place(plain, x, devices="2xh100", pins={"*": "GPU:1"})(x)
except DeviceError as error:
    assert "GPU:1" in str(error) and "this process has" in str(error)
else:
    raise SystemExit("it ran on a device that is hidden")
print("as planned")
"""
SPLIT = """
tf.config.set_visible_devices(cpus[:1])
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 3)
"""
PART_OF_LAST = """
tf.config.set_visible_devices(gpus[-1:], "GPU")
for gpu in gpus[-1:]:
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=512)])
"""
HIDDEN = {
    "all GPUs": ('tf.config.set_visible_devices([], "GPU")', '["CPU:0"]'),
    "all but a CPU, which is split": (SPLIT, '["CPU:0", "CPU:1", "CPU:2"]'),
    "all but a part of a GPU": (PART_OF_LAST, '["CPU:0"] + ["GPU:0"] * bool(gpus)'),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_plans_are_for_the_devices_that_the_program_leaves(what: str) -> None:
    hide, expected = HIDDEN[what]
    script = SCRIPT.replace("HIDE", hide).replace("EXPECTED", expected)
    ended = forked.run("-c", script)
    assert (ended.returncode, ended.stdout) == (0, "as planned\n"), ended.stderr[-3000:]
