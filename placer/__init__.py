"""Decides which device every op of a TensorFlow function runs on.

Importing this package loads neither TensorFlow nor OR-Tools nor networkx: a public name is imported at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cost_models.machine_files import load_machine
    from cost_models.machines import Machine
    from placer import keras as keras
    from placer.errors import (
        ConstraintError,
        DeviceError,
        InfeasibleError,
        MoveError,
        OptionError,
        OutOfMemoryError,
        PlacementWarning,
        PlacerError,
        PlanError,
        RewriteError,
        TraceError,
        WorkerError,
    )
    from placer.graph.op_graph import OpGraph
    from placer.options import Options
    from placer.placed.decorators import apply, optimized_placement, place
    from placer.placed.function import PlacedFunction
    from placer.placed.plan_then_create import plan_then_create
    from placer.placed.predict import predict
    from placer.placed.saved_model import load, place_saved_model
    from placer.placed.serve import serve
    from placer.plan.placement import Placement
    from placer.problem.problem import Assignment, PlacementProblem
    from placer.research.arena.arena import arena
    from placer.research.arena.comparison import Comparison
    from placer.verbs.build_graph import build_graph, trace
    from placer.verbs.calibrate import calibrate
    from placer.verbs.calibrate_network import calibrate_network
    from placer.verbs.cluster import cluster
    from placer.verbs.evaluate import Evaluation, evaluate
    from placer.verbs.problem import problem
    from placer.verbs.profile import profile
    from placer.verbs.scale import Scaling, scale
    from placer.verbs.simulate import simulate
    from placer.verbs.solve import solve

__version__ = "0.1.0"

_HOME = {
    "Assignment": "placer.problem.problem",
    "Comparison": "placer.research.arena.comparison",
    "ConstraintError": "placer.errors",
    "DeviceError": "placer.errors",
    "Evaluation": "placer.verbs.evaluate",
    "InfeasibleError": "placer.errors",
    "Machine": "cost_models.machines",
    "MoveError": "placer.errors",
    "OpGraph": "placer.graph.op_graph",
    "OptionError": "placer.errors",
    "Options": "placer.options",
    "OutOfMemoryError": "placer.errors",
    "PlacedFunction": "placer.placed.function",
    "Placement": "placer.plan.placement",
    "PlacementProblem": "placer.problem.problem",
    "PlacementWarning": "placer.errors",
    "PlacerError": "placer.errors",
    "PlanError": "placer.errors",
    "RewriteError": "placer.errors",
    "Scaling": "placer.verbs.scale",
    "TraceError": "placer.errors",
    "WorkerError": "placer.errors",
    "apply": "placer.placed.decorators",
    "arena": "placer.research.arena.arena",
    "build_graph": "placer.verbs.build_graph",
    "calibrate": "placer.verbs.calibrate",
    "calibrate_network": "placer.verbs.calibrate_network",
    "cluster": "placer.verbs.cluster",
    "evaluate": "placer.verbs.evaluate",
    "load": "placer.placed.saved_model",
    "load_machine": "cost_models.machine_files",
    "optimized_placement": "placer.placed.decorators",
    "place": "placer.placed.decorators",
    "place_saved_model": "placer.placed.saved_model",
    "plan_then_create": "placer.placed.plan_then_create",
    "predict": "placer.placed.predict",
    "profile": "placer.verbs.profile",
    "scale": "placer.verbs.scale",
    "serve": "placer.placed.serve",
    "simulate": "placer.verbs.simulate",
    "solve": "placer.verbs.solve",
    "trace": "placer.verbs.build_graph",
}

_PACKAGES = ("keras", "problem")
"""Public names that are packages; ``problem`` can be called, too."""

__all__ = [
    "Assignment",
    "Comparison",
    "ConstraintError",
    "DeviceError",
    "Evaluation",
    "InfeasibleError",
    "Machine",
    "MoveError",
    "OpGraph",
    "OptionError",
    "Options",
    "OutOfMemoryError",
    "PlacedFunction",
    "Placement",
    "PlacementProblem",
    "PlacementWarning",
    "PlacerError",
    "PlanError",
    "RewriteError",
    "Scaling",
    "TraceError",
    "WorkerError",
    "apply",
    "arena",
    "build_graph",
    "calibrate",
    "calibrate_network",
    "cluster",
    "evaluate",
    "load",
    "load_machine",
    "optimized_placement",
    "place",
    "place_saved_model",
    "plan_then_create",
    "predict",
    "problem",
    "profile",
    "scale",
    "serve",
    "simulate",
    "solve",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"placer.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
