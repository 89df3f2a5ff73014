"""Settings of TensorFlow's devices, each in a process of its own: plans use what there is, and calls run there."""

from __future__ import annotations

import pytest

from tests.helpers import forked

CODE = """
import sys
import numpy as np
import tensorflow as tf
import placer
from tests.helpers.machines import cpus

visible, parts, soft = map(int, sys.argv[1:])
if not visible:
    tf.config.set_visible_devices([], "GPU")
host = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * parts)
tf.config.set_soft_device_placement(bool(soft))

def step(x):
    return tf.reduce_sum(tf.tanh(x @ x))

names = [device.name.partition("device:")[2] for device in tf.config.list_logical_devices()]
assert [name for name in names if name.startswith("CPU")] == [f"CPU:{k}" for k in range(parts)]
x = tf.ones([8, 8])
here = placer.place(step)
here(x)
assert set(here.placement.devices) == set(names), here.placement.devices
last = f"CPU:{parts - 1}"
pinned = placer.place(step, devices=cpus(parts), pins={"MatMul": last})
np.testing.assert_allclose(pinned(x), step(x), rtol=1e-6)
ran = pinned.observe(x).ran
assert {ran[op.name] for op in pinned.placement.graph if op.op_type == "MatMul"} == {last}
assert tf.config.get_soft_device_placement() == bool(soft)
"""


@pytest.mark.parametrize(("visible", "parts", "soft"), [(0, 1, 0), (0, 3, 1), (0, 3, 0)])
def test_plans_are_for_the_devices_that_are_set(visible: int, parts: int, soft: int) -> None:
    done = forked.run("-c", CODE, *map(str, (visible, parts, soft)))
    assert done.returncode == 0, done.stderr[-2000:]
