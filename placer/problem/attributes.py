"""Attributes of nodes and edges of a networkx graph, checked; a message names the node or edge and the attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import numpy as np

from placer.common.escaping import brief
from placer.errors import OptionError
from placer.problem.op_costs import MAX_FIGURE

MIN_LIKENESS = 0.8
"""A name that is this like an attribute's, from 0 to 1, is taken for a mistake."""


@dataclass(frozen=True)
class Attributes:
    """The attributes of one node or edge."""

    where: str
    """The node or edge, for messages: "node 'a'"."""
    values: Mapping[str, Any]

    def error(self, name: str, expected: str) -> OptionError:
        """The error that an attribute is not what is expected."""
        if name not in self.values:
            return OptionError(f"{self.where} has no {name}, which must be {expected}.")
        return OptionError(f"{self.where}: {name}={brief(self.values[name])} must be {expected}.")

    def number(self, name: str, default: float | None = None, *, least: float = 0) -> float:
        """A finite number below `MAX_FIGURE`; without a default the attribute must be there."""
        value = self.values.get(name, default)
        if not _is_number(value) or not least <= value < MAX_FIGURE:
            raise self.error(name, f"a number from {least:g} to {MAX_FIGURE:.2g}")
        return int(value) if isinstance(value, Integral) else float(value)

    def whole(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """A number, rounded to a whole one."""
        return round(self.number(name, default, least=least))

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise self.error(name, "a text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or False."""
        value = self.values.get(name, default)
        if not isinstance(value, bool | np.bool_):
            raise self.error(name, "True or False")
        return bool(value)

    def by_device(self, name: str, devices: Sequence[str], kinds: Sequence[str], default: int | None = None) -> list[int | None]:
        """For each device a number, or None where a mapping has none.

        The attribute is one number for all devices, or a mapping from names or kinds of devices to numbers.
        """
        value = self.values.get(name, default)
        if not isinstance(value, Mapping):
            if not _is_number(value) or not 0 <= value < MAX_FIGURE:
                raise self.error(
                    name, f"a number from 0 to {MAX_FIGURE:.2g}, or a mapping from devices or their kinds to numbers"
                )
            return [round(value)] * len(devices)
        self._check_devices(name, value, devices, kinds)
        inner = Attributes(f"{self.where}: {name}", value)
        keys = (key if key in value else kind for key, kind in zip(devices, kinds, strict=True))
        return [inner.whole(key) if key in value else None for key in keys]

    def chosen_devices(self, name: str, devices: Sequence[str], kinds: Sequence[str]) -> list[bool]:
        """For each device whether the attribute lists it or its kind, as a list or a text with spaces; all by default."""
        value = self.values.get(name)
        if value is None:
            return [True] * len(devices)
        listed = value.split() if isinstance(value, str) else value
        if not isinstance(listed, Sequence | Set) or isinstance(listed, bytes) or not listed:
            raise self.error(name, "a list of devices or kinds of devices")
        self._check_devices(name, listed, devices, kinds)
        return [device in listed or kind in listed for device, kind in zip(devices, kinds, strict=True)]

    def check_names(self, known: Sequence[str], elsewhere: Sequence[str]) -> None:
        """Refuses an attribute that nobody reads but that looks like one which is read. All others are the user's own.

        Args:
            known: the attributes that are read here.
            elsewhere: those that are read of other parts of the graph, so that they are in the wrong place here.

        Raises OptionError.
        """
        for name in self.values:
            if name in known or not isinstance(name, str):
                continue
            if name in elsewhere:
                raise self.error(name, f"elsewhere: the attributes here are {', '.join(known)}")
            if close := get_close_matches(name, known, 1, MIN_LIKENESS):
                raise OptionError(f"{self.where}: {name} is no attribute; did you mean {close[0]}?")

    def _check_devices(self, name: str, named: Any, devices: Sequence[str], kinds: Sequence[str]) -> None:
        known = dict.fromkeys([*devices, *kinds])
        for each in named:
            if each not in known:
                raise OptionError(f"{self.where}: {name} names {each!r}; the devices and kinds are {', '.join(known)}.")


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real)
