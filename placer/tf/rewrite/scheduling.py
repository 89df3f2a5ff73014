"""A function that a coordinator schedules: each worker runs a private copy with the worker's own devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from cost_models.machines import task_of
from placer.common.device_spec import parse
from placer.tf._private.functions import ConcreteFunction, copy_flat_signature
from placer.tf._private.runtime import device_scope


class ScheduledFunction(ConcreteFunction):  # type: ignore[misc]
    """A ConcreteFunction whose calls in the device scope of a worker run the worker's copy. Other calls run the plain function.

    Args:
        plain: the function.
        copy_for: makes the copy for a worker, such as "worker:1", at its first call.
    """

    def __init__(self, plain: Any, copy_for: Callable[[str], Any]) -> None:
        super().__init__(plain.inference_fn)
        copy_flat_signature(plain, self)
        self._copy_for = copy_for
        self._copies: dict[str, Any] = {}
        self._lock = threading.Lock()  # a coordinator calls from a thread for each worker

    def _call_flat(self, tensor_inputs: Sequence[Any], captured_inputs: Sequence[Any]) -> Any:
        task = task_of(replace(parse(device_scope()), type="CPU", index=0).short)
        if not task:
            return super()._call_flat(tensor_inputs, captured_inputs)
        with self._lock, tf.device(None):
            if task not in self._copies:
                self._copies[task] = self._copy_for(task)
            copy = self._copies[task]
        return copy._call_flat(tensor_inputs, copy.captured_inputs)
