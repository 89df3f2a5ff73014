"""Which device types can run a node, which of its arguments live in host memory, and the reason where none can.

The rules are TensorFlow's own (core/framework: kernel_def_util.cc, op_kernel.cc, memory_types.cc). A kernel serves a node if each
of its constraints admits the node's attribute and its label is the one the node asks for; a device type's own kernels come before
those of type DEFAULT; the highest priority wins. Added to them is what the registry cannot say: kernels that are there and fail
when run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.kernel_def_pb2 import KernelDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.op_def_pb2 import OpDef
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow.python.util import _pywrap_util_port

from cost_models.ops import entry_of
from placer.graph.op_graph import Kernel

DEVICE_TYPES = ("CPU", "GPU")

Value: TypeAlias = str | bytes | int | tuple[str | int, ...] | None
"""An attribute as kernels look at it: a dtype by name, a string as bytes, a number, a list of dtypes or numbers; None else."""
Attrs: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class KernelSupport:
    """Where a node can run: each of `DEVICE_TYPES` is a key of exactly one of the two."""

    kernels: Mapping[str, Kernel]
    """By device type. A CPU's memory is the host's, so its kernels list no host arguments."""
    refusals: Mapping[str, str]
    """By device type, why there is no kernel, in words."""


class KernelIndex:
    """TensorFlow's kernel registry, asked node by node. Equal questions get the same object for an answer."""

    def __init__(self) -> None:
        self._registered: dict[str, list[KernelDef]] = {}
        for kernel in kernels.get_all_registered_kernels().kernel:
            self._registered.setdefault(kernel.op, []).append(kernel)
        self._gpu = any(kernel.device_type == "GPU" for found in self._registered.values() for kernel in found)
        self._ops: dict[str, _Op | None] = {}
        self._answers: dict[tuple[str, tuple[bytes, ...]], KernelSupport] = {}

    @staticmethod
    @functools.cache
    def shared() -> KernelIndex:
        """The process's index, built when first asked for."""
        return KernelIndex()

    def has_gpu_kernels(self) -> bool:
        """False in a TensorFlow built without GPU support (`tensorflow-cpu`), which cannot plan for a GPU."""
        return self._gpu

    def lookup(self, node: NodeDef) -> KernelSupport:
        """Where `node` can run. Attributes it leaves out have their defaults."""
        op = self._ops[node.op] if node.op in self._ops else self._read(node.op)
        if op is None:
            return KernelSupport({}, dict.fromkeys(DEVICE_TYPES, f"{node.op} is no op that this TensorFlow knows"))
        attr = node.attr
        key = node.op, tuple([attr[name].SerializeToString() if name in attr else b"" for name in op.relevant])
        if key not in self._answers:
            self._answers[key] = self._answer(op, {**op.defaults, **{n: _value(attr[n]) for n in op.relevant if n in attr}})
        return self._answers[key]

    def lookup_type(self, op_type: str, dtypes: Mapping[str, str]) -> KernelSupport:
        """Where an op of this type could run that is in no graph yet, such as the Switch of a loop before it is lowered.

        Args:
            op_type: "Enter", "Merge", "Switch", ….
            dtypes: its type attributes by name, {"T": "float32"}. An op that takes N values is taken to join two.
        """
        node = NodeDef(op=op_type, attr={"N": AttrValue(i=2)})
        for name, dtype in dtypes.items():
            node.attr[name].type = tf.as_dtype(dtype).as_datatype_enum
        return self.lookup(node)

    def _read(self, op_type: str) -> _Op | None:
        definition = op_def_registry.get(op_type)
        # A library loaded after the index was built registers more ops.
        found = self._registered.get(op_type) or kernels.get_registered_kernels_for_op(op_type).kernel
        self._ops[op_type] = _Op.of(definition, found) if definition is not None else None
        return self._ops[op_type]

    def _answer(self, op: _Op, attrs: Attrs) -> KernelSupport:
        usable: dict[str, Kernel] = {}
        refusals: dict[str, str] = {}
        for device_type in DEVICE_TYPES:
            found = op.best(device_type, attrs)
            if found is None:
                refusals[device_type] = op.why_none(device_type, attrs)
                if device_type == "GPU" and not self._gpu:
                    refusals[device_type] = f"no GPU kernel of {op.name}: this TensorFlow is built without GPU support"
            elif row := next((r for r in UNRUNNABLE if r.forbids(op.name, device_type, attrs)), None):
                refusals[device_type] = f"the {device_type} kernel of {op.name} {row.why}"
            else:
                usable[device_type] = Kernel() if device_type == "CPU" else op.memory(found, attrs)
        return KernelSupport(usable, refusals)


# -- the registry ------------------------------------------------------------------------------------------------------

_NODE_ATTRS = ("_kernel", "_input_hostmem", "_output_hostmem", "_XlaMustCompile")
"""What any node may carry: the label of the kernel it wants, arguments to keep on the host, a mark that XLA compiles it."""
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
        constraints = sorted((name, frozenset([*map(_dtype, v.type), *v.s, *v.i, *v.b])) for name, v in lists)
        return _Registration(
            kernel.device_type, kernel.label.encode(), kernel.priority, tuple(constraints), frozenset(kernel.host_memory_arg)
        )

    def misses(self, attrs: Attrs) -> tuple[str, ...]:
        """The attributes whose values it does not admit."""
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
    """Attributes that an answer can depend on."""

    @staticmethod
    def of(definition: OpDef, found: Iterable[KernelDef]) -> _Op:
        registered = tuple(_Registration.of(k) for k in found if k.device_type in (*DEVICE_TYPES, "DEFAULT"))
        arguments = [*definition.input_arg, *definition.output_arg]
        relevant = [name for kernel in registered for name, _ in kernel.constraints]
        relevant += [a for arg in arguments for a in (arg.number_attr, arg.type_attr, arg.type_list_attr) if a]
        relevant += [a for row in UNRUNNABLE if definition.name in row.ops for a in row.when.attrs]
        return _Op(
            name=definition.name,
            inputs=tuple(definition.input_arg),
            outputs=tuple(definition.output_arg),
            defaults={a.name: _value(a.default_value) for a in definition.attr if a.HasField("default_value")},
            kernels=registered,
            relevant=tuple(sorted({*relevant, *_NODE_ATTRS})),
        )

    def best(self, device_type: str, attrs: Attrs) -> _Registration | None:
        """The kernel TensorFlow would take."""
        for owner in (device_type, "DEFAULT"):
            serving = [k for k in self._labelled(attrs) if k.device_type == owner and not k.misses(attrs)]
            if serving:
                return max(serving, key=lambda k: k.priority)
        return None

    def why_none(self, device_type: str, attrs: Attrs) -> str:
        """Names the attribute values no kernel admits and, where changing one of them would do, what it could be."""
        nothing = f"no {device_type} kernel of {self.name}"
        near = [(k.misses(attrs), k) for k in self._labelled(attrs) if k.device_type in (device_type, "DEFAULT")]
        if not near:
            label = attrs.get("_kernel")
            return f"{nothing} labelled {_words(label)}" if label else nothing
        missed = min((names for names, _ in near), key=lambda names: (len(names), names))
        given = " and ".join(f"{name}={_words(attrs.get(name))}" for name in missed)
        if len(missed) > 1:
            return f"{nothing} for {given}"
        served = {
            v for names, k in near if names == missed for name, admitted in k.constraints if name in missed for v in admitted
        }
        return f"{nothing} for {given}; there are for {', '.join(sorted(map(_words, served)))}"

    def memory(self, kernel: _Registration, attrs: Attrs) -> Kernel:
        """The kernel's arguments in host memory, by their positions in the node."""
        host_dtypes, named = _HOST_DTYPES, kernel.host_arguments
        if entry_of(self.name).memory_by_dtype:
            named = frozenset()
            if not attrs.get("_XlaMustCompile"):
                host_dtypes |= {"int32"}

        def positions(arguments: tuple[OpDef.ArgDef, ...], demanded: Value) -> tuple[int, ...]:
            flat = [(arg.name, dtype) for arg in arguments for dtype in _dtypes(arg, attrs)]
            also = demanded if isinstance(demanded, tuple) else ()
            return tuple(i for i, (arg, dtype) in enumerate(flat) if arg in named or dtype in host_dtypes or i in also)

        return Kernel(positions(self.inputs, attrs.get("_input_hostmem")), positions(self.outputs, attrs.get("_output_hostmem")))

    def _labelled(self, attrs: Attrs) -> Iterable[_Registration]:
        wanted = attrs.get("_kernel") or b""
        return (k for k in self.kernels if k.label == wanted)


def _dtype(number: int) -> str:
    return str(tf.as_dtype(number).name)


def _value(attr: AttrValue) -> Value:
    kind = attr.WhichOneof("value")
    if kind == "type":
        return _dtype(attr.type)
    if kind == "list":
        return (*map(_dtype, attr.list.type), *attr.list.i)
    value: str | bytes | int | None = getattr(attr, kind) if kind in ("s", "i", "b") else None
    return value


def _admits(admitted: frozenset[str | bytes | int], value: Value) -> bool:
    return admitted.issuperset(value) if isinstance(value, tuple) else value in admitted


def _dtypes(argument: OpDef.ArgDef, attrs: Attrs) -> tuple[Value, ...]:
    """The dtypes of the tensors that an argument stands for."""
    if argument.type_list_attr:
        listed = attrs.get(argument.type_list_attr)
        return listed if isinstance(listed, tuple) else ()
    count = attrs.get(argument.number_attr, 1)
    dtype = _dtype(argument.type) if argument.type else attrs.get(argument.type_attr)
    return (dtype,) * (count if isinstance(count, int) else 1)


def _words(value: Value) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))})"
    return repr(value.decode()) if isinstance(value, bytes) else str(value)


# -- registered and yet not runnable -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class When:
    """A condition on a node's attributes; `&` and `~` make others of it."""

    attrs: frozenset[str]
    """Those it reads."""
    holds: Callable[[Attrs], bool]

    def __and__(self, other: When) -> When:
        return When(self.attrs | other.attrs, lambda attrs: self.holds(attrs) and other.holds(attrs))

    def __invert__(self) -> When:
        return When(self.attrs, lambda attrs: not self.holds(attrs))


def has(attr: str, *values: Value) -> When:
    """The attribute has one of these values."""
    return When(frozenset({attr}), lambda attrs: attrs.get(attr) in values)


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """Ops whose kernel of one device type is registered and fails when run under a condition."""

    ops: frozenset[str]
    device_type: str
    when: When
    why: str
    """What the kernel cannot do, in words that follow its name."""

    def forbids(self, op_type: str, device_type: str, attrs: Attrs) -> bool:
        return op_type in self.ops and device_type == self.device_type and self.when.holds(attrs)


CHANNELS_FIRST = has("data_format", b"NCHW", b"NCDHW", b"CHANNELS_FIRST")
DILATED = ~has("dilations", (1, 1, 1, 1), (1, 1, 1, 1, 1))
INTEGERS = has("T", "int32")
VECTORS = has("data_format", b"NCHW_VECT_C")
"""Channels in vectors of four, which only qint8 on a GPU has, and has always."""
MISMATCHED = When(VECTORS.attrs | {"T"}, lambda attrs: VECTORS.holds(attrs) != (attrs.get("T") == "qint8"))
ONEDNN = has("T", "float32") & When(frozenset(), lambda _: bool(_pywrap_util_port.IsMklEnabled()))
"""Where oneDNN is on (by default on recent x86 CPUs), it takes some ops over. Which other dtypes it takes varies between CPUs."""

_CONV_GRADIENTS = ("Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2")
_DEPTHWISE_GRADIENTS = ("DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput")
_CONV = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", *_CONV_GRADIENTS, *_DEPTHWISE_GRADIENTS)
_AVERAGES = ("AvgPool", "AvgPoolGrad", "AvgPool3D", "AvgPool3DGrad")
_MAXIMA_2D = ("MaxPoolGrad", "MaxPoolGradGrad", "MaxPoolGradGradV2", "MaxPoolGradV2", "MaxPoolV2")
_MAXIMA_3D = ("MaxPool3DGrad", "MaxPool3DGradGrad")
_NORM_GRADIENTS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
_VECTORISED = ("DepthToSpace", "SpaceToDepth", "MaxPool", "MaxPoolV2")
_SCATTERS = [
    f"{k}{u}" for k in ("ResourceScatterNd", "ScatterNd", "TensorScatter") for u in ("Add", "Sub", "Min", "Max", "Update")
]
_POLICED = ("GatherNd", "ScatterNd", "ScatterNdNonAliasingAdd", *_SCATTERS)

_LAST_ONLY = "runs with channels last only (NHWC)"

UNRUNNABLE = (
    Unrunnable(frozenset({*_CONV, *_AVERAGES, "MaxPool3D"}), "CPU", CHANNELS_FIRST & ~ONEDNN, _LAST_ONLY),
    Unrunnable(frozenset({"MaxPool"}), "CPU", CHANNELS_FIRST & ~(ONEDNN & ~has("padding", b"EXPLICIT")), _LAST_ONLY),
    # oneDNN takes a gradient of MaxPool only together with its MaxPool on the same device, which a node by itself cannot promise.
    Unrunnable(frozenset({"Conv", *_MAXIMA_2D, *_MAXIMA_3D}), "CPU", CHANNELS_FIRST, _LAST_ONLY),
    Unrunnable(
        frozenset(_NORM_GRADIENTS),
        "CPU",
        CHANNELS_FIRST & has("is_training", False) & ~(ONEDNN & has("data_format", b"NCHW")),
        "runs with channels last only (NHWC) outside training",
    ),
    Unrunnable(
        frozenset({"Conv3D", "DepthwiseConv2dNative", *_CONV_GRADIENTS}), "CPU", DILATED & ~ONEDNN, "runs without dilation only"
    ),
    Unrunnable(frozenset({"MaxPool", "MaxPoolV2"}), "CPU", VECTORS, "does not know channels in vectors (NCHW_VECT_C)"),
    Unrunnable(
        frozenset(_VECTORISED), "GPU", MISMATCHED, "takes qint8 with channels in vectors (NCHW_VECT_C), and nothing else so"
    ),
    Unrunnable(
        frozenset({"Conv", "Conv2D", "Conv2DBackpropInput"}),
        "GPU",
        INTEGERS & CHANNELS_FIRST,
        "runs integers with channels last only (NHWC)",
    ),
    Unrunnable(frozenset({"Conv2DBackpropInput"}), "GPU", INTEGERS & DILATED, "runs integers without dilation only"),
    Unrunnable(
        frozenset(_POLICED),
        "GPU",
        has("bad_indices_policy", b"ERROR") & ~INTEGERS,  # int32 of theirs is handled by the host
        "cannot raise for an index out of range, as bad_indices_policy asks",
    ),
    Unrunnable(
        frozenset({"EmptyTensorList", "TensorListConcatLists", "TensorListPushBack", "TensorListReserve"}),
        "GPU",
        has("element_dtype", "string"),
        "holds a list whose strings no copy takes to or from a GPU",
    ),
    Unrunnable(
        frozenset({"OptionalFromValue"}),
        "GPU",
        When(frozenset({"Toutput_types"}), lambda attrs: "string" in (attrs.get("Toutput_types") or ())),  # type: ignore[operator]
        "holds strings, which TensorFlow keeps on the host",
    ),
)
"""Those of CPUs found by running each of them, those of GPUs in the kernels' source and documentation."""
