"""What calls need of a plan: the device of each op. The whole Placement is made when someone asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from placer.graph.sizes import Shape
from placer.plan.placement import Placement
from placer.plan.verdict import Verdict


@dataclass(frozen=True, eq=False)
class CallPlan:
    """A plan as calls use it."""

    device_of: Mapping[str, str]
    """Device by op of the planned graph."""
    state_device_of: Mapping[str, str]
    """By op that gives a handle: the device that held the state behind it when the plan was made."""
    result_shapes: tuple[Shape, ...]
    """The shapes of the function's flat results; None where a dimension or rank is unknown."""
    options: Mapping[str, Any]
    """The options of the planning, as plain JSON types."""
    verdict: Verdict | None
    """What calls took under this and other placements. None for a plan that is only predicted."""
    make: Callable[[], Placement]
    """Gives the whole plan."""

    @classmethod
    def of(cls, placement: Placement) -> CallPlan:
        """The part of a plan that calls need."""
        graph = placement.graph
        return cls(
            device_of={name: op.device for name, op in placement.ops.items()},
            state_device_of={op.name: graph.resources[op.resource].device for op in graph if op.resource in graph.resources},
            result_shapes=tuple(graph.op(name).signature.outputs[k].shape for name, k in graph.outputs),
            options=placement.options,
            verdict=placement.verdict,
            make=lambda: placement,
        )

    @cached_property
    def placement(self) -> Placement:
        """The whole plan.

        Raises:
            PlacerError: it cannot be made.
        """
        return self.make()
