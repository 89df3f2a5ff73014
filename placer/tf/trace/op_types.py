"""Properties of ops that follow from TensorFlow's definition of their type and from the table of ops."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry

from cost_models.ops import Difference, entry_of

FLAGGED = (Difference.BOUNDS, Difference.DIVISION, Difference.POWER, Difference.RANDOM)
"""Differences between devices that become flags of an `OpNode`, each with the name of its difference."""


def may_differ(node: NodeDef) -> Iterator[Difference]:
    """The flagged differences that a node's results may have between devices."""
    differs = entry_of(node.op).differs
    for difference in FLAGGED if differs else ():
        if difference in differs and (difference is not Difference.BOUNDS or depends_on_bounds(node)):
            yield difference


def depends_on_bounds(node: NodeDef) -> bool:
    """Whether it depends on the device what a node does for an index out of range; an attribute of some nodes decides that."""
    if node.op == "SparseToDense":
        return not node.attr["validate_indices"].b
    ignores = "bad_indices_policy" in node.attr and node.attr["bad_indices_policy"].s == b"IGNORE"
    return Difference.BOUNDS in entry_of(node.op).differs and not ignores


@functools.cache
def names_function(op_type: str) -> bool:
    """Whether this is no op type but the name of a function, as it is in a node that calls a function of TensorFlow 1."""
    return op_def_registry.get(op_type) is None


@functools.cache
def is_stateful(op_type: str) -> bool:
    """Whether ops of this type have state or side effects, so that each must run once and in order.

    True for an unknown type, such as a function that is called by its name.
    """
    definition = op_def_registry.get(op_type)
    return definition is None or bool(definition.is_stateful)


@functools.cache
def function_attributes(op_type: str) -> tuple[str, ...]:
    """The attributes in which ops of this type name functions."""
    definition = op_def_registry.get(op_type)
    return tuple(a.name for a in definition.attr if a.type in ("func", "list(func)")) if definition is not None else ()


@functools.cache
def unplaceable(op_type: str) -> str:
    """Why a function with an op of this type cannot be placed, as a predicate of a sentence about the op; "" if it can be."""
    if names_function(op_type):
        return "calls a function of TensorFlow 1 that has a gradient of its own, or that cannot be read"
    definition = op_def_registry.get(op_type)
    if any(output.is_ref for output in definition.output_arg):
        return "gives a reference to a variable of TensorFlow 1"
    if entry_of(op_type).names_partners:
        return "exchanges values with others of a group, which decides the devices"
    return ""


def functions_of(node: NodeDef) -> list[str]:
    """The names of the functions to which a node refers."""
    if names_function(node.op):
        return [node.op]
    values = [node.attr[attribute] for attribute in function_attributes(node.op)]
    return [name for v in values for name in ([v.func.name] if v.HasField("func") else [f.name for f in v.list.func])]


@functools.cache
def accepts_remote_handles(op_type: str) -> bool:
    """Whether ops of this type accept handles of state on another device, as datasets with functions that capture handles do.

    TensorFlow calls this `InputColocationExemption`: the functions run on the state's device, the dataset itself on the host.
    """
    return entry_of(op_type).unseen_code == "dataset" and bool(function_attributes(op_type))


@functools.cache
def runs_unseen_code(op_type: str) -> bool:
    """Whether ops of this type run code, of Python or of a dataset, that may write variables which are not their inputs."""
    return bool(entry_of(op_type).unseen_code or function_attributes(op_type))
