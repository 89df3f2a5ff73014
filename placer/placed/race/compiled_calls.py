"""Calls of a function whose fastest candidate is the function compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.tf.run.compiling import CompiledFunction
    from placer.tf.trace.tracing import Trace


class CompiledCalls:
    """Runs calls compiled where they are eager and no tape or strategy sees them, and by a placement everywhere else.

    Args:
        trace: of the function.
        device: the device to compile for, short.
        by_placement: the function that runs the other calls, and all calls if TensorFlow cannot compile it any more.
        compiled: the compiled function; None lets the first call compile it.
    """

    def __init__(
        self, trace: Trace, device: str, by_placement: Callable[..., Any], compiled: CompiledFunction | None = None
    ) -> None:
        self._trace = trace
        self._device = device
        self._by_placement = by_placement
        self._run: Callable[..., Any] | None = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from placer.tf.run.calling import runs_on_its_own

        if not runs_on_its_own():
            return self._by_placement(*args, **kwargs)
        run = self._run or self._first_run(args, kwargs)
        return run(*args, **kwargs)

    def _first_run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        from placer.tf.run.compiling import compiled

        function, _ = compiled(self._trace, self._device, args, kwargs)
        self._run = function or self._by_placement
        return self._run
