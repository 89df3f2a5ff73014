"""One colour per device in every picture."""

from __future__ import annotations

from collections.abc import Sequence

CPU = ("#dbe9f6", "#2b6ca3")
GPUS = (("#dff0d8", "#3f8f3f"), ("#fdebd0", "#b9770e"), ("#eadcf4", "#7d3c98"), ("#fadbd8", "#b03a2e"))
CROSSING = "#c0392b"
QUIET = "#9aa5b1"


def colours(devices: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Fill and line colour (hex) by device: the first device blue, the others in a fixed turn."""
    return {device: CPU if k == 0 else GPUS[(k - 1) % len(GPUS)] for k, device in enumerate(devices)}
