"""Private names of TensorFlow that tracing, rewriting and running need: one module for each area of TensorFlow.

The private names of the kernel registry and of the device list are imported where they are used, in `placer.tf.trace.kernels`,
`placer.tf.trace.optypes` and `placer.tf.devices`.
"""

from __future__ import annotations

import tensorflow as tf

SUPPORTED = ("2.20", "2.21")
"""TensorFlow versions for which these names were checked."""


def version_note() -> str:
    """A warning for a TensorFlow version that was not checked; "" for one that was."""
    if tf.__version__.startswith(tuple(v + "." for v in SUPPORTED)):
        return ""
    return f"TensorFlow {tf.__version__} is outside the versions placer was checked with ({', '.join(SUPPORTED)})"
