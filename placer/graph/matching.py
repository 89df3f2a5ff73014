"""The ops that a pin names."""

from __future__ import annotations

import fnmatch
import re

from placer.errors import OptionError
from placer.graph.layers import is_in
from placer.graph.op_graph import OpGraph

_ABOUT_REPLICAS = " Ops of the replicas of a distribution strategy stay where it runs them."


def matching(graph: OpGraph, pattern: str, what: str = "pin") -> list[str]:
    """The ops that a pin names, in execution order.

    Args:
        graph: of the ops.
        pattern: an op's name or a glob over names, an op type, a variable's name or a glob over these, or a layer, see
            `placer.graph.layers`. A glob or an op type never matches an argument or a captured tensor, and no op
            of the replicas of a distribution strategy.
        what: the pattern's kind in the error's message.

    Raises:
        OptionError: the pattern matches nothing; the message has similar names.
    """
    if not isinstance(pattern, str):
        raise OptionError(f"{pattern!r} is no op's name: give text, such as {next(iter(graph.graph), '')!r}.")
    matched = set(graph.ops_by_word.get(pattern, ()))
    if any(character in pattern for character in "*?["):
        match = re.compile(fnmatch.translate(pattern)).match
        variables = {key for key, resource in graph.resources.items() if match(resource.name) or match(key)}
        matched |= {op.name for op in graph if op.resource in variables or (not op.is_fixed and match(op.name))}
    if not matched:
        matched = {name for name, layer in graph.layers.items() if is_in(layer, pattern) and not graph.op(name).is_of_strategy}
    if not matched:
        raise OptionError(
            f"{what} {pattern!r} matches no op, op type, variable or layer of {graph.name!r}"
            f"{graph.did_you_mean(pattern, pins=True)} "
            f"A {what} is an op's name or a glob over names, an op type, a variable's name, or a layer."
            f"{_ABOUT_REPLICAS if graph.runs_replicas else ''}"
        )
    return [name for name in graph.graph if name in matched] if len(matched) > 1 else list(matched)
