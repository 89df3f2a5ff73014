"""One colour per device in every picture."""

from __future__ import annotations

from collections.abc import Sequence

CPUS = (("#dbe9f6", "#2b6ca3"), ("#d3ecec", "#157a7a"), ("#e2e3f3", "#4f55a0"), ("#dfe6ea", "#4a6572"))
GPUS = (
    ("#dff0d8", "#3f8f3f"),
    ("#fdebd0", "#b9770e"),
    ("#eadcf4", "#7d3c98"),
    ("#f6dbe6", "#ad3a6e"),
    ("#eef0c9", "#7d8213"),
    ("#efe0d6", "#8a5a3b"),
    ("#d8f0e6", "#1c8a63"),
    ("#e6e0dc", "#6b5d55"),
)
CROSSING = "#c0392b"
QUIET = "#9aa5b1"


def colours(devices: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Fill and line colour (hex) by device. They are the same in every plan: blues for CPUs, a fixed cycle for others."""
    return {device: colour(device) for device in devices}


def colour(device: str) -> tuple[str, str]:
    """Fill and line colour (hex) of a device. A worker's devices start one colour after those of the worker before it."""
    task, _, name = device.rpartition("/")
    kind, _, index = name.partition(":")
    _, _, number = task.partition(":")
    cycle = CPUS if kind == "CPU" else GPUS
    return cycle[(int(index or 0) + (1 + int(number) if number else 0)) % len(cycle)]


def for_dark_page(pair: tuple[str, str]) -> tuple[str, str]:
    """The same colour for a dark page: fill and line under light text."""
    return _mixed(pair[1], "#14181d", 0.55), _mixed(pair[1], "#ffffff", 0.35)


def _mixed(one: str, other: str, share: float) -> str:
    parts = zip(bytes.fromhex(one[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in parts)
