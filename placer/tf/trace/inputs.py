"""Arguments and captures of a traced function: where they are, and the resources behind handles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from placer.graph.op_graph import Resource, Role
from placer.tf._private.func_graphs import external_captures
from placer.tf._private.handles import has_value, held_specs, location, variable_of
from placer.tf.trace.body_tree import variable_names
from placer.tf.trace.graph_builder import GraphBuilder
from placer.tf.trace.kernels import KernelIndex
from placer.tf.trace.signatures import Signatures
from placer.tf.trace.tracing import Argument, Trace


class Inputs:
    """Adds the inputs of a trace's root, and describes resources."""

    def __init__(self, trace: Trace, builder: GraphBuilder, signatures: Signatures, immovable: set[int]) -> None:
        self.resources: dict[str, Resource] = {}
        self._trace = trace
        self._builder = builder
        self._signatures = signatures
        self._immovable = immovable
        self._captures = {inner.op.name: outer for outer, inner in external_captures(trace.root.graph)}
        self._variable_names = variable_names(trace.concrete.graph)

    def add(self, name: str) -> None:
        """Adds the input op `name` of the root."""
        body, kernels = self._trace.root, KernelIndex.shared()
        position, path = body.inputs[name], body.names[name]
        external = self._captures.get(name)
        value = external
        role: Role = "capture"
        if external is None:
            role = "argument"
            value = self._trace.arguments[position] if position < len(self._trace.arguments) else None
        spec = self._signatures.spec(path, 0, body.input_tensors[position])
        resource = ""
        support = kernels.lookup_type("_Arg", {"T": spec.dtype})
        if spec.dtype == "resource" and value is not None:
            held = value.held if isinstance(value, Argument) else held_specs(value)
            resource = self._describe(path, value, held, role)
            if held:  # it can be where a variable of its type can be made
                support = kernels.lookup_type("VarHandleOp", {"dtype": held[0].dtype.name})
        elif external is not None and spec.dtype == "resource":
            resource = path
        self._builder.add(
            path,
            op_type="Placeholder",
            signature=self._signatures.signature("Placeholder", (), (spec,)),
            count=1.0,
            role=role,
            support=support,
            location=_short_location(value),
            resource=resource,
        )

    def _describe(self, path: str, handle: Any, held: Sequence[tf.TensorSpec], role: Role) -> str:
        """Adds the resource behind a handle; returns its key in `resources`."""
        own_name = handle.name if isinstance(handle, Argument) else str(getattr(handle, "_name", ""))
        name = self._variable_names.get(id(handle)) or (own_name or path).removesuffix(":0")
        key, suffix = name, 0
        while key in self.resources:
            suffix += 1
            key = f"{name}_{suffix}"
        nbytes = sum(spec.dtype.size * math.prod(d or 1 for d in spec.shape) for spec in held if spec.shape.rank is not None)
        stays = "it is an argument, and another call may bring another" if role == "argument" else ""
        if id(handle) in self._immovable:
            stays = "a placed function that runs relies on it"
        elif not stays and variable_of(handle) is None:
            stays = "no tf.Variable has it"
        waits = bool(held) and not isinstance(handle, Argument) and not has_value(handle)
        self.resources[key] = Resource(key, "variable" if held else "resource", _short_location(handle), nbytes, stays, waits)
        return key


def _short_location(value: Any) -> str:
    """The device of an eager tensor's bytes or of the state behind a handle, short; "" if it is unknown."""
    spec = tf.DeviceSpec.from_string(location(value))
    return f"{spec.device_type}:{spec.device_index}" if spec.device_type is not None else ""
