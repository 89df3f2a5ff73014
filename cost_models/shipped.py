"""What was measured on the machines that come with the package."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from cost_models.processors import generation, without_generation
from cost_models.store import Measurement, Table

MEASUREMENTS = "measurements.json"
"""In the folder of the shipped machines, as `placer measurements --export` wrote it on them after calibrating and profiling."""


_MADE_ON = {
    "2 AMD EPYC cores": {(26, model) for model in range(32)},
    "16 Intel(R) Xeon(R) Processor cores": {(6, model) for model in (143, 173, 174, 207)},
}
"""Families and models that the hosts may have had: Zen 5, and Xeons with AMX. Their names tell no generation."""


@cache
def shipped_table(device_model: str) -> Table:
    """The shipped measurements on a device model, whatever version of TensorFlow they were made under; empty for most."""
    plain, table = without_generation(device_model), Table()
    name = plain if generation(device_model) in _MADE_ON.get(plain, ()) else device_model
    for group in _groups():
        if group["device_model"] == name:
            for signature, *figures in group["measurements"]:
                text = json.dumps(signature, separators=(",", ":"))
                table.setdefault(signature[0], {})[text] = Measurement(*figures)
    return table


@cache
def _groups() -> list[dict[str, Any]]:
    file = resources.files("cost_models").joinpath("profiles", MEASUREMENTS)
    groups: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["groups"]
    return groups
