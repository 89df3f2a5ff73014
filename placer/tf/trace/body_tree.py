"""Finds every body that a traced function calls, and names all ops by call path."""

from __future__ import annotations

import re
from typing import Any

from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.tf._private.definitions import readable_function
from placer.tf._private.func_graphs import external_captures
from placer.tf.trace.bodies import BRANCHES, LOOPS, Body, BodyKind, is_call, is_compiled
from placer.tf.trace.hoisting import find_hoists
from placer.tf.trace.op_types import functions_of

_LOOP_OR_BRANCH_VALUE = re.compile(r"(.*)/(?:(?:in|out|read)\d+|out)")
"""Paths of values that loops and branches pass on (see `placer.graph.op_graph.Role`). They are no ops in the traced graph."""


def owner_of_value(path: str) -> str:
    """The loop or branch that passes on the value at `path`; any other path unchanged."""
    match = _LOOP_OR_BRANCH_VALUE.fullmatch(path)
    return match[1] if match else path


def read_root(function: Any) -> Body:
    """The tree of bodies of a traced function."""
    return _read_body(function, "", "root", None, "", set())


def read_inner(function: Any, path: str) -> Body:
    """The tree of bodies of a function that the op at `path` runs as a whole."""
    return _read_body(function, path, "root", None, "", set())


def read_called(body: Body, taken: set[str]) -> None:
    """Adds all bodies below `body`, whose own ops are named already.

    Args:
        body: without children.
        taken: names of ops that no op below may have; the new names are added.
    """
    for name, node in body.nodes.items():
        bodies = [
            _read_body(inner, f"{body.names[name]}{part}", inner_kind, body, name, taken)
            for part, inner_kind, inner in _called(node, body.graph)
        ]
        if bodies:
            body.children[name] = tuple(bodies)
            if node.op in LOOPS:
                find_hoists(*bodies)


def variable_names(graph: Any) -> dict[int, str]:
    """By id of its handle: the user's name of each variable of a function's graph."""
    # `handle` would initialise a variable that waits for its plan, `_handle` does not.
    return {id(getattr(v, "_handle", None)): v.name.removesuffix(":0") for v in graph.variables}


def _read_body(function: Any, path: str, kind: BodyKind, parent: Body | None, site: str, taken: set[str]) -> Body:
    body = Body(path, kind, function, parent, site)
    # The names of ops in a loop or branch begin with the loop's own name, in a copy with the whole path: it is not repeated.
    scopes = (f"{path}/", f"{site}/") if kind in ("cond", "body", "branch") else ()
    renamed = _capture_names(body.graph) if kind == "root" else {}
    # A loop or branch gets nodes of its own below its path. In a function that was placed before, ops can have such names.
    ambiguous = {match[1] for match in map(_LOOP_OR_BRANCH_VALUE.fullmatch, body.nodes) if match}
    for name, node in body.nodes.items():
        local = renamed.get(name) or next((name[len(scope) :] for scope in scopes if name.startswith(scope)), name)
        wanted = unique = f"{path}/{local}" if path else local
        suffix = int(name in ambiguous and (node.op in LOOPS or node.op in BRANCHES))
        if suffix:
            unique = f"{wanted}_{suffix}"
        while unique in taken:
            suffix += 1
            unique = f"{wanted}_{suffix}"
        taken.add(unique)
        body.names[name] = unique
    read_called(body, taken)
    return body


def _capture_names(graph: Any) -> dict[str, str]:
    """Stable names for captures that TensorFlow numbers per process, such as those of nested functions."""
    variables = variable_names(graph)
    return {
        inner.op.name: re.sub(r"[^\w./-]", "_", variables.get(id(outer), "")).lstrip("_/-") or "capture"
        for outer, inner in external_captures(graph)
        if inner.op.name.rpartition("/")[2].isdigit()
    }


def _called(node: NodeDef, graph: Any) -> list[tuple[str, BodyKind, Any]]:
    """Path suffix, kind and function of each body that `node` calls; empty for a node that is not split."""
    if is_call(node.op):
        function = readable_function(graph, *functions_of(node))
        if function is None or is_compiled(node, function) or getattr(function, "own_gradient", False):
            return []
        return [("", "call", function)]
    parts: list[tuple[str, BodyKind, str]]
    if node.op in LOOPS and "cond" in node.attr:
        parts = [(f"/{kind}", kind, node.attr[kind].func.name) for kind in ("cond", "body")]
    elif node.op in ("If", "StatelessIf"):
        parts = [(f"/{side}", "branch", node.attr[f"{side}_branch"].func.name) for side in ("then", "else")]
    elif node.op in ("Case", "StatelessCase"):
        parts = [(f"/branch{i}", "branch", f.name) for i, f in enumerate(node.attr["branches"].list.func)]
    else:
        return []
    called = [(part, kind, readable_function(graph, name)) for part, kind, name in parts]
    return called if all(function is not None for _, _, function in called) else []
