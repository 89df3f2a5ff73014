"""What objects there are in this process, by type."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, compress
from typing import Any

from placer.common.garbage_collection import paused_collection


@paused_collection()
def living(*kinds: type) -> list[Any]:
    """The objects of these types, and of those derived from them, that the cycle collector knows of.

    No other thread runs while all objects are held here: they take turns at Python's own code, and from the first object to the
    last there is none. Else one that is making a tuple out of an iterator could find that held by another, which CPython takes
    for an error of its own.
    """
    wanted = {*_derived(kinds)}
    held: list[Any] = []
    # Filled by the first of what chooses, emptied after the last of what is chosen from.
    chosen = chain(map(held.extend, map(gc.get_objects, (None,))), map(wanted.__contains__, map(type, iter(held))))
    return list(compress(chain((None,), iter(held), iter(held.clear, None)), chosen))


def _derived(kinds: tuple[type, ...]) -> Iterator[type]:
    for kind in kinds:
        yield kind
        yield from _derived(tuple(type.__subclasses__(kind)))
