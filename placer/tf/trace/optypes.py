"""Op types whose behaviour, not only whose speed, depends on the device."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry

from cost_models.ops import Difference, entry_of

FLAGGED = (Difference.BOUNDS, Difference.DIVISION, Difference.POWER, Difference.RANDOM)
"""Differences between devices that a report mentions, each by a flag of its name."""


def may_differ(node: NodeDef) -> Iterator[Difference]:
    """The flagged reasons why what this node does may depend on the device."""
    differs = entry_of(node.op).differs
    for difference in FLAGGED:
        if difference in differs and (difference is not Difference.BOUNDS or depends_on_bounds(node)):
            yield difference


def depends_on_bounds(node: NodeDef) -> bool:
    """Whether what this node does with an index out of range depends on the device; some are told what to do on any."""
    if node.op == "SparseToDense":
        return not node.attr["validate_indices"].b
    ignores = "bad_indices_policy" in node.attr and node.attr["bad_indices_policy"].s == b"IGNORE"
    return Difference.BOUNDS in entry_of(node.op).differs and not ignores


@functools.cache
def is_stateful(op_type: str) -> bool:
    """Whether ops of this type keep state or act on the world, so that they must run once each and in order.

    An unknown type, such as a function called by its name, is taken to.
    """
    definition = op_def_registry.get(op_type)
    return definition is None or bool(definition.is_stateful)


@functools.cache
def function_attributes(op_type: str) -> tuple[str, ...]:
    """The attributes by which ops of this type name functions."""
    definition = op_def_registry.get(op_type)
    return tuple(a.name for a in definition.attr if a.type in ("func", "list(func)")) if definition is not None else ()


@functools.cache
def unplaceable(op_type: str) -> str:
    """Why a function with an op of this type must stay as it is; "" if it need not."""
    definition = op_def_registry.get(op_type)
    if definition is None:
        return "is a function of TensorFlow 1, called by its name"
    if any(output.is_ref for output in definition.output_arg):
        return "gives a reference to a variable of TensorFlow 1"
    if entry_of(op_type).names_partners:
        return "exchanges values with others of a group, which decides the devices"
    return ""


def functions_of(node: NodeDef) -> list[str]:
    """The functions that a node names."""
    values = [node.attr[attribute] for attribute in function_attributes(node.op)]
    return [name for v in values for name in ([v.func.name] if v.HasField("func") else [f.name for f in v.list.func])]


def takes_handles_from_afar(node: NodeDef) -> bool:
    """Whether it takes handles of state on another device: a dataset whose functions capture them (`InputColocationExemption`).

    They run where the state is, the dataset itself on its host.
    """
    return entry_of(node.op).unseen_code == "dataset" and bool(function_attributes(node.op))


@functools.cache
def runs_unseen_code(op_type: str) -> bool:
    """Whether ops of this type run code that may write a variable whose handle they do not take: Python's, a dataset's."""
    return bool(entry_of(op_type).unseen_code or function_attributes(op_type))
