"""The placed graph as a GraphDef file, which Netron opens."""

from __future__ import annotations

from placer.plan.placement import Placement
from placer.views.shared.graph_def import graph_def


def netron(placement: Placement) -> bytes:
    """The placed graph as the bytes of a .pb file. Raises OptionError if tensorboard is not installed."""
    content: bytes = graph_def(placement, "plan").SerializeToString(deterministic=True)
    return content
