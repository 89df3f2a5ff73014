"""What a terminal is told while something takes long."""

from __future__ import annotations

import io
import os
import pty
import sys
import time

import pytest

from placer.common import progress as module
from placer.common.progress import progress


def test_only_the_innermost_block_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(module, "DELAY_S", 0.0)
        with progress("reading"):
            time.sleep(0.1)
            with progress("starting"):
                time.sleep(1.2)
            time.sleep(0.6)
    shown = all_of(ours)
    first, last = shown.index("starting"), shown.rindex("starting")
    assert first < last
    assert "reading" in shown[:first]
    assert "reading" not in shown[first:last]
    assert "reading" in shown[last:]
    assert shown.endswith("\r\x1b[K")


def all_of(terminal: int) -> str:
    """What was written to a pseudo-terminal whose other end is closed."""
    read = b""
    while True:
        try:
            read += os.read(terminal, 10_000)
        except OSError:  # that end is how Linux says so
            os.close(terminal)
            return read.decode()


def test_what_is_no_terminal_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(module, "DELAY_S", 0.0)
    with progress("reading"):
        time.sleep(0.05)
    assert sys.stderr.getvalue() == ""
