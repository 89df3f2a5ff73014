"""What was measured on the machines that come with the package."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from cost_models.store import Measurement, Table

MEASUREMENTS = "measurements.json"
"""In the folder of the shipped machines, as `placer measurements --export` wrote it on them after calibrating and profiling."""


@cache
def shipped_table(device_model: str) -> Table:
    """The shipped measurements on a device model, whatever version of TensorFlow they were made under; empty for most."""
    table: Table = {}
    for group in _groups():
        if group["device_model"] == device_model:
            for signature, *figures in group["measurements"]:
                text = json.dumps(signature, separators=(",", ":"))
                table.setdefault(signature[0], {})[text] = Measurement(*figures)
    return table


@cache
def _groups() -> list[dict[str, Any]]:
    file = resources.files("cost_models").joinpath("profiles", MEASUREMENTS)
    groups: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["groups"]
    return groups
