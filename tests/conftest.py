"""One TensorFlow for the whole test process: two logical CPU devices, quiet, and repeatable."""

from __future__ import annotations

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] = "1"  # it refuses at once; TensorFlow's own for CPUs first waits 10 s for memory
os.environ["PLACER_CACHE"] = os.devnull  # what the user measured must not decide what a test sees; nothing is under /dev/null

import keras
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, settings

# Before anything initialises TensorFlow: afterwards devices cannot be added. Two CPU devices have real sends and receives.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
tf.config.experimental.enable_tensor_float_32_execution(False)

# Traces live long: the usual ten times as many full collections take a tenth of the time of all tests.
gc.set_threshold(700, 10, 100)
# What the imports above made lives to the end. Otherwise each collection, and each search for live objects, goes through it.
gc.collect()
gc.freeze()

# The first call of a TensorFlow function takes seconds, so there are no deadlines.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")  # `make fuzz` takes the other, with new seeds


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test starts from the same random numbers, whichever tests ran before it."""
    keras.utils.set_random_seed(0)
