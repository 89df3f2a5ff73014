"""Plans that are made in a thread, while calls run as the plain function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from placer.common.warning import warn
from placer.errors import OptionError
from placer.placed.signatures import Signatures

_waits: ContextVar[bool] = ContextVar("waits", default=False)


@contextmanager
def waiting_for_plans() -> Iterator[None]:
    """While the block runs, calls of this thread wait for their plans."""
    token = _waits.set(True)
    try:
        yield
    finally:
        _waits.reset(token)


class BackgroundPlanning:
    """The signatures of a placed function that are planned in a thread, one after the other.

    Args:
        signatures: of the placed function.

    Raises:
        OptionError: its plans may move variables, which calls of the plain function use meanwhile.
    """

    def __init__(self, signatures: Signatures) -> None:
        if signatures.moves_variables:
            raise OptionError('planning="background" leaves variables where they are: leave out variables="move".')
        self._signatures = signatures
        self._begun: set[Hashable] = set()
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(1, f"placer plans {signatures.name}")

    def plain_function(self, key: Hashable | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """The plain function for a call that has no plan yet, which a thread makes; None for a call that waits for its plan.

        A call waits if a tape, a device scope or another function is around it, since the thread would make another plan. So does
        a call whose arguments have no key.
        """
        from placer.tf._private.runtime import device_scope
        from placer.tf.run import calling

        if key is None or _waits.get() or not calling.runs_on_its_own() or device_scope():
            return None
        with self._lock:
            if key not in self._begun:
                self._begun.add(key)
                self._thread.submit(self._plan, key, args, kwargs)
        return self._signatures.traceable  # type: ignore[no-any-return]

    def _plan(self, key: Hashable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        signatures = self._signatures
        try:
            signatures.prepare(args, kwargs, key)
        except Exception as error:
            warn(f"{signatures.name} runs unplaced, since it could not be planned: {type(error).__name__}: {error}")
        else:
            with self._lock:
                self._begun.discard(key)
