"""Decides which device every op of a TensorFlow function runs on.

Importing this loads neither TensorFlow nor OR-Tools nor networkx: each public name is fetched where it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cost_models.machines import Machine, load_machine
    from placer.calibrating import calibrate
    from placer.comparing.arena import arena
    from placer.comparing.comparison import Comparison
    from placer.decorator import PlacedFunction, apply, optimized_placement, place, plan_then_create
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
    )
    from placer.opgraph import OpGraph
    from placer.options import Options
    from placer.placement import Placement
    from placer.planning import build_graph, trace
    from placer.predicting import predict
    from placer.profiling import profile
    from placer.simulating import simulate
    from placer.solving import solve

__version__ = "0.1.0"

_HOME = {
    "Comparison": "placer.comparing.comparison",
    "ConstraintError": "placer.errors",
    "DeviceError": "placer.errors",
    "InfeasibleError": "placer.errors",
    "Machine": "cost_models.machines",
    "MoveError": "placer.errors",
    "OpGraph": "placer.opgraph",
    "OptionError": "placer.errors",
    "Options": "placer.options",
    "OutOfMemoryError": "placer.errors",
    "PlacedFunction": "placer.decorator",
    "Placement": "placer.placement",
    "PlacementWarning": "placer.errors",
    "PlacerError": "placer.errors",
    "PlanError": "placer.errors",
    "RewriteError": "placer.errors",
    "TraceError": "placer.errors",
    "apply": "placer.decorator",
    "arena": "placer.comparing.arena",
    "build_graph": "placer.planning",
    "calibrate": "placer.calibrating",
    "load_machine": "cost_models.machines",
    "optimized_placement": "placer.decorator",
    "place": "placer.decorator",
    "plan_then_create": "placer.decorator",
    "predict": "placer.predicting",
    "profile": "placer.profiling",
    "simulate": "placer.simulating",
    "solve": "placer.solving",
    "trace": "placer.planning",
}

__all__ = [
    "Comparison",
    "ConstraintError",
    "DeviceError",
    "InfeasibleError",
    "Machine",
    "MoveError",
    "OpGraph",
    "OptionError",
    "Options",
    "OutOfMemoryError",
    "PlacedFunction",
    "Placement",
    "PlacementWarning",
    "PlacerError",
    "PlanError",
    "RewriteError",
    "TraceError",
    "apply",
    "arena",
    "build_graph",
    "calibrate",
    "load_machine",
    "optimized_placement",
    "place",
    "plan_then_create",
    "predict",
    "profile",
    "simulate",
    "solve",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
