"""Calls of a function whose fastest candidate is the function compiled as a whole, in a process that has not compiled it yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.tf.trace.tracing import Trace


class CompiledCalls:
    """Compiles a function at its first call. Where TensorFlow cannot compile it, calls run by a placement.

    Args:
        trace: of the function.
        device: the device to compile for, short.
        by_placement: the function that runs by the placement.
    """

    def __init__(self, trace: Trace, device: str, by_placement: Callable[..., Any]) -> None:
        self._trace = trace
        self._device = device
        self._by_placement = by_placement
        self._run: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._run is None:
            from placer.tf.run.compiling import compiled

            function, _ = compiled(self._trace, self._device, args, kwargs)
            self._run = function or self._by_placement
        return self._run(*args, **kwargs)
