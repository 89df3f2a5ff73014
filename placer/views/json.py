"""The plan and its graph as JSON."""

from __future__ import annotations

from json import dumps

from placer.plan.placement import Placement


def json(placement: Placement) -> str:
    """The plan and its graph, as `Placement.save` writes them."""
    return dumps(placement.to_json(), separators=(",", ":")) + "\n"
