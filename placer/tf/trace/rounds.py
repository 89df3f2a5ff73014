"""How often a loop runs, where its condition compares a counter with a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from placer.errors import OptionError
from placer.graph.sizes import Rounds, Source, weakest
from placer.tf._private.func_graphs import static_value
from placer.tf.trace.bodies import Body, split_input

ASSUMED_ROUNDS = 10
"""Rounds that are assumed of a loop of which nothing is known."""

_FORWARDING = ("Identity", "Squeeze", "Reshape", "StopGradient")

ValueOf: TypeAlias = Callable[[Body, str, int], tuple[Any, Source]]
"""The value of output `index` of op `name` of a body, None where it does not follow from the graph, and its source. A value of
the source "bound" is an upper bound."""


def traced_value(body: Body, name: str, index: int) -> tuple[Any, Source]:
    """The value that follows from the constants of the traced graph."""
    return static_value(body.operations[name].outputs[index]), "exact"


class _Number(NamedTuple):
    value: int
    source: Source


class LoopRounds:
    """Rounds of a trace's loops, asked for in execution order.

    Args:
        overrides: by a loop's path, or a glob of it, what a run had or the user says.
        value_of: see `ValueOf`.
        are_bounds: whether values that sizes only bound are their bounds, and not likely values.
    """

    def __init__(
        self, overrides: Mapping[str, Rounds] | None = None, value_of: ValueOf = traced_value, are_bounds: bool = True
    ) -> None:
        self.known: dict[str, Rounds] = {}
        """By path of the loop."""
        self._overrides = overrides or {}
        self._value_of = value_of
        self._are_bounds = are_bounds

    def of_loop(self, cond: Body, inner: Body) -> Rounds:
        """How often a loop runs.

        Args:
            cond: the loop's condition.
            inner: its body.

        Returns:
            The least number of rounds that a comparison of a counter with a limit allows, among those that the condition joins
            by "and". It is a bound if the condition has other parts, else what the comparison's numbers are.

        Raises:
            OptionError: the user says more rounds than the loop can run.
        """
        assert cond.parent is not None
        path = cond.parent.names[cond.site]
        self.known[path] = self._overridden(path, self._derived(cond, inner))
        return self.known[path]

    def of_dataset(self, path: str, derived: Rounds) -> Rounds:
        """How often the op `path` runs its function for an element of a dataset, if `derived` follows from the dataset."""
        self.known[path] = self._overridden(path, derived)
        return self.known[path]

    def _overridden(self, path: str, derived: Rounds) -> Rounds:
        """What is derived for a loop if the graph says its rounds, else what was given for it, else what was seen of it."""
        override = self._overrides.get(path)
        if override is None:
            override = next((rounds for glob, rounds in self._overrides.items() if fnmatchcase(path, glob)), None)
        if override is None or derived.source == "exact":
            return derived
        if self._are_bounds and (override.source, derived.source) == ("given", "bound") and override.value > derived.value:
            raise OptionError(f"rounds, {path!r}: {override.value} are given, and this loop runs at most {derived.value} rounds.")
        return override

    def _derived(self, cond: Body, inner: Body) -> Rounds:
        parts = [self._allowed(cond, inner, *part) for part in _conjuncts(cond, *cond.outputs[0])]
        limits = [limit for limit in parts if limit is not None]
        if not limits:
            return Rounds(ASSUMED_ROUNDS, "assumed")
        least = min(limits)
        sources = [limit.source for limit in limits] if len(limits) == len(parts) else [least.source, "bound"]
        return Rounds(least.value, weakest(sources))

    def _allowed(self, cond: Body, inner: Body, body: Body, test: str) -> Rounds | None:
        """The rounds that the op `test` of `body` allows; None if it does not compare a counter with a limit."""
        node = body.nodes[test]
        if test in body.inputs or node.op not in ("Less", "LessEqual", "Greater", "GreaterEqual"):
            return None
        sides = [_behind_forwarding(body, *split_input(text)) for text in node.input[:2]]
        for swapped in (False, True):
            (holder, counter), limit_side = sides[::-1] if swapped else sides
            if holder is not cond or counter not in cond.inputs:
                continue
            position = cond.inputs[counter]
            limit, start, step = self._number(*limit_side), self._start(cond, position), self._step(inner, position)
            if limit is None or start is None or not step:
                continue
            rising = (node.op in ("Less", "LessEqual")) != swapped
            subtracted = start if rising else limit
            if rising != (step > 0) or subtracted.source == "bound":
                continue  # from an upper bound of what is subtracted no upper bound follows
            span = (limit.value - start.value) if rising else (start.value - limit.value)
            rounds = math.floor(span / abs(step)) + 1 if "Equal" in node.op else math.ceil(span / abs(step))
            return Rounds(max(0, rounds), weakest([limit.source, start.source]))
        return None

    def _start(self, loop: Body, position: int) -> _Number | None:
        """The value of a loop variable before the first round."""
        return None if loop.parent is None else self._number(loop.parent, *loop.operands[position])

    def _step(self, inner: Body, position: int) -> int | None:
        """The constant that is added to a loop variable in each round."""
        body, name = _behind_forwarding(inner, *inner.outputs[position])
        node = body.nodes[name]
        if node.op not in ("AddV2", "Add", "Sub") or name in body.inputs:
            return None
        left, right = (_behind_forwarding(body, *split_input(text)) for text in node.input[:2])
        if left[0] is inner and inner.inputs.get(left[1]) == position:
            step, sign = self._number(*right), -1 if node.op == "Sub" else 1
        elif node.op != "Sub" and right[0] is inner and inner.inputs.get(right[1]) == position:
            step, sign = self._number(*left), 1
        else:
            return None
        return sign * step.value if step is not None and step.source == "exact" else None

    def _final(self, loop: Body, position: int) -> _Number | None:
        """The value of a loop variable after the loop, if a constant is added to it in each round."""
        rounds = self.known.get(loop.parent.names[loop.site]) if loop.parent is not None else None
        start, step = self._start(loop, position), self._step(loop.loop_body, position)
        if rounds is None or start is None or step is None:
            return None
        source = weakest([rounds.source, start.source])
        return None if source == "bound" and step < 0 else _Number(start.value + rounds.value * step, source)

    def _number(self, body: Body, name: str, index: int = 0) -> _Number | None:
        """A whole number that is known without a run, looked up through the bodies around it; None if it is not known."""
        while True:
            body, name, index = _source(body, name, index)
            if name in body.inputs:
                if body.parent is None:
                    return None
                position = body.inputs[name]
                if body.kind in ("cond", "body"):
                    loop_body = body.loop_body
                    back = _behind_forwarding(loop_body, *loop_body.outputs[position])
                    if not (back[0] is loop_body and loop_body.inputs.get(back[1]) == position):
                        return None  # it changes from round to round
                name, index = body.operands[position]
                body = body.parent
                continue
            children = body.children.get(name)
            if children is not None:
                return self._final(children[0], index) if children[0].kind == "cond" else None
            value, source = self._value_of(body, name, index)
            if value is None or getattr(value, "size", 1) != 1 or getattr(value, "dtype", None) is None:
                return None
            if value.dtype.kind not in "iuf" or not math.isfinite(float(value.reshape(-1)[0])):
                return None
            number = value.reshape(-1)[0]
            return _Number(int(number), source) if float(number).is_integer() else None


def _conjuncts(cond: Body, name: str, index: int) -> Iterator[tuple[Body, str]]:
    """The ops, each with its body, whose logical AND is output `index` of op `name`.

    Python's `and` becomes a branch: "if a then b else a", or "else False".
    """
    cond, name, index = _source(cond, name, index)
    node, children = cond.nodes[name], cond.children.get(name)
    if node.op == "LogicalAnd":
        for text in node.input[:2]:
            yield from _conjuncts(cond, *split_input(text))
    elif children is not None and node.op in ("If", "StatelessIf") and _is_and(cond, name, index):
        yield from _conjuncts(cond, *split_input(node.input[0]))
        yield from _conjuncts(children[0], *children[0].outputs[index])
    else:
        yield cond, name


def _is_and(body: Body, name: str, index: int) -> bool:
    """Whether a branch gives False, or its predicate, where its predicate is False."""
    other = body.children[name][1]
    at, op = _behind_forwarding(other, *other.outputs[index])
    if (at, op) == _behind_forwarding(body, *split_input(body.nodes[name].input[0])):
        return True
    value = static_value(at.operations[op].outputs[0]) if at.nodes[op].op == "Const" else None
    return value is not None and not value.any()


def _behind_forwarding(body: Body, name: str, index: int) -> tuple[Body, str]:
    """The op, with its body, that makes a value; see `_source`."""
    return _source(body, name, index)[:2]


def _source(body: Body, name: str, index: int) -> tuple[Body, str, int]:
    """The body, op and output that make a value; calls, inputs of branches, and ops that only pass it on are skipped."""
    while True:
        children = body.children.get(name)
        node = body.nodes[name]
        if children is not None and children[0].kind == "call":
            body = children[0]
            name, index = body.outputs[index]
        elif name not in body.inputs and node.op in _FORWARDING:
            name, index = split_input(node.input[0])
        elif name in body.inputs and body.kind in ("call", "branch") and body.parent is not None:
            name, index = body.operands[body.inputs[name]]
            body = body.parent
        else:
            return body, name, index
