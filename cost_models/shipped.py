"""The op measurements that come with the package, made on the shipped machines."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from cost_models.cpu_names import cpu_generation, without_generation
from cost_models.measurements import Measurement, Table

MEASUREMENTS = "measurements.json"
"""File name in the folder `profiles`. `placer measurements --export` wrote it after calibrating and profiling."""


_GENERATIONS = {
    "2 AMD EPYC cores": {(26, model) for model in range(32)},
    "16 Intel(R) Xeon(R) Processor cores": {(6, model) for model in (143, 173, 174, 207)},
}
"""For each shipped host: the CPU families and models that may use its measurements, which are Zen 5 and Xeons with AMX."""


@cache
def shipped_table(device_model: str) -> Table:
    """The shipped measurements of a device model, under any version of TensorFlow. Most device models have none."""
    plain, table = without_generation(device_model), Table()
    name = plain if cpu_generation(device_model) in _GENERATIONS.get(plain, ()) else device_model
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
