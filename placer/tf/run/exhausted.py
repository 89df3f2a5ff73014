"""Out of memory in a placed step: what the plan expected, what TensorFlow held when it gave up, and the limit to plan with."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cost_models.ops import View, entry_of, view_of
from placer.common.device_spec import parse
from placer.common.units import format_bytes
from placer.errors import OutOfMemoryError
from placer.plan.placement import Placement
from placer.problem.formulate import kept

SHOWN = 4
MOST, LEAST = 0.9, 0.5
"""Of what a plan expected: the highest and the lowest limit to plan with next."""

NOT_AGAIN = (
    ' It is not planned again: on_out_of_memory="replan" is for calls of the placed function itself, not by a tf.function.'
)
_REFUSED = re.compile(r"allocating tensor with shape\s*\[([\d,]*)\] and type (\w+) on (\S*device:\w+:\d+)")
_NOT_COPIED = re.compile(r"unable to allocate output tensor\. Key: ([^;\s]+);[^;]*;([^;\s]+);edge_\d+_([^;\s]+);")


class _RefusedError(OutOfMemoryError, tf.errors.ResourceExhaustedError):  # type: ignore[misc]
    """What TensorFlow raised, with more to say at its end: for those too who catch TensorFlow's."""

    told = ""

    @property
    def message(self) -> str:
        return f"{self._message}{self.told}"


@dataclass(frozen=True)
class Exhaustion:
    """A call that ran out of memory."""

    error: Any
    placement: Placement
    device: str
    refused: str
    """What it asked for in vain, in words."""
    refused_bytes: int
    """How much that is; 0 where TensorFlow does not tell."""
    peak_bytes: int | None
    """The most that was held on the device until then; None where nobody counts."""

    @classmethod
    def of(cls, error: Exception, placement: Placement) -> Exhaustion | None:
        """None for an error of another kind, or not of a device of the plan."""
        if not isinstance(error, tf.errors.ResourceExhaustedError):
            return None
        if found := _REFUSED.search(error.message):
            dtype = tf.dtypes.as_dtype({"float": "float32", "double": "float64"}.get(found[2], found[2]))
            nbytes = math.prod(int(size) for size in found[1].split(",") if size) * dtype.size
            device, refused = parse(found[3]).short, format_bytes(nbytes)
        elif found := _NOT_COPIED.search(error.message):
            nbytes, device, refused = 0, parse(found[2]).short, f"a copy of {found[3]!r} from {parse(found[1]).short}"
        else:
            return None
        return cls(error, placement, device, refused, nbytes, _peak_bytes(device)) if device in placement.totals else None

    @property
    def limit_bytes(self) -> int:
        """A limit that leaves room for what the plan did not foresee: lower by as much as it was wrong."""
        expected = self.placement.totals[self.device].peak_bytes
        needed = expected if self.peak_bytes is None else self.peak_bytes + self.refused_bytes
        return int(expected * min(MOST, max(LEAST, expected / max(1, needed))))

    def lowered(self, limits: Mapping[str, str | int]) -> dict[str, str | int]:
        """The limits by device spec, with this one for its device."""
        device = parse(self.device)
        return {**{spec: size for spec, size in limits.items() if parse(spec) != device}, self.device: self.limit_bytes}

    @property
    def text(self) -> str:
        """The estimate, what was measured, and what takes most."""
        totals, name = self.placement.totals[self.device], self.placement.graph.name
        held = "" if self.peak_bytes is None else f", when it had held up to {format_bytes(self.peak_bytes)}"
        limit = "" if totals.limit_bytes < 0 else f" of {format_bytes(totals.limit_bytes)}"
        unknown = " It takes sizes that only a call tells for 1." if self.refused_bytes > totals.peak_bytes else ""
        return (
            f"{name} ran out of memory on {self.device}: TensorFlow refused {self.refused}{held}. The plan "
            f"expects at most {format_bytes(totals.peak_bytes)}{limit}. Largest there: {self._largest()}.{unknown}"
        )

    def way_out(self, *, limit: bool = True, replan: bool = False) -> str:
        """What to do about it.

        Args:
            limit: whether a plan with a lower limit may be found.
            replan: whether such a one could be looked for at the next call.
        """
        outs = []
        if limit and self.limit_bytes >= self._stays_bytes():
            outs.append(
                f"memory_limits={{{self.device!r}: {self.limit_bytes}}}, an estimate of what leaves room for the unforeseen"
            )
        states = {state.kind for state in self.placement.graph.resources.values() if not state.stays}
        if "variable" in states and self.placement.options.get("variables") == "fixed":
            outs.append('variables="move"')
        outs.append("a smaller batch")
        if replan:
            outs.append('on_out_of_memory="replan"')
        return f"Way out: {', or '.join(outs)}."

    @property
    def pure(self) -> bool:
        """Whether a call changes nothing, so that it can be made again."""
        return not any("stateful" in op.flags and not entry_of(op.op_type).reads and op.count for op in self.placement.graph)

    def told(self, text: str) -> OutOfMemoryError:
        """The error, which from now on ends with this, and `text`."""
        self.error.__class__ = _RefusedError
        self.error.told = f"\n\n{self.text} {text}"
        refused: OutOfMemoryError = self.error
        return refused

    def _stays_bytes(self) -> int:
        """What the device holds from step to step that may be on no other: no plan has less there."""
        graph, units = self.placement.graph, self.placement.units
        plans = [self.placement.ops[op.name] for op in graph]
        held = ((plans[position], nbytes) for position, _, nbytes in kept(graph))
        return sum(nbytes for plan, nbytes in held if plan.device == self.device and len(units[plan.unit].time_ns) == 1)

    def _largest(self) -> str:
        """What takes most there, of what is kept or made there or comes from another device."""
        graph = self.placement.graph
        found: Counter[str] = Counter()
        for transfer in self.placement.transfers:
            if (transfer.dst, transfer.dst_memory) == (self.device, "device"):
                found[transfer.producer] += transfer.nbytes
        for op in graph:
            if self.placement.ops[op.name].device != self.device or not op.count:
                continue
            if (state := graph.resources.get(op.resource)) is not None:
                found[state.name] = state.nbytes
            elif op.op_type != "ReadVariableOp" and view_of(op.signature) is View.NONE:  # these are in the memory of others
                found[op.name] = sum(spec.nbytes for spec in op.signature.outputs)
        most = sorted(found.items(), key=lambda holder: (-holder[1], holder[0]))[:SHOWN]
        return ", ".join(f"{name!r} ({format_bytes(nbytes)})" for name, nbytes in most)


def report(placement: Placement, error: Any) -> None:
    """Makes an error in a function that runs by a plan say so if it is out of memory, whatever called the function."""
    if (found := Exhaustion.of(error, placement)) is not None:
        again = placement.options.get("on_out_of_memory") == "replan"
        found.told(f"{found.way_out()}{NOT_AGAIN if again else ''}")


def _peak_bytes(device: str) -> int | None:
    """What a CPU tells is not the host's."""
    return int(tf.config.experimental.get_memory_info(device)["peak"]) if device.startswith("GPU") else None
