"""Out of memory in a placed step: what the plan expected, what TensorFlow held when it gave up, and the limit to plan with."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placer.devicespec import parse
from placer.errors import OutOfMemoryError
from placer.placement import Placement
from placer.tf.tracing import READS
from placer.units import format_bytes

SHOWN = 4
MOST, LEAST = 0.9, 0.5
"""Of what a plan expected: the highest and the lowest limit to plan with next."""

_REFUSED = re.compile(r"allocating tensor with shape\s*\[([\d,]*)\] and type (\w+) on (\S*device:\w+:\d+)")


class _RefusedError(OutOfMemoryError, tf.errors.ResourceExhaustedError):  # type: ignore[misc]
    """For those too who catch TensorFlow's."""

    def __init__(self, text: str, error: Any) -> None:
        tf.errors.ResourceExhaustedError.__init__(self, error.node_def, error.op, text)


@dataclass(frozen=True)
class Exhaustion:
    """A call that ran out of memory."""

    error: Any
    placement: Placement
    device: str
    refused_bytes: int
    """What it asked for in vain."""
    peak_bytes: int | None
    """The most that was held on the device until then; None where nobody counts."""

    @classmethod
    def of(cls, error: Exception, placement: Placement) -> Exhaustion | None:
        """None for an error of another kind, or not of a device of the plan."""
        found = _REFUSED.search(error.message) if isinstance(error, tf.errors.ResourceExhaustedError) else None
        device = "" if found is None else parse(found[3]).short
        if found is None or device not in placement.totals:
            return None
        dtype = tf.dtypes.as_dtype({"float": "float32", "double": "float64"}.get(found[2], found[2]))
        nbytes = math.prod(int(size) for size in found[1].split(",") if size) * dtype.size
        return cls(error, placement, device, nbytes, _peak_bytes(device))

    @property
    def limit_bytes(self) -> int:
        """A limit that leaves room for what the plan did not foresee: lower by as much as it was wrong."""
        expected = self.placement.totals[self.device].peak_bytes
        needed = expected if self.peak_bytes is None else self.peak_bytes + self.refused_bytes
        return int(expected * min(MOST, max(LEAST, expected / max(1, needed))))

    @property
    def text(self) -> str:
        """The estimate, what was measured, and what takes most."""
        totals, name = self.placement.totals[self.device], self.placement.graph.name
        held = "" if self.peak_bytes is None else f", when it had held up to {format_bytes(self.peak_bytes)}"
        limit = "" if totals.limit_bytes < 0 else f" of {format_bytes(totals.limit_bytes)}"
        return (
            f"{name} ran out of memory on {self.device}: TensorFlow refused {format_bytes(self.refused_bytes)}{held}. The plan "
            f"expects at most {format_bytes(totals.peak_bytes)}{limit}, most of it for {self._largest()}."
        )

    def way_out(self, *, limit: bool = True, replan: bool = False) -> str:
        """What to do about it.

        Args:
            limit: whether a plan with a lower limit may be found.
            replan: whether such a one could be looked for at the next call.
        """
        outs = []
        if limit:
            outs.append(f"memory_limits={{{self.device!r}: {self.limit_bytes}}}, which leaves room for what it did not foresee")
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
        return not any("stateful" in op.flags and op.op_type not in READS and op.count for op in self.placement.graph)

    def raised(self, text: str) -> OutOfMemoryError:
        """As an error, with more to say."""
        return _RefusedError(f"{self.text} {text}", self.error)

    def _largest(self) -> str:
        graph = self.placement.graph
        found = {}
        for op in graph:
            if self.placement.ops[op.name].device == self.device and op.count:
                state = graph.resources.get(op.resource)
                found[state.name if state else op.name] = (
                    state.nbytes if state else max((spec.nbytes for spec in op.signature.outputs), default=0)
                )
        most = sorted(found.items(), key=lambda holder: (-holder[1], holder[0]))[:SHOWN]
        return ", ".join(f"{name!r} ({format_bytes(nbytes)})" for name, nbytes in most)


def _peak_bytes(device: str) -> int | None:
    """What a CPU tells is not the host's."""
    return int(tf.config.experimental.get_memory_info(device)["peak"]) if device.startswith("GPU") else None
