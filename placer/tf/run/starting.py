"""Starts TensorFlow for a command. Its import takes seconds and writes messages that do not help the user of a command."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from placer.common.progress import progress
from placer.errors import OptionError


def import_tensorflow() -> None:
    """Imports TensorFlow. Its devices and threads can still be set.

    Raises:
        OptionError: it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with progress("starting TensorFlow"), _deferred_stderr():
        try:
            import tensorflow  # noqa: F401
        except ImportError as error:
            raise OptionError(
                "TensorFlow is not installed here. Without it, saved graphs can be planned for a machine by name: --devices h100."
            ) from error


def start(cpus: int = 1) -> None:
    """Imports TensorFlow and starts its runtime, with this many logical CPU devices where there is no GPU.

    Raises:
        OptionError: it is not installed.
    """
    import_tensorflow()
    import tensorflow as tf

    with _deferred_stderr():
        if cpus > 1 and not tf.config.list_physical_devices("GPU"):
            parts = [tf.config.LogicalDeviceConfiguration()] * cpus
            tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
        tf.config.list_logical_devices()


@contextmanager
def _deferred_stderr() -> Iterator[None]:
    """Collects the text that Python and C++ write to the process's standard error, and writes it only if the block fails."""
    sys.stderr.flush()
    with tempfile.TemporaryFile("w+") as collected:
        stderr = os.dup(2)
        os.dup2(collected.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(stderr, 2)
            collected.seek(0)
            shutil.copyfileobj(collected, sys.stderr)
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
