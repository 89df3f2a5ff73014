"""Saying on a terminal what is going on, once it takes a while."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

PATIENCE_S = 1.0
"""Anything quicker needs no telling."""

_under_way: list[threading.Event] = []
"""Blocks told of, outermost first; only the innermost writes, so that the terminal has one line of it."""


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows `what` and the seconds gone by on standard error while the block runs; silent where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:  # its own, so that it goes on while standard error is held back
        teller = threading.Thread(target=_tell, args=(what, terminal, done), daemon=True)
        _under_way.append(done)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()
            _under_way.remove(done)


def _tell(what: str, terminal: TextIO, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(PATIENCE_S):
        return
    while not done.is_set():
        if _under_way[-1] is done:
            terminal.write(f"\r{what} … {time.monotonic() - start:.0f} s\x1b[K")
            terminal.flush()
        done.wait(0.5)
    terminal.write("\r\x1b[K")
    terminal.flush()
