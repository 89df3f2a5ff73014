"""What calls need of a plan: the device of each op. The whole Placement is made when someone asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from placer.graph.seen import Seen
from placer.graph.sizes import Shape
from placer.plan.placement import Placement
from placer.plan.plan_store import MemoryKey
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
    memory: Mapping[str, tuple[int, int]]
    """By device, in bytes: the most that the plan holds there at once, and the limit of the planning; -1 for no limit."""
    verdict: Verdict | None
    """What calls took under this and other placements. None for a plan that is only predicted."""
    make: Callable[[], Placement]
    """Gives the whole plan."""
    seen: Seen | None = None
    """What was seen of the function when it was planned."""
    memory_key: MemoryKey | None = None
    """The key that the plan is found by; None for a plan that is not remembered."""
    races: bool = False
    """Whether calls are still to decide, by a race, if it stays."""

    @classmethod
    def of(cls, placement: Placement, seen: Seen | None = None, memory_key: MemoryKey | None = None) -> CallPlan:
        """The part of a plan that calls need."""
        graph = placement.graph
        return cls(
            device_of={name: op.device for name, op in placement.ops.items()},
            state_device_of={op.name: graph.resources[op.resource].device for op in graph if op.resource in graph.resources},
            result_shapes=tuple(graph.op(name).signature.outputs[k].shape for name, k in graph.outputs),
            options=placement.options,
            memory={device: (totals.peak_bytes, totals.limit_bytes) for device, totals in placement.totals.items()},
            verdict=placement.verdict,
            make=lambda: placement,
            seen=seen,
            memory_key=memory_key,
        )

    def changed(self, placement: Placement) -> CallPlan:
        """Another plan for the same trace, with the same memory key and what was seen."""
        return CallPlan.of(placement, self.seen, self.memory_key)

    @cached_property
    def placement(self) -> Placement:
        """The whole plan.

        Raises:
            PlacerError: it cannot be made.
        """
        return self.make()

    def to_json(self) -> dict[str, Any]:
        """All but the whole plan and the key, as plain JSON types."""
        devices = {device: i for i, device in enumerate(dict.fromkeys(self.device_of.values()))}
        return {
            "devices": list(devices),
            "ops": list(self.device_of),
            "device_of": [devices[device] for device in self.device_of.values()],
            "state_device_of": dict(self.state_device_of),
            "result_shapes": list(self.result_shapes),
            "options": dict(self.options),
            "races": self.races,
            "verdict": None if self.verdict is None else self.verdict.to_json(),
            "memory": {device: list(held) for device, held in self.memory.items()},
            "seen": None if self.seen is None else self.seen.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], make: Callable[[], Placement], memory_key: MemoryKey) -> CallPlan:
        """What `to_json` wrote, with the rest.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: the data is something else.
        """
        devices = list(map(str, data["devices"]))
        return cls(
            device_of={name: devices[i] for name, i in zip(data["ops"], data["device_of"], strict=True)},
            state_device_of={name: str(device) for name, device in data["state_device_of"].items()},
            result_shapes=tuple(None if shape is None else tuple(shape) for shape in data["result_shapes"]),
            options=dict(data["options"]),
            verdict=None if data["verdict"] is None else Verdict.from_json(data["verdict"]),
            memory={device: (int(peak), int(limit)) for device, (peak, limit) in data["memory"].items()},
            make=make,
            seen=None if data["seen"] is None else Seen.from_json(data["seen"]),
            memory_key=memory_key,
            races=bool(data["races"]),
        )
