"""Arguments and captures of a traced function: where they are, and the resources behind handles."""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placer.common.device_spec import parse
from placer.graph.op_graph import Resource, Role
from placer.tf._private.func_graphs import external_captures
from placer.tf._private.handles import has_value, held_specs, location, strategy_of, variable_of
from placer.tf.trace.body_tree import variable_names
from placer.tf.trace.graph_builder import GraphBuilder
from placer.tf.trace.kernels import KernelIndex
from placer.tf.trace.signatures import Signatures
from placer.tf.trace.tracing import Argument, Trace


@dataclass(frozen=True, slots=True)
class RootInput:
    """What is known of an input of a trace's root beside its type in the graph."""

    value: Any
    """The captured tensor; for an argument an `Argument`, or whatever the example call passed; None without an example."""
    role: Role
    device: str
    """The device of its bytes or of the state behind it, short; "" if it is unknown."""
    state: str = ""
    """For a handle: the name of the state behind it, unique in the trace."""
    held: tuple[tf.TensorSpec, ...] = ()
    """For a variable's handle: the types of the values behind it."""
    stays: str = ""
    """For a handle: why the state cannot be moved, as text; "" if it can be."""

    @property
    def state_bytes(self) -> int:
        """The bytes of the values behind a variable's handle; an unknown dimension counts as 1."""
        return sum(spec.dtype.size * math.prod(d or 1 for d in spec.shape) for spec in self.held if spec.shape.rank is not None)

    @property
    def value_bytes(self) -> int:
        """The bytes of the tensor itself; 0 for a handle, for no value and for an unknown size."""
        dtype, shape = getattr(self.value, "dtype", None), getattr(self.value, "shape", None)
        return 0 if dtype is None or shape is None or self.state else dtype.size * (tf.TensorShape(shape).num_elements() or 0)


def root_inputs(trace: Trace, immovable: set[int]) -> dict[str, RootInput]:
    """The inputs of a trace's root by op, in the order of its nodes.

    Args:
        trace: of the function.
        immovable: ids of the handles of variables that may not move because a placed function relies on where they are.
    """
    root = trace.root
    captures = {inner.op.name: outer for outer, inner in external_captures(root.graph)}
    names = variable_names(trace.concrete.graph)
    states: set[str] = set()
    suffixes: Counter[str] = Counter()
    inputs: dict[str, RootInput] = {}
    for op in root.nodes:
        if op not in root.inputs:
            continue
        position = root.inputs[op]
        role: Role = "capture" if op in captures else "argument"
        value = captures[op] if op in captures else trace.arguments[position] if position < len(trace.arguments) else None
        if value is None or root.input_tensors[position].dtype != tf.resource:
            inputs[op] = RootInput(value, role, _short_location(value))
            continue
        held = value.held if isinstance(value, Argument) else tuple(held_specs(value))
        own_name = value.name if isinstance(value, Argument) else str(getattr(value, "_name", ""))
        name = state = names.get(id(value)) or (own_name or root.names[op]).removesuffix(":0")
        while state in states:
            suffixes[name] += 1
            state = f"{name}_{suffixes[name]}"
        states.add(state)
        stays = "it is an argument, and another call may bring another" if role == "argument" else ""
        if id(value) in immovable:
            stays = "a placed function that runs relies on it"
        elif not stays and (variable := variable_of(value)) is None:
            stays = "no tf.Variable has it"
        elif not stays and strategy_of(variable) is not None:
            stays = "a distribution strategy has put it there"
        inputs[op] = RootInput(value, role, _short_location(value), state, held, stays)
    return inputs


class Inputs:
    """Adds the inputs of a trace's root, and describes resources."""

    def __init__(self, trace: Trace, builder: GraphBuilder, signatures: Signatures, immovable: set[int]) -> None:
        self.resources: dict[str, Resource] = {}
        self._body = trace.root
        self._builder = builder
        self._signatures = signatures
        self._known = root_inputs(trace, immovable)

    def add(self, name: str) -> None:
        """Adds the input op `name` of the root."""
        body, kernels, known = self._body, KernelIndex.shared(), self._known[name]
        path = body.names[name]
        spec = self._signatures.spec(path, 0, body.input_tensors[body.inputs[name]])
        support = kernels.lookup_type("_Arg", {"T": spec.dtype})
        if known.held:  # it can be where a variable of its type can be made
            support = kernels.lookup_type("VarHandleOp", {"dtype": known.held[0].dtype.name})
        if known.state:
            kind = "variable" if known.held else "resource"
            waits = bool(known.held) and not isinstance(known.value, Argument) and not has_value(known.value)
            self.resources[known.state] = Resource(known.state, kind, known.device, known.state_bytes, known.stays, waits)
        self._builder.add(
            path,
            op_type="Placeholder",
            signature=self._signatures.signature("Placeholder", (), (spec,)),
            count=1.0,
            role=known.role,
            support=support,
            location=known.device,
            resource=known.state,
        )


def _short_location(value: Any) -> str:
    """The device of an eager tensor's bytes or of the state behind a handle, short; "" if it is unknown."""
    return _short(location(value))


@functools.cache
def _short(device: str) -> str:
    return parse(device).short
