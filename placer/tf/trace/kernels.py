"""The device types that can run a node, the arguments that a kernel keeps in host memory, and the reasons against the others.

The rules are TensorFlow's own (core/framework: kernel_def_util.cc, op_kernel.cc, memory_types.cc). A kernel can run a node if
each of its constraints admits the node's attribute and its label is the one that the node requests. Kernels of the device type
come before kernels of type DEFAULT; among these the one of highest priority is used. Kernels that are registered and fail when
they run are excluded, see `placer.tf.trace.unrunnable`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.kernel_def_pb2 import KernelDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.op_def_pb2 import OpDef
from tensorflow.python.framework import kernels, op_def_registry

from cost_models.ops import entry_of
from placer.graph.op_graph import Kernel
from placer.tf.trace.kernel_registry import KernelRegistry
from placer.tf.trace.node_attributes import Attrs, Value, dtype_name, plain_value, value_text
from placer.tf.trace.unrunnable import UNRUNNABLE

DEVICE_TYPES = ("CPU", "GPU")


@dataclass(frozen=True, slots=True)
class KernelSupport:
    """Where a node can run: each of `DEVICE_TYPES` is a key of exactly one of the two."""

    kernels: Mapping[str, Kernel]
    """By device type. A CPU's memory is the host's, so its kernels list no host arguments."""
    refusals: Mapping[str, str]
    """By device type: why no kernel can run the node, as text."""


class KernelIndex:
    """Looks nodes up in TensorFlow's kernel registry. Nodes that differ in no relevant attribute get the same result object.

    ``snapshot`` says where the GPU kernels are from if TensorFlow is built without GPU support, see `KernelRegistry`.
    """

    def __init__(self) -> None:
        self._registered: dict[str, list[KernelDef]] = {}
        registry = KernelRegistry.read()
        self.snapshot = registry.snapshot
        for kernel in registry.kernels:
            self._registered.setdefault(kernel.op, []).append(kernel)
        self._ops: dict[str, _Op | None] = {}
        self._support: dict[tuple[str, tuple[bytes, ...]], KernelSupport] = {}

    @staticmethod
    @functools.cache
    def shared() -> KernelIndex:
        """The index of this process, built at the first call."""
        return KernelIndex()

    def lookup(self, node: NodeDef) -> KernelSupport:
        """The device types that can run `node`. Attributes that it omits have their defaults."""
        op = self._ops[node.op] if node.op in self._ops else self._read(node.op)
        if op is None:
            return KernelSupport({}, dict.fromkeys(DEVICE_TYPES, f"{node.op} is no op that this TensorFlow knows"))
        attr = node.attr
        key = node.op, tuple([attr[name].SerializeToString() if name in attr else b"" for name in op.relevant])
        if key not in self._support:
            given = {name: plain_value(attr[name]) for name in op.relevant if name in attr}
            self._support[key] = self._support_of(op, {**op.defaults, **given})
        return self._support[key]

    def lookup_type(self, op_type: str, dtypes: Mapping[str, str]) -> KernelSupport:
        """The device types that could run an op that is in no graph, such as the Switch that TensorFlow adds for a loop.

        Args:
            op_type: "Enter", "Merge", "Switch", ….
            dtypes: its type attributes by name, {"T": "float32"}. An op of N values is assumed to have two.
        """
        node = NodeDef(op=op_type, attr={"N": AttrValue(i=2)})
        for name, dtype in dtypes.items():
            node.attr[name].type = tf.as_dtype(dtype).as_datatype_enum
        return self.lookup(node)

    def _read(self, op_type: str) -> _Op | None:
        definition = op_def_registry.get(op_type)
        # A library that is loaded after the index was built can register more ops.
        registered = self._registered.get(op_type) or kernels.get_registered_kernels_for_op(op_type).kernel
        self._ops[op_type] = _Op.of(definition, registered) if definition is not None else None
        return self._ops[op_type]

    def _support_of(self, op: _Op, attrs: Attrs) -> KernelSupport:
        usable: dict[str, Kernel] = {}
        refusals: dict[str, str] = {}
        for device_type in DEVICE_TYPES:
            kernel = op.best(device_type, attrs)
            if kernel is None:
                refusals[device_type] = op.why_none(device_type, attrs)
            elif row := next((r for r in UNRUNNABLE if r.forbids(op.name, device_type, attrs)), None):
                refusals[device_type] = f"the {device_type} kernel of {op.name} {row.why}"
            else:
                usable[device_type] = Kernel() if device_type == "CPU" else op.memory(kernel, attrs)
        return KernelSupport(usable, refusals)


# -- the registry ------------------------------------------------------------------------------------------------------

_NODE_ATTRS = ("_kernel", "_input_hostmem", "_output_hostmem", "_XlaMustCompile")
"""Attributes that any node may have: the label of the requested kernel, arguments in host memory, whether XLA compiles it."""
_HOST_DTYPES = frozenset({"string", "resource"})


@dataclass(frozen=True, slots=True)
class _Registration:
    device_type: str
    label: bytes
    priority: int
    constraints: tuple[tuple[str, frozenset[str | bytes | int]], ...]
    """Sorted by attribute."""
    host_arguments: frozenset[str]

    @staticmethod
    def of(kernel: KernelDef) -> _Registration:
        lists = ((c.name, c.allowed_values.list) for c in kernel.constraint)
        constraints = sorted((name, frozenset([*map(dtype_name, v.type), *v.s, *v.i, *v.b])) for name, v in lists)
        return _Registration(
            kernel.device_type, kernel.label.encode(), kernel.priority, tuple(constraints), frozenset(kernel.host_memory_arg)
        )

    def misses(self, attrs: Attrs) -> tuple[str, ...]:
        """The attributes whose values the kernel does not admit."""
        return tuple(name for name, admitted in self.constraints if not _admits(admitted, attrs.get(name)))


@dataclass(frozen=True, slots=True)
class _Op:
    """An op type with its kernels."""

    name: str
    inputs: tuple[OpDef.ArgDef, ...]
    outputs: tuple[OpDef.ArgDef, ...]
    defaults: Attrs
    kernels: tuple[_Registration, ...]
    relevant: tuple[str, ...]
    """Attributes on which the choice of a kernel and its memory can depend."""

    @staticmethod
    def of(definition: OpDef, kernels_of_op: Iterable[KernelDef]) -> _Op:
        registered = tuple(_Registration.of(k) for k in kernels_of_op if k.device_type in (*DEVICE_TYPES, "DEFAULT"))
        arguments = [*definition.input_arg, *definition.output_arg]
        relevant = [name for kernel in registered for name, _ in kernel.constraints]
        relevant += [a for arg in arguments for a in (arg.number_attr, arg.type_attr, arg.type_list_attr) if a]
        relevant += [a for row in UNRUNNABLE if definition.name in row.ops for a in row.when.attrs]
        return _Op(
            name=definition.name,
            inputs=tuple(definition.input_arg),
            outputs=tuple(definition.output_arg),
            defaults={a.name: plain_value(a.default_value) for a in definition.attr if a.HasField("default_value")},
            kernels=registered,
            relevant=tuple(sorted({*relevant, *_NODE_ATTRS})),
        )

    def best(self, device_type: str, attrs: Attrs) -> _Registration | None:
        """The kernel that TensorFlow uses; None if there is none."""
        for owner in (device_type, "DEFAULT"):
            admitting = [k for k in self._labelled(attrs) if k.device_type == owner and not k.misses(attrs)]
            if admitting:
                return max(admitting, key=lambda k: k.priority)
        return None

    def why_none(self, device_type: str, attrs: Attrs) -> str:
        """The attribute values that no kernel admits and, if it is only one, the values that are admitted."""
        no_kernel = f"no {device_type} kernel of {self.name}"
        candidates = [(k.misses(attrs), k) for k in self._labelled(attrs) if k.device_type in (device_type, "DEFAULT")]
        if not candidates:
            label = attrs.get("_kernel")
            return f"{no_kernel} labelled {value_text(label)}" if label else no_kernel
        missed = min((names for names, _ in candidates), key=lambda names: (len(names), names))
        given = " and ".join(f"{name}={value_text(attrs.get(name))}" for name in missed)
        if len(missed) > 1:
            return f"{no_kernel} for {given}"
        constraints = [constraint for names, k in candidates if names == missed for constraint in k.constraints]
        admitted_values = {value for name, admitted in constraints if name in missed for value in admitted}
        return f"{no_kernel} for {given}; there are for {', '.join(sorted(map(value_text, admitted_values)))}"

    def memory(self, kernel: _Registration, attrs: Attrs) -> Kernel:
        """The kernel's arguments in host memory, by their positions in the node."""
        host_dtypes, named = _HOST_DTYPES, kernel.host_arguments
        if entry_of(self.name).memory_by_dtype:
            named = frozenset()
            if not attrs.get("_XlaMustCompile"):
                host_dtypes |= {"int32"}

        def positions(arguments: tuple[OpDef.ArgDef, ...], requested: Value) -> tuple[int, ...]:
            flat = [(arg.name, dtype) for arg in arguments for dtype in _dtypes(arg, attrs)]
            extra = requested if isinstance(requested, tuple) else ()
            return tuple(i for i, (arg, dtype) in enumerate(flat) if arg in named or dtype in host_dtypes or i in extra)

        return Kernel(positions(self.inputs, attrs.get("_input_hostmem")), positions(self.outputs, attrs.get("_output_hostmem")))

    def _labelled(self, attrs: Attrs) -> Iterable[_Registration]:
        """The kernels with the label that a node requests."""
        label = attrs.get("_kernel") or b""
        return (k for k in self.kernels if k.label == label)


def _admits(admitted: frozenset[str | bytes | int], value: Value) -> bool:
    return admitted.issuperset(value) if isinstance(value, tuple) else value in admitted


def _dtypes(argument: OpDef.ArgDef, attrs: Attrs) -> tuple[Value, ...]:
    """The dtypes of the tensors of one argument, which can be a list of tensors."""
    if argument.type_list_attr:
        listed = attrs.get(argument.type_list_attr)
        return listed if isinstance(listed, tuple) else ()
    count = attrs.get(argument.number_attr, 1)
    dtype = dtype_name(argument.type) if argument.type else attrs.get(argument.type_attr)
    return (dtype,) * (count if isinstance(count, int) else 1)
