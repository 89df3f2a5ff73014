"""The default cost model: the measured cost of an op, else the analytic model."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from cost_models.analytic import AnalyticModel
from cost_models.cpu_names import without_generation
from cost_models.measured import MeasuredModel
from cost_models.measurements import Measurement, Table
from cost_models.shipped import shipped_table
from cost_models.store import Store


def auto_model(store: Store | None = None) -> MeasuredModel:
    """The default model over the measurements in a store, and those that come with the package.

    A model reads the measurements of each device model once and keeps them, so each plan should make a model of its own.

    Args:
        store: by default the user's. A measurement in it comes before one that comes with the package, unless it was only
            harvested.
    """
    source = store or Store()

    @cache
    def tables(device_model: str) -> Table:
        return _merged(_own_measurements(source, device_model), shipped_table(device_model))

    return MeasuredModel(tables, AnalyticModel())


def shipped_model() -> MeasuredModel:
    """The default model over the measurements that come with the package alone, so that costs are equal wherever it runs."""
    return MeasuredModel(_shipped, AnalyticModel())


@cache
def _shipped(device_model: str) -> Table:
    return _merged({}, shipped_table(device_model))


def _own_measurements(source: Store, device_model: str) -> Table:
    """The user's measurements on a device model, under its name and under its older name without the generation."""
    own = source.table(device_model, installed_tensorflow())
    if (name := without_generation(device_model)) == device_model:
        return own
    before = source.table(name, installed_tensorflow())
    return {op_type: before.get(op_type, {}) | own.get(op_type, {}) for op_type in before | own}


def _merged(own: Table, shipped: Table) -> Table:
    return {op_type: _merged_column(own.get(op_type, {}), shipped.get(op_type, {})) for op_type in shipped | own}


def _merged_column(own: dict[str, Measurement], shipped: dict[str, Measurement]) -> dict[str, Measurement]:
    """Typical times of one op type: the user's own measurements, else shipped ones, else what the user only harvested."""
    measured_alone = {op: each for op, each in own.items() if not each.harvested}
    return {op: each.typical() for op, each in (own | shipped | measured_alone).items()}


@cache
def installed_tensorflow() -> str:
    """TensorFlow's version, without importing it; "" if it is not installed."""
    for package in ("tensorflow", "tensorflow-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""
