"""The objects of this process, by type."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, compress
from typing import Any

from placer.common.garbage_collection import paused_collection


@paused_collection()
def live_objects(*kinds: type) -> list[Any]:
    """The objects of these types and of their subclasses that Python's garbage collector tracks.

    The list of all objects exists only inside one call of C code, during which no other thread runs Python code. Otherwise
    another thread that builds a tuple from an iterator could find the unfinished tuple referred to by this list, which CPython
    reports as an internal error.
    """
    wanted = {*_with_subclasses(kinds)}
    objects: list[Any] = []
    # `compress` first asks `selected`, which fills `objects`, and last asks the data, which empties it.
    selected = chain(map(objects.extend, map(gc.get_objects, (None,))), map(wanted.__contains__, map(type, iter(objects))))
    return list(compress(chain((None,), iter(objects), iter(objects.clear, None)), selected))


def _with_subclasses(kinds: tuple[type, ...]) -> Iterator[type]:
    for kind in kinds:
        yield kind
        yield from _with_subclasses(tuple(type.__subclasses__(kind)))
