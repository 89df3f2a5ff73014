"""The problem as arrays, and the execution model.

``placer.problem`` is this package, and it can be called: ``placer.problem(graph, machine)`` is `placer.verbs.problem.problem`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package with the name of a public function."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The `PlacementProblem` of a graph on a machine, see `placer.verbs.problem.problem`."""
        return import_module("placer.verbs.problem").problem(*args, **keywords)


sys.modules[__name__].__class__ = _CallablePackage
