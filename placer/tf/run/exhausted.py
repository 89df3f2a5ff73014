"""A placed step that runs out of memory: the peak of the plan, the peak that was measured, and a limit for the next plan."""

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
from placer.graph.op_graph import OpGraph
from placer.plan.call_plan import CallPlan
from placer.plan.placement import Placement
from placer.problem.persistent import persistent

MAX_TENSORS_NAMED = 4
MAX_LIMIT_SHARE, MIN_LIMIT_SHARE = 0.9, 0.5
"""The highest and the lowest limit for the next plan, as shares of the predicted peak."""

NOT_REPLANNED = (
    ' It is not planned again: on_out_of_memory="replan" is for calls of the placed function itself, not by a tf.function.'
)
_REFUSED_TENSOR = re.compile(r"allocating tensor with shape\s*\[([\d,]*)\] and type (\w+) on (\S*device:\w+:\d+)")
_REFUSED_COPY = re.compile(r"unable to allocate output tensor\. Key: ([^;\s]+);[^;]*;([^;\s]+);edge_\d+_([^;\s]+);")


class _ExplainedError(OutOfMemoryError, tf.errors.ResourceExhaustedError):  # type: ignore[misc]
    """TensorFlow's error with an explanation at its end. It is also caught as TensorFlow's `ResourceExhaustedError`."""

    explanation = ""

    @property
    def message(self) -> str:
        return f"{self._message}{self.explanation}"


def is_out_of_memory(error: Any) -> bool:
    """Whether TensorFlow refused memory."""
    return isinstance(error, tf.errors.ResourceExhaustedError)


def changes_nothing(graph: OpGraph) -> bool:
    """Whether a call changes nothing, so that it can be made again. Ops count that no call ran so far: the next one may."""
    return not any("stateful" in op.flags and not entry_of(op.op_type).reads for op in graph)


@dataclass(frozen=True)
class Exhaustion:
    """A call that ran out of memory."""

    error: Any
    """TensorFlow's error."""
    placement: Placement
    """The plan that the call ran by."""
    device: str
    refused: str
    """The allocation that failed, in words."""
    refused_bytes: int
    """Its size; 0 if TensorFlow does not say."""
    peak_bytes: int | None
    """The most that was held on the device until then; None if TensorFlow does not count that."""

    @classmethod
    def of(cls, error: Any, placement: Placement) -> Exhaustion | None:
        """The exhaustion that an error reports; None for an error of another kind, or of a device that is not in the plan."""
        if not is_out_of_memory(error):
            return None
        if tensor := _REFUSED_TENSOR.search(error.message):
            dtype = tf.dtypes.as_dtype({"float": "float32", "double": "float64"}.get(tensor[2], tensor[2]))
            nbytes = math.prod(int(size) for size in tensor[1].split(",") if size) * dtype.size
            device, refused = parse(tensor[3]).short, format_bytes(nbytes)
        elif copy := _REFUSED_COPY.search(error.message):
            nbytes, device, refused = 0, parse(copy[2]).short, f"a copy of {copy[3]!r} from {parse(copy[1]).short}"
        else:
            return None
        return cls(error, placement, device, refused, nbytes, _peak_bytes(device)) if device in placement.totals else None

    @property
    def limit_bytes(self) -> int:
        """A limit for the next plan: below the predicted peak by the factor by which the prediction was too low."""
        predicted = self.placement.totals[self.device].peak_bytes
        needed = predicted if self.peak_bytes is None else self.peak_bytes + self.refused_bytes
        return int(predicted * min(MAX_LIMIT_SHARE, max(MIN_LIMIT_SHARE, predicted / max(1, needed))))

    def lowered(self, limits: Mapping[str, str | int]) -> dict[str, str | int]:
        """The limits by device spec, with `limit_bytes` for the device."""
        device = parse(self.device)
        return {**{spec: size for spec, size in limits.items() if parse(spec) != device}, self.device: self.limit_bytes}

    @property
    def text(self) -> str:
        """The predicted peak, the measured peak, and the largest tensors."""
        totals, name = self.placement.totals[self.device], self.placement.graph.name
        held = "" if self.peak_bytes is None else f", when it had held up to {format_bytes(self.peak_bytes)}"
        limit = "" if totals.limit_bytes < 0 else f" of {format_bytes(totals.limit_bytes)}"
        is_unknown = self.refused_bytes > totals.peak_bytes
        unknown = " Sizes that are known only in a call are assumed in the plan." if is_unknown else ""
        return (
            f"{name} ran out of memory on {self.device}: TensorFlow refused {self.refused}{held}. The plan "
            f"expects at most {format_bytes(totals.peak_bytes)}{limit}. Largest there: {self._largest()}.{unknown}"
        )

    def way_out(self, *, limit: bool = True, replan: bool = False) -> str:
        """What the user can do.

        Args:
            limit: whether to propose a lower memory limit.
            replan: whether to propose ``on_out_of_memory="replan"``.
        """
        outs = []
        if limit and self.limit_bytes >= self._fixed_bytes():
            outs.append(
                f"memory_limits={{{self.device!r}: {self.limit_bytes}}}, an estimate of what leaves room for the unforeseen"
            )
        states = {state.kind for state in self.placement.graph.resources.values() if not state.stays}
        if "variable" in states and self.placement.options.get("variables") != "move":
            outs.append('variables="move"')
        outs.append("a smaller batch")
        if replan:
            outs.append('on_out_of_memory="replan"')
        return f"Way out: {', or '.join(outs)}."

    def explained(self, text: str) -> OutOfMemoryError:
        """The error, whose message from now on ends with the exhaustion and `text`."""
        self.error.__class__ = _ExplainedError
        self.error.explanation = f"\n\n{self.text} {text}"
        explained: OutOfMemoryError = self.error
        return explained

    def _fixed_bytes(self) -> int:
        """What the device holds from step to step and no other device may hold: a lower bound on every plan's peak there."""
        graph, units = self.placement.graph, self.placement.units
        plans = [self.placement.ops[op.name] for op in graph]
        held = ((plans[position], nbytes) for position, _, nbytes in persistent(graph))
        return sum(nbytes for plan, nbytes in held if plan.device == self.device and len(units[plan.unit].time_ns) == 1)

    def _largest(self) -> str:
        """The largest tensors on the device, of those that are kept or made there or copied to it."""
        graph = self.placement.graph
        nbytes_of: Counter[str] = Counter()
        for transfer in self.placement.transfers:
            if (transfer.dst, transfer.dst_memory) == (self.device, "device"):
                nbytes_of[transfer.producer] += transfer.nbytes
        for op in graph:
            if self.placement.ops[op.name].device != self.device or not op.count:
                continue
            if (state := graph.resources.get(op.resource)) is not None:
                nbytes_of[state.name] = state.nbytes
            elif entry_of(op.op_type).reads != "value" and view_of(op.signature) is View.NONE:  # these share memory
                nbytes_of[op.name] = sum(spec.nbytes for spec in op.signature.outputs)
        largest = sorted(nbytes_of.items(), key=lambda named: (-named[1], named[0]))[:MAX_TENSORS_NAMED]
        return ", ".join(f"{name!r} ({format_bytes(nbytes)})" for name, nbytes in largest)


def report(plan: CallPlan, error: Any) -> None:
    """Explains an out-of-memory error in a function that runs by a plan, whatever called the function."""
    if is_out_of_memory(error) and (exhaustion := Exhaustion.of(error, plan.placement)) is not None:
        asked_to_replan = plan.options.get("on_out_of_memory") == "replan"
        exhaustion.explained(f"{exhaustion.way_out()}{NOT_REPLANNED if asked_to_replan else ''}")


def _peak_bytes(device: str) -> int | None:
    """The most that a GPU held in this process; None for a CPU, for which TensorFlow does not count it."""
    return int(tf.config.experimental.get_memory_info(device)["peak"]) if device.startswith("GPU") else None
