"""How often a loop runs, where its condition compares a counter with a limit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from placer.tf._private.func_graphs import static_value
from placer.tf.trace.bodies import Body, split_input

DEFAULT_TRIPS = 10
"""Iterations that are assumed of a loop whose count does not follow from the graph."""


class _CounterBound(NamedTuple):
    """The number of iterations that one comparison allows."""

    trips: int
    variable: int
    """Position of the counter among the loop's variables."""
    start: int
    step: int


class TripCounts:
    """Trip counts of a trace's loops, asked for in execution order."""

    def __init__(self) -> None:
        self._final_values: dict[str, int] = {}
        """By a loop's "out" node: the counter's value after the loop, where it is known."""

    def of_loop(self, cond: Body, inner: Body) -> tuple[int, str]:
        """How often a loop runs, and the source of that number.

        Args:
            cond: the loop's condition.
            inner: its body.

        Returns:
            The count and "constant" if each comparison of the condition is of a counter with constant start, step and limit,
            "upper bound" if only some are, "default" with `DEFAULT_TRIPS` if none is.
        """
        bounds: list[_CounterBound] = []
        complete = True
        for test_body, test in _conjuncts(cond, *cond.outputs[0]):
            bound = self._bound(cond, inner, test_body, test)
            if bound is None:
                complete = False
            else:
                bounds.append(bound)
        if not bounds:
            return DEFAULT_TRIPS, "default"
        trips = min(bound.trips for bound in bounds)
        assert cond.parent is not None
        for bound in bounds:
            self._final_values[f"{cond.parent.names[cond.site]}/out{bound.variable}"] = bound.start + trips * bound.step
        return trips, "constant" if complete else "upper bound"

    def _bound(self, cond: Body, inner: Body, body: Body, test: str) -> _CounterBound | None:
        """What the op `test` of `body` allows; None if it does not compare a counter with a limit."""
        node = body.nodes[test]
        if test in body.inputs or node.op not in ("Less", "LessEqual", "Greater", "GreaterEqual"):
            return None
        sides = [_behind_forwarding(body, *split_input(text)) for text in node.input[:2]]
        for swapped in (False, True):
            (holder, counter), limit_side = sides[::-1] if swapped else sides
            if holder is not cond or counter not in cond.inputs:
                continue
            position = cond.inputs[counter]
            limit = self._constant(*limit_side)
            start = self._constant(cond.parent, *cond.operands[position]) if cond.parent is not None else None
            step = self._step(inner, position)
            if limit is None or start is None or not step:
                continue
            rising = (node.op in ("Less", "LessEqual")) != swapped
            if rising != (step > 0):
                continue
            span = (limit - start) if rising else (start - limit)
            trips = math.floor(span / abs(step)) + 1 if "Equal" in node.op else math.ceil(span / abs(step))
            return _CounterBound(max(0, trips), position, start, step)
        return None

    def _step(self, inner: Body, position: int) -> int | None:
        """The constant that is added to a loop variable in each iteration."""
        body, name = _behind_forwarding(inner, *inner.outputs[position])
        node = body.nodes[name]
        if node.op not in ("AddV2", "Add", "Sub") or name in body.inputs:
            return None
        left, right = (_behind_forwarding(body, *split_input(text)) for text in node.input[:2])
        if left[0] is inner and inner.inputs.get(left[1]) == position:
            step = self._constant(*right)
            return None if step is None else (-step if node.op == "Sub" else step)
        if node.op != "Sub" and right[0] is inner and inner.inputs.get(right[1]) == position:
            return self._constant(*left)
        return None

    def _constant(self, body: Body, name: str, index: int = 0) -> int | None:
        """An integer that is known while tracing, looked up through the bodies around it; None if it is not known."""
        while True:
            body, name = _behind_forwarding(body, name, index)
            if name in body.inputs:
                if body.kind == "root" or body.parent is None:
                    return None
                position = body.inputs[name]
                if body.kind in ("cond", "body"):
                    loop_body = body.loop_body
                    back = _behind_forwarding(loop_body, *loop_body.outputs[position])
                    if not (back[0] is loop_body and loop_body.inputs.get(back[1]) == position):
                        return None  # it changes from iteration to iteration
                name, index = body.operands[position]
                body = body.parent
                continue
            children = body.children.get(name)
            if children is not None:
                return self._final_values.get(f"{body.names[name]}/out{index}") if children[0].kind == "cond" else None
            value = static_value(body.operations[name].outputs[index])
            if value is None or getattr(value, "size", 1) != 1 or getattr(value, "dtype", None) is None:
                return None
            if value.dtype.kind not in "iuf" or not math.isfinite(float(value.reshape(-1)[0])):
                return None
            number = value.reshape(-1)[0]
            return int(number) if float(number).is_integer() else None


def _conjuncts(cond: Body, name: str, index: int) -> Iterator[tuple[Body, str]]:
    """The ops, each with its body, whose logical AND is output `index` of op `name`."""
    cond, name = _behind_forwarding(cond, name, index)
    node = cond.nodes[name]
    if node.op == "LogicalAnd":
        for text in node.input[:2]:
            yield from _conjuncts(cond, *split_input(text))
    else:
        yield cond, name


def _behind_forwarding(body: Body, name: str, index: int) -> tuple[Body, str]:
    """The op, with its body, that makes a value; calls and ops that only pass the value on are skipped."""
    while True:
        children = body.children.get(name)
        node = body.nodes[name]
        if children is not None and children[0].kind == "call":
            body = children[0]
            name, index = body.outputs[index]
        elif name not in body.inputs and node.op in ("Identity", "Squeeze", "Reshape", "StopGradient"):
            name, index = split_input(node.input[0])
        elif name in body.inputs and body.kind == "call" and body.parent is not None:
            name, index = body.operands[body.inputs[name]]
            body = body.parent
        else:
            return body, name
