"""What a name that is not there may have been meant to be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache

CUTOFF = 0.6
"""The likeness, from 0 to 1, below which a name is not meant."""
CLOSE = 0.05
"""What a name may be less like than the most alike one."""
SHOWN = 5


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """The end of an error's sentence: the names that may have been meant, the likeliest first, or a full stop."""
    close = nearest(wanted, names)
    return f"; did you mean {', '.join(close)}?" if close else "."


def nearest(wanted: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that hold `wanted`, or else those most like it; equally good ones in their order.

    Letters, digits and scopes count. Names in scopes are alike if they are whole, or from their ends on as far as both reach.
    """
    low = _plain(wanted)
    if not low:
        return []
    plain = {name: _plain(name) for name in names}
    inside = [name for name, text in plain.items() if low in text]
    if inside:
        return sorted(inside, key=lambda name: (plain[name] != low, plain[name].rpartition("/")[2] != low))[:SHOWN]
    matcher = SequenceMatcher(autojunk=False)

    @cache
    def likeness(text: str, other: str) -> float:
        matcher.set_seq2(text)
        matcher.set_seq1(other)
        return matcher.ratio() if matcher.real_quick_ratio() >= CUTOFF and matcher.quick_ratio() >= CUTOFF else 0.0

    def alike(text: str) -> float:
        depth = min(low.count("/"), text.count("/")) + 1
        ends = ("/".join(name.split("/")[-depth:]) for name in (low, text))
        return max(likeness(low, text), likeness(*ends))

    found = {name: alike(text) for name, text in plain.items()}
    least = max(CUTOFF, max(found.values(), default=0.0) - CLOSE)
    return sorted((name for name in found if found[name] >= least), key=lambda name: -found[name])[:SHOWN]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9/]", "", name.lower()).strip("/")
