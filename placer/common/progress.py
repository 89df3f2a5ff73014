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
BAR = 20
"""Characters of a bar."""


class Stage:
    """How far something is: what a block under `progress` may say of itself."""

    share: float | None = None
    """Of the whole, from 0 to 1; None where it is not known."""
    doing: str = ""

    def at(self, share: float, doing: str) -> None:
        self.share, self.doing = min(max(share, 0.0), 1.0), doing

    def __str__(self) -> str:
        if self.share is None:
            return "…"
        full = round(BAR * self.share)
        return f"{'█' * full}{'░' * (BAR - full)} {self.share:4.0%} {self.doing}"


_under_way: list[threading.Event] = []
"""Blocks told of, outermost first; only the innermost writes, so that the terminal has one line of it."""


@contextmanager
def progress(what: str) -> Iterator[Stage]:
    """Shows `what`, the seconds gone by and the stage on standard error while the block runs, if that is a terminal."""
    stage = Stage()
    if not sys.stderr.isatty():
        yield stage
        return
    done = threading.Event()
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:  # its own, so that it goes on while standard error is held back
        teller = threading.Thread(target=_tell, args=(what, stage, terminal, done), daemon=True)
        _under_way.append(done)
        teller.start()
        try:
            yield stage
        finally:
            done.set()
            teller.join()
            _under_way.remove(done)


def _tell(what: str, stage: Stage, terminal: TextIO, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(PATIENCE_S):
        return
    while not done.is_set():
        if _under_way[-1] is done:
            terminal.write(f"\r{what} {time.monotonic() - start:.0f} s {stage}\x1b[K")
            terminal.flush()
        done.wait(0.5)
    terminal.write("\r\x1b[K")
    terminal.flush()
