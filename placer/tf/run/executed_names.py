"""Names of nodes in the graphs that TensorFlow executes, and the planned ops behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator

# When TensorFlow inlines a body, its ops are named "<caller>/_<number>/<op>".
_INLINED = re.compile(r"/_\d+/")


def planned_names(name: str) -> Iterator[str]:
    """Names that a node of the executed graph may have in the plan, longest first."""
    name = name.removesuffix("/unary_ops_composition")
    yield name
    for match in _INLINED.finditer(name):
        yield name[match.end() :]
