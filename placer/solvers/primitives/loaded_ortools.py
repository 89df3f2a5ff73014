"""OR-Tools' modules `cp_model`, `max_flow` and `model_builder`. Each is imported when it is first used.

TensorFlow and OR-Tools both contain the library Abseil, in different builds with the same names. TensorFlow loads its build where
all later libraries look names up first, so that OR-Tools would call functions of that build. With TensorFlow 2.20, and with
OR-Tools 9.15, this ends the process (SIGSEGV). With RTLD_DEEPBIND, see dlopen(3), the libraries of OR-Tools use their own build.
"""

from __future__ import annotations

import importlib
import os
import sys
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortools.graph.python import max_flow
    from ortools.linear_solver.python import model_builder
    from ortools.sat.python import cp_model

__all__ = ["cp_model", "max_flow", "model_builder"]

_PATHS = {
    "cp_model": "ortools.sat.python.cp_model",
    "max_flow": "ortools.graph.python.max_flow",
    "model_builder": "ortools.linear_solver.python.model_builder",
}
_flags_lock = Lock()
"""Held while the flags are changed: they belong to the process."""


def __getattr__(name: str) -> Any:
    """Imports the module `name`."""
    if name not in _PATHS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _flags_lock:
        flags = sys.getdlopenflags()
        # macOS has no such flag. There a library names the file of each function that it uses.
        sys.setdlopenflags(flags | getattr(os, "RTLD_DEEPBIND", 0))
        try:
            module = importlib.import_module(_PATHS[name])
        finally:
            sys.setdlopenflags(flags)
    globals()[name] = module
    return module
