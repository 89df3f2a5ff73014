"""Where a trace's variables are, and where a plan has them."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placer.common.device_spec import parse
from placer.errors import MoveError
from placer.plan.call_plan import CallPlan
from placer.tf._private.func_graphs import external_captures
from placer.tf._private.handles import has_value, held_specs, location, variable_of
from placer.tf.devices import full_name
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.trace.tracing import Trace

_relying: weakref.WeakSet[TapedFunction] = weakref.WeakSet()
"""Placed functions that run by a plan which decided where their variables are."""


@dataclass(frozen=True, slots=True)
class Move:
    """A variable, and the device to which it is moved."""

    variable: Any
    device: str


def name_of(variable: Any) -> str:
    """A variable's name as the user gave it."""
    return str(variable.name).removesuffix(":0")


def rely_on_variables(function: TapedFunction) -> None:
    """Records that a placed function runs by a plan that decided where its variables are: no other plan may move them."""
    _relying.add(function)


def release_variables(function: TapedFunction) -> None:
    """Lets later plans move the variables of a function that no longer runs."""
    _relying.discard(function)


def immovable_handles() -> set[int]:
    """Ids of the handles of variables that no plan may move, since a function relies on where they are."""
    return {id(handle) for function in _relying for handle in function._captured_inputs}


def needed_moves(trace: Trace, device_of: Mapping[str, str]) -> list[Move]:
    """The moves that a plan needs: of captured variables that are not where the plan has them.

    Args:
        trace: of the planned function.
        device_of: by node of the trace's `OpGraph`: its device in the plan.

    Raises:
        MoveError: there is no tf.Variable for a handle.
    """
    moves = []
    for name, handle in _captured_handles(trace).items():
        device = full_name(device_of[name])
        if held_specs(handle) and location(handle) != device:
            variable = variable_of(handle)
            if variable is None:
                raise MoveError(
                    f"{name!r} cannot be moved to {device_of[name]}: no tf.Variable has it. Way out: pin it to where it is."
                )
            moves.append(Move(variable, device))
    return moves


def any_elsewhere(trace: Trace, plan: CallPlan) -> bool:
    """Whether a plan no longer fits because a captured resource moved.

    The plan still fits if the resource can be moved to its planned device. It can if it has not moved since the plan was made and
    no function relies on its place.
    """
    immovable = immovable_handles()
    for name, handle in _captured_handles(trace).items():
        device = parse(location(handle)).short
        if name not in plan.state_device_of or device == plan.device_of[name]:
            continue
        if device != plan.state_device_of[name] or id(handle) in immovable:
            return True
    return False


def in_order(moves: Sequence[Move]) -> list[Move]:
    """Moves to the host first, then always the move whose target device has gained most memory from the moves before it.

    So devices that exchange variables need room for one copy, not for all variables that one of them receives.
    """
    # By source and target device: the moves, smallest first, each with its bytes.
    by_way: dict[tuple[str, str], list[tuple[int, Move]]] = {}
    for move in moves:
        by_way.setdefault((location(move.variable._handle), move.device), []).append((bytes_of(move.variable), move))
    for sized in by_way.values():
        sized.sort(key=lambda entry: entry[0])
    order: list[Move] = []
    gained: Counter[str] = Counter()
    while by_way:
        source, target = max(by_way, key=lambda way: (parse(way[1]).type == "CPU", gained[way[1]] - by_way[way][0][0]))
        nbytes, move = by_way[source, target].pop(0)
        if not by_way[source, target]:
            del by_way[source, target]
        gained.update({source: nbytes})
        gained.subtract({target: nbytes})
        order.append(move)
    return order


def _captured_handles(trace: Trace) -> dict[str, Any]:
    """By node of the trace's `OpGraph`: the handle of each captured resource that exists already.

    The function may have more captures if its gradient was taken after it was traced; those have no node.
    """
    names = trace.root.names
    captured = [(names.get(inner.op.name), outer) for outer, inner in external_captures(trace.root.graph)]
    return {name: outer for name, outer in captured if name and outer.dtype == tf.resource and location(outer)}


def bytes_of(variable: Any) -> int:
    """The bytes of its current value; 0 if it has none."""
    if not has_value(variable._handle):
        return 0
    shape = tf.raw_ops.VariableShape(input=variable._handle, out_type=tf.int64).numpy()
    return int(shape.prod()) * int(variable.dtype.size)
