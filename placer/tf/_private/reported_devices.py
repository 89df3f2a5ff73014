"""The GPUs that TensorFlow reports to code that is traced: those of the machine that a function is planned for.

Code asks with `tf.config.list_logical_devices` and the like. Keras's LSTM and GRU do, and use cuDNN's op where there is a GPU.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import function_context

_reported = threading.local()
"""`gpus` is the number of GPUs that TensorFlow reports to this thread; absent or None: those of this process."""


@contextmanager
def reported_gpus(count: int | None) -> Iterator[None]:
    """While the block runs, TensorFlow reports `count` GPUs to this thread; None: the GPUs of this process.

    Functions that are traced in the block are traced anew, and their traces serve no call outside of it.
    """
    before = _count()
    if count == before:
        yield
        return
    _replace_questions()
    _reported.gpus = count
    _forget_answers()
    try:
        yield
    finally:
        _reported.gpus = before
        _forget_answers()


def _count() -> int | None:
    return getattr(_reported, "gpus", None)


@functools.cache
def _replace_questions() -> None:
    """Lets TensorFlow's questions for devices ask here first. Where nothing is reported, they go on to TensorFlow's own code."""
    cls = context.Context
    cls.list_logical_devices = _listing(cls.list_logical_devices, lambda i: context.LogicalDevice(f"/device:GPU:{i}", "GPU"))
    cls.list_physical_devices = _listing(
        cls.list_physical_devices, lambda i: context.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU")
    )
    own_count, own_key = cls.num_gpus, function_context.make_function_context

    def num_gpus(self: Any) -> int:
        count = _count()
        return int(own_count(self)) if count is None else count

    def make_function_context(scope_type: Any = None) -> Any:
        """The key of a function's trace, apart from its arguments."""
        key = own_key(scope_type)
        if _count() is None:
            return key
        around = key.context
        return key._replace(context=around._replace(device_functions=(*around.device_functions, f"{_count()} GPUs reported")))

    cls.num_gpus = num_gpus
    function_context.make_function_context = make_function_context


def _listing(own: Callable[..., list[Any]], gpu: Callable[[int], Any]) -> Callable[..., list[Any]]:
    """`own`, which lists devices of a type, with the reported GPUs; `gpu` makes the one with a number."""

    def devices(self: Any, device_type: str | None = None) -> list[Any]:
        count = _count()
        if count is None:
            return own(self, device_type)
        listed = [d for d in own(self) if d.device_type != "GPU"] + [gpu(i) for i in range(count)]
        return [d for d in listed if device_type in (None, d.device_type)]

    return devices


def _forget_answers() -> None:
    """Empties the cache in which Keras's convolutions keep the answer."""
    keras = sys.modules.get("keras.src.backend.tensorflow.nn")
    forget = getattr(getattr(keras, "_cpu_only", None), "cache_clear", None)
    if forget is not None:
        forget()
