"""The default cost model: what was measured, then what a fit to it tells, then the analytic model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from cost_models.analytic import AnalyticModel
from cost_models.cpu_names import without_generation
from cost_models.fitted import FittedModel
from cost_models.measured import MeasuredModel
from cost_models.measurements import Measurement, Table
from cost_models.shipped import shipped_table
from cost_models.store import Store


def auto_model(store: Store | None = None) -> MeasuredModel:
    """The model over a store, by default the user's, and over what comes with the package where that did not measure an op.

    It reads each device model's measurements once: make one per plan.
    """
    source = store or Store()

    @cache
    def tables(device_model: str) -> Table:
        return _typical(_own(source, device_model), shipped_table(device_model))

    return _over(tables)


def shipped_model() -> MeasuredModel:
    """The same over what comes with the package alone: equal costs wherever it runs."""
    return _over(_shipped)


def _over(tables: Callable[[str], Table]) -> MeasuredModel:
    return MeasuredModel(tables, FittedModel(tables, AnalyticModel()))


@cache
def _shipped(device_model: str) -> Table:
    return _typical({}, shipped_table(device_model))


def _own(source: Store, device_model: str) -> Table:
    """What the user measured on a device model, and under the name that it had before names told the generation."""
    own = source.table(device_model, installed_tensorflow())
    if (name := without_generation(device_model)) == device_model:
        return own
    before = source.table(name, installed_tensorflow())
    return {op_type: before.get(op_type, {}) | own.get(op_type, {}) for op_type in before | own}


def _typical(own: Table, shipped: Table) -> Table:
    return {op_type: _column(own.get(op_type, {}), shipped.get(op_type, {})) for op_type in shipped | own}


def _column(own: dict[str, Measurement], shipped: dict[str, Measurement]) -> dict[str, Measurement]:
    alone = {op: each for op, each in own.items() if not each.harvested}
    return {op: each.typical() for op, each in (own | shipped | alone).items()}


@cache
def installed_tensorflow() -> str:
    """TensorFlow's version, without importing it; "" where it is not installed."""
    for package in ("tensorflow", "tensorflow-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""
