"""The machine that a benchmark runs on, as its records name it."""

from __future__ import annotations

from typing import Any

from cost_models.host_cores import usable_cores


def measured_on() -> dict[str, Any]:
    """The models of the visible GPUs, the number of host cores, and TensorFlow's version."""
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    names = [str(tf.config.experimental.get_device_details(gpu).get("device_name")) for gpu in gpus]
    return {"gpus": names, "cores": usable_cores(), "tensorflow": tf.__version__}
