"""The door that every cost model comes through, built in or from another package.

A package adds one by the entry point group "placer.cost_models": a name, and a callable without arguments that gives the model.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from cost_models.base import CostModel

GROUP = "placer.cost_models"

_BUILT_IN = (
    EntryPoint("auto", "cost_models.auto:auto_model", GROUP),
    EntryPoint("analytic", "cost_models.analytic:AnalyticModel", GROUP),
)


class UnknownCostModelError(ValueError):
    """A cost model that is not registered, or an object that is none."""


@cache
def _entries() -> dict[str, EntryPoint]:
    """By name; a built-in keeps its name, whatever is installed."""
    return {entry.name: entry for entry in (*entry_points(group=GROUP), *_BUILT_IN)}


def cost_models() -> tuple[str, ...]:
    """Names of the registered cost models, sorted."""
    return tuple(sorted(_entries()))


def cost_model(name_or_object: str | CostModel) -> CostModel:
    """The registered cost model of that name, or the object itself if it is one.

    Raises:
        UnknownCostModelError: no such name, or an object without a name and op_cost.
    """
    if isinstance(name_or_object, str):
        if name_or_object not in _entries():
            raise UnknownCostModelError(
                f"no cost model {name_or_object!r}; there are {', '.join(cost_models())}, or pass a CostModel"
            )
        return cast(CostModel, _entries()[name_or_object].load()())
    if not (callable(getattr(name_or_object, "op_cost", None)) and isinstance(getattr(name_or_object, "name", None), str)):
        raise UnknownCostModelError(
            f"{type(name_or_object).__name__} is no cost model: it needs a name and op_cost(signature, device); "
            f"or name a registered one: {', '.join(cost_models())}"
        )
    return name_or_object
