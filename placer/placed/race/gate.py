"""What keeps threads apart while variables move: a lock for all plans, and a gate for the calls of each placed function."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOVING_LOCK = threading.RLock()
"""Serialises planning between functions whose plans may move variables: two plans must not move the same variable at once."""


class Gate:
    """Passed by every call of a placed function, as long as its variables may move unasked.

    It counts the calls that run, and lets one thread wait until no other thread makes one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: dict[int, int] = {}
        """By id of a thread: how many calls it runs, one inside the other."""
        self._closed = False
        self._waiting: set[int] = set()

    @property
    def waiting(self) -> frozenset[int]:
        """Ids of the threads that wait to make a call."""
        return frozenset(self._waiting)

    def __enter__(self) -> None:
        """Begins a call. It waits while another thread is alone; a call inside of a call never waits."""
        me = threading.get_ident()
        with self._lock:
            calls = self._running.get(me, 0)
            if self._closed and not calls:
                self._wait(me)
            self._running[me] = calls + 1

    def __exit__(self, *raised: object) -> None:
        me = threading.get_ident()
        with self._lock:
            calls = self._running.pop(me) - 1
            if calls:
                self._running[me] = calls
            if self._closed:
                self._changed.notify_all()

    def _wait(self, me: int) -> None:
        self._waiting.add(me)
        try:
            self._changed.wait_for(lambda: not self._closed)
        finally:
            self._waiting.discard(me)

    @contextmanager
    def alone(self, timeout_s: float, own_calls: int = 1) -> Iterator[bool]:
        """Keeps other threads from making calls while the block runs; gives whether none is running any more.

        It does not wait for a thread that is alone already, nor longer than `timeout_s`: a call that runs may itself wait for
        one that has not begun.

        Args:
            timeout_s: see above.
            own_calls: how many calls of the thread itself may be running.
        """
        me = threading.get_ident()

        def others() -> int:
            return sum(self._running.values()) - min(own_calls, self._running.get(me, 0))

        with self._changed:
            closed = not self._closed
            self._closed = True
            try:
                is_alone = closed and self._changed.wait_for(lambda: not others(), timeout_s)
            except BaseException:
                self._open(closed)
                raise
            if not is_alone:
                self._open(closed)
        try:
            yield is_alone
        finally:
            if is_alone:
                with self._changed:
                    self._open(closed)

    def _open(self, closed_here: bool) -> None:
        if closed_here:
            self._closed = False
            self._changed.notify_all()
