"""The clock by which searches end: real time, or work that is counted.

A search tells its work by `spend` and reads the time by `now`. In a block of `counted`, the time is the work so far, so equal
searches end equally on every machine. In a block of `limit`, `spend` raises `TimeUpError` once the time is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

OP_RUNS_PER_S = 400_000
"""Work is counted in ops that the execution model runs. A common machine runs so many in a second, which is a counted second."""


class TimeUpError(Exception):
    """The time limit of the search that runs is over."""


@dataclass
class _Work:
    op_runs: float = 0.0


@dataclass(frozen=True)
class _Clock:
    work: _Work | None = None
    """What is counted; None for real time."""
    ends: float = math.inf
    """By `now`."""


_REAL = _Clock()
_clock: ContextVar[_Clock] = ContextVar("clock", default=_REAL)


def now() -> float:
    """Seconds from an arbitrary moment: real ones, or those of the work so far. Reading counts as a little work."""
    work = _clock.get().work
    if work is None:
        return time.perf_counter()
    work.op_runs += 1  # so that a loop that only waits for the time to pass ends
    return work.op_runs / OP_RUNS_PER_S


def spend(op_runs: float) -> None:
    """Tells that as much work is being done as the execution model does to run so many ops.

    Raises:
        TimeUpError: the time of a `limit` is over.
    """
    clock = _clock.get()
    if clock.work is not None:
        clock.work.op_runs += op_runs
    if clock.ends < math.inf and now() > clock.ends:
        raise TimeUpError


def add_work_s(seconds: float) -> None:
    """Tells of work that is done and takes so many seconds on a common machine. It raises nothing, so its result is not lost."""
    work = _clock.get().work
    if work is not None:
        work.op_runs += seconds * OP_RUNS_PER_S


def remaining_s() -> float:
    """Seconds until the limit that ends first; infinite without one."""
    ends = _clock.get().ends
    return ends - now() if ends < math.inf else math.inf


def is_counted() -> bool:
    """Whether the time is the work so far."""
    return _clock.get().work is not None


def limit(seconds: float | None) -> AbstractContextManager[None]:
    """Limits the time of a block; limits around it hold, too. None sets no limit."""
    clock = _clock.get()
    return _block(clock if seconds is None else replace(clock, ends=min(clock.ends, now() + seconds)))


def unlimited() -> AbstractContextManager[None]:
    """Lifts all limits for a block that must end well, such as the price of the final answer."""
    return _block(replace(_clock.get(), ends=math.inf))


def counted() -> AbstractContextManager[None]:
    """In this block no real clock is read: the time is the work so far, from 0."""
    return _block(_Clock(_Work()))


@contextmanager
def _block(clock: _Clock) -> Iterator[None]:
    """A block in which this clock is read."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)
