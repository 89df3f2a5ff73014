"""Where the ops of a real call ran, compared with the plan: read from TensorFlow's partition graphs."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placer.common.device_spec import parse
from placer.common.html import Html, html_table, stacked
from placer.graph.op_graph import OpGraph, OpNode
from placer.plan.placement import Placement
from placer.tf._private.gradients import is_trainable
from placer.tf._private.runtime import recorded_partitions
from placer.tf.connecting import check_all_answer
from placer.tf.run.executed_names import planned_names

TRANSFER_OPS = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv"})
"""Ops that TensorFlow adds to copy a tensor to another device."""

# Grappler's dependency optimiser names a node that it adds, to wait for several ops of one device, after the op that waits.
_JOINED_WAITS = re.compile(r"GroupCrossDeviceControlEdges_\d+/")


@dataclass(frozen=True)
class Mismatch:
    """An op that ran on another device than planned."""

    op: str
    planned: str
    ran: str


@dataclass(frozen=True)
class Observation:
    """One real call of a placed function."""

    outputs: Any
    ran: Mapping[str, str]
    """By op: the device that it ran on. It has all planned ops but those in `folded`, parts of fused ops included."""
    mismatches: tuple[Mismatch, ...]
    fused: Mapping[str, str]
    """By op: the fused op that it became a part of."""
    folded: tuple[str, ...]
    """Planned ops that Grappler folded, deduplicated or pruned, or that have no op of their own (loop values)."""
    compiled_callers: tuple[str, ...] = ()
    """Functions that call this one and that XLA compiles as a whole: the plan has no effect there."""

    @property
    def _counts(self) -> str:
        """How many ops ran on each device, in words."""
        ran = ", ".join(f"{count} on {device}" for device, count in sorted(Counter(self.ran.values()).items()))
        return f"{len(self.ran)} ops ran, {ran}; {len(self.folded)} folded away by TensorFlow"

    @property
    def _result(self) -> str:
        """Whether the plan had its effect, in words; "" if there are mismatches to say it."""
        if self.compiled_callers:
            callers = " and ".join(self.compiled_callers)
            return (
                f"only this call ran by its plan; in {callers} the ops are in one compiled unit on one device (jit_compile=True)"
            )
        return "" if self.mismatches else "each op ran on its planned device"

    def __str__(self) -> str:
        mismatches = [f"{m.op}: planned for {m.planned}, ran on {m.ran}" for m in self.mismatches]
        return "\n".join(filter(None, [self._counts, *mismatches, self._result]))

    def _repr_html_(self) -> Html:
        rows = [[m.op, m.planned, m.ran] for m in self.mismatches]
        mismatches = [html_table(["op", "planned", "ran"], rows)] if rows else []
        return stacked(*filter(None, [self._counts, *mismatches, self._result]))


def observe_call(call: Callable[[], Any], placement_of: Callable[[], Placement], functions: int) -> Observation:
    """Makes a call of a placed function and reads TensorFlow's partition graphs.

    Args:
        call: makes the call. The functions behind it must not have run before, since TensorFlow gives out partition graphs only
            at a function's first run.
        placement_of: gives the plan that the call ran by; called after `call`.
        functions: how many functions the plan is for: 1, or 2 with a backward function.

    Raises:
        WorkerError: a worker of a cluster does not answer.
    """
    check_all_answer()
    with recorded_partitions() as recorded:
        outputs = call()
        tf.nest.map_structure(
            lambda t: t.numpy() if hasattr(t, "numpy") and t.dtype not in (tf.resource, tf.variant) else t, outputs
        )
        check_all_answer()
    placement = placement_of()
    graph, planned = placement.graph, {name: plan.device for name, plan in placement.ops.items()}
    ran: dict[str, str] = {}
    members_of_fused: dict[str, frozenset[str]] = {}
    # Eager ops whose inputs are on several devices run as functions of one op: the placed functions are the largest.
    largest = sorted((f.partition_graphs for f in recorded), key=lambda parts: -sum(len(g.node) for g in parts))
    for partition in itertools.chain(*largest[:functions]):
        for node in partition.node:
            name = next((n for n in planned_names(node.name) if n in planned), None)
            if name is None or node.op in TRANSFER_OPS or _JOINED_WAITS.match(node.name):
                continue
            if node.op == "Const" and graph.op(name).op_type != "Const":
                continue  # folded into a constant of the same name
            ran[name] = parse(node.device).short
            if members := _member_types(node):
                members_of_fused[name] = members
    fused = {part: whole for whole, members in members_of_fused.items() for part in _parts(graph, whole, members, ran)}
    ran |= {part: ran[whole] for part, whole in fused.items()}
    mismatches = tuple(
        Mismatch(name, planned[name], device)
        for name, device in ran.items()
        if device != planned[name] and _has_a_place(graph.op(name))
    )
    folded = tuple(n for n in planned if n not in ran)
    return Observation(outputs, ran, mismatches, fused, folded)


def with_gradient(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Calls a ConcreteFunction under a tape and takes the gradient of all its results; returns the results."""
    watched = [t for t in tf.nest.flatten((args, kwargs), expand_composites=True) if tf.is_tensor(t)]
    with tf.GradientTape() as tape:
        tape.watch([t for t in watched if is_trainable(t)])
        outputs = function(*args, **kwargs)
    results = [t for t in tf.nest.flatten(outputs, expand_composites=True) if tf.is_tensor(t) and is_trainable(t)]
    tape.gradient(results, [*watched, *function.graph.trainable_variables])
    return outputs


def _has_a_place(op: OpNode) -> bool:
    """Whether an op's device matters: not for inputs, constants, and ops on which nothing depends and that may be left out."""
    return op.role not in ("argument", "capture", "constant") and op.count > 0


def _member_types(node: Any) -> frozenset[str]:
    """Types of the ops that a fused op replaces; empty for any other op."""
    names = [s.decode() for key in ("fused_ops", "op_names") if key in node.attr for s in node.attr[key].list.s]
    if "activation_mode" in node.attr and node.op.startswith("_Fused"):
        names.append(node.attr["activation_mode"].s.decode())
    if not names:
        return frozenset()
    head = node.op.rpartition("Fused")[2].removesuffix("Ex")
    return frozenset({*names, head, f"{head}V3", "FusedBatchNormV3" if "BatchNorm" in node.op else head})


def _parts(graph: OpGraph, whole: str, members: frozenset[str], ran: Mapping[str, str]) -> Iterator[str]:
    """Ops that became part of the fused op `whole`: of its types, with a result for it alone, and that did not run themselves."""
    stack, visited = [whole], {whole}
    while stack:
        for before in graph.graph.pred[stack.pop()]:
            if before in visited or before in ran or graph.op(before).op_type not in members:
                continue
            if all(after in visited for after in graph.graph.succ[before]):
                visited.add(before)
                yield before
                stack.append(before)
