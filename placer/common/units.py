"""Times and sizes as text, and text as sizes and times."""

from __future__ import annotations

import math
import re
from typing import Any

from placer.errors import OptionError

_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", re.IGNORECASE | re.ASCII)


def format_ns(ns: float) -> str:
    """A time with three digits and a unit.

    >>> format_ns(1234), format_ns(15_000_000), format_ns(0)
    ('1.23 us', '15.0 ms', '0 ns')
    """
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= scale:
            return f"{three_digits(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def format_bytes(size: float) -> str:
    """A size with three digits and a binary unit.

    >>> format_bytes(1536), format_bytes(80 * 2**30), format_bytes(7)
    ('1.50 KiB', '80.0 GiB', '7 B')
    """
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size) >= scale:
            return f"{three_digits(size / scale)} {unit}"
    return f"{size:.0f} B"


def three_digits(number: float) -> str:
    """A number with three digits, or more in front of the point.

    >>> three_digits(1.234), three_digits(12.34), three_digits(1234.5)
    ('1.23', '12.3', '1234')
    """
    return f"{number:.{2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0}f}"


def ratio(baseline_ns: int, plan_ns: int, better: str, worse: str, same: str) -> str:
    """The ratio of two times and a word for its direction, such as "2.15x faster"; `same` if it rounds to 1.00."""
    low, high = sorted((baseline_ns, plan_ns))
    if high < 1.005 * low or not high:
        return same
    word = better if plan_ns < baseline_ns else worse
    return f"{three_digits(high / low)}x {word}" if low else word


def parse_bytes(text: str | int) -> int:
    """The bytes that a whole number or a text such as "8GiB" means.

    Raises OptionError for anything else, including a fraction of a byte.

    >>> parse_bytes(1024), parse_bytes("8GiB"), parse_bytes("1.5 GB"), parse_bytes("512M")
    (1024, 8589934592, 1500000000, 512000000)
    """
    match = _SIZE.fullmatch(str(text)) if not isinstance(text, bool) else None
    number, unit = match.groups() if match else ("", "")
    if not number or ("." in number and not unit):
        raise OptionError(f"{text!r} is not a size: give whole bytes, or text such as '8GiB', '512 MiB' or '1.5 GB'.")
    scale = _SIZES[(unit or "").upper()]
    if float(number) * scale >= 2**63:
        raise OptionError(f"{text!r} is more than a device can have: sizes end at 8 EiB.")
    return round(float(number) * scale) if unit else int(number)


def check_seconds(name: str, value: Any) -> float:
    """The value of the option `name` as seconds. Raises OptionError unless it is a finite number above 0."""
    try:
        seconds = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise OptionError(f"{name}={value!r} is not a number of seconds above 0; leave it out for the default.")
    return seconds
