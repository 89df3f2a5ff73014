"""Python's cycle collector, kept quiet while a plan is made or shown."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keeps the cycle collector from scanning a large trace or plan again and again while thousands of nodes are made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
