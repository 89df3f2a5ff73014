"""Loads what another package registers by an entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from placer.errors import OptionError


def load(entry: EntryPoint, kind: str, *, make: bool = False) -> Any:
    """The object that an entry point refers to, or what it returns when it is called, with `make`.

    Args:
        kind: the noun for the object in the error, such as "solver".

    Raises:
        OptionError: that fails. The message names the entry point and its package.
    """
    try:
        loaded = entry.load()
        return loaded() if make else loaded
    except Exception as error:
        package = f" of the package {entry.dist.name}" if entry.dist else ""
        reason = f"{type(error).__name__}: {error}"
        raise OptionError(f"the {kind} {entry.name!r}{package} cannot be loaded from {entry.value}: {reason}.") from error
