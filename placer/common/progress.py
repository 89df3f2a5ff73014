"""A line of progress on a terminal, for work that takes more than a second."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from placer.common.escaping import one_line

DELAY_S = 1.0
"""Work that ends within this time shows nothing."""
BAR_LENGTH = 20
"""In characters."""


class Stage:
    """How far the work of a `progress` block is. The block may update it."""

    share: float | None = None
    """Share of the work that is done, from 0 to 1; None if it is not known."""
    doing: str = ""
    """The current part of the work."""

    def at(self, share: float, doing: str) -> None:
        self.share, self.doing = min(max(share, 0.0), 1.0), doing

    def __str__(self) -> str:
        if self.share is None:
            return "…"
        full = round(BAR_LENGTH * self.share)
        return f"{'█' * full}{'░' * (BAR_LENGTH - full)} {self.share:4.0%} {self.doing}"


_running: list[threading.Event] = []
"""The running blocks, outermost first. Only the innermost writes, so that the terminal has one line of progress."""


@contextmanager
def progress(title: str) -> Iterator[Stage]:
    """Shows a title, the seconds since the start and the stage on standard error while the block runs, if that is a terminal."""
    stage = Stage()
    if not sys.stderr.isatty():
        yield stage
        return
    done = threading.Event()
    with os.fdopen(
        os.dup(sys.stderr.fileno()), "w"
    ) as terminal:  # a copy of standard error, so that it works while that is redirected
        writer = threading.Thread(target=_write, args=(title, stage, terminal, done), daemon=True)
        _running.append(done)
        writer.start()
        try:
            yield stage
        finally:
            done.set()
            writer.join()
            _running.remove(done)


def _write(title: str, stage: Stage, terminal: TextIO, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(DELAY_S):
        return
    while not done.is_set():
        if _running[-1] is done:
            terminal.write(f"\r{one_line(f'{title} {time.monotonic() - start:.0f} s {stage}')}\x1b[K")
            terminal.flush()
        done.wait(0.5)
    terminal.write("\r\x1b[K")
    terminal.flush()
