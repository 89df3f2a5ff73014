"""Saying on a terminal what is going on, once it takes a while."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0
"""Anything quicker needs no telling."""


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows `what` and the seconds gone by on standard error while the block runs; silent where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(what: str, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(PATIENCE_S):
        return
    while not done.is_set():
        sys.stderr.write(f"\r{what} … {time.monotonic() - start:.0f} s")
        sys.stderr.flush()
        done.wait(0.5)
    sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()
