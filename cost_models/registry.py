"""Cost models by name: the built-in ones and those of other packages.

A package adds a model by an entry point in the group "placer.cost_models". The entry point has the model's name and refers to a
callable without arguments that returns the model.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from cost_models.base import CostModel

GROUP = "placer.cost_models"

BUILT_IN = {
    "auto": EntryPoint("auto", "cost_models.auto:auto_model", GROUP),
    "analytic": EntryPoint("analytic", "cost_models.analytic:AnalyticModel", GROUP),
}
"""The models of this package by name."""


class UnknownCostModelError(ValueError):
    """No cost model is registered under the name, it cannot be loaded, or the object is not a cost model."""


@cache
def _entries() -> dict[str, EntryPoint]:
    """Entry points by name. No installed package can replace a built-in model."""
    return {entry.name: entry for entry in entry_points(group=GROUP)} | BUILT_IN


def cost_models() -> tuple[str, ...]:
    """Names of the registered cost models, sorted."""
    return tuple(sorted(_entries()))


def cost_model(name_or_object: str | CostModel) -> CostModel:
    """The registered cost model of that name, or the object itself if it is a cost model.

    Raises:
        UnknownCostModelError: no model has that name, it cannot be loaded, or the object lacks a name or an op_cost method.
    """
    shown = repr(name_or_object)
    if isinstance(name_or_object, str):
        if name_or_object not in _entries():
            raise UnknownCostModelError(
                f"no cost model is called {name_or_object!r}; registered are {', '.join(cost_models())}, or pass a CostModel"
            )
        entry = _entries()[name_or_object]
        try:
            name_or_object = cast(CostModel, entry.load()())
        except Exception as error:
            package = f" of the package {entry.dist.name}" if entry.dist else ""
            raise UnknownCostModelError(
                f"the cost model {entry.name!r}{package} cannot be loaded from {entry.value}: {type(error).__name__}: {error}"
            ) from error
        shown = f"{name_or_object!r}, which {entry.value} makes for {entry.name!r},"
    if not (callable(getattr(name_or_object, "op_cost", None)) and isinstance(getattr(name_or_object, "name", None), str)):
        raise UnknownCostModelError(
            f"{shown} is no cost model, which needs a name and op_cost(signature, device); "
            f"pass one, or the name of a registered one: {', '.join(cost_models())}"
        )
    return name_or_object
