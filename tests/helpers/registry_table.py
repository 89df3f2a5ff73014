"""The op registry as placer sees it, an op with a CPU kernel a line, to review and to compare across TensorFlow releases.

Renew the golden file of the installed TensorFlow with

    python -m tests.helpers.registry_table

A line names the op, what serves it on the CPU and on the GPU, and what the package's own tables say of it:

    Unique | CPU … | GPU T=int64 out_idx=int32,int64; T=float32 out_idx=int32,int64 @x>y,idx

What serves it is a list, with "; " between, of attribute values that kernels ask for ("any": they ask for none), and after "@"
the arguments that a GPU's kernel keeps in host memory, inputs before ">", outputs after it. "CPU and GPU": the same on both.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.kernel_def_pb2 import KernelDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.op_def_pb2 import OpDef
from tensorflow.python.framework import kernels, op_def_registry

from cost_models.ops import Difference, entry_of
from placer.graph.op_graph import Kernel
from placer.tf.trace import op_types
from placer.tf.trace.kernels import DEVICE_TYPES, KernelIndex
from placer.tf.trace.unrunnable import UNRUNNABLE

VERSION = ".".join(tf.__version__.split(".")[:2])
GOLDEN = Path(__file__).parents[1] / "data" / "registry" / f"registry-{VERSION}.txt"

Box: TypeAlias = tuple[tuple[str, frozenset[str]], ...]
"""By attribute, the values it may have: a node whose attributes each have one of theirs is served."""


def table() -> Iterator[str]:
    """The lines, sorted by op."""
    registered: dict[str, list[KernelDef]] = defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type in (*DEVICE_TYPES, "DEFAULT") and not kernel.label:
            registered[kernel.op].append(kernel)
    for name, found in sorted(registered.items()):
        definition = op_def_registry.get(name)
        served = {d: _served(definition, found, d) for d in DEVICE_TYPES}
        if served["CPU"]:
            if served["CPU"] == served["GPU"]:
                served = {"CPU and GPU": served["CPU"]}
            yield " | ".join([name, *(f"{kinds} {values}" for kinds, values in served.items() if values), *_said(name)])


def _served(definition: OpDef, found: Iterable[KernelDef], device_type: str) -> str:
    """What a lookup allows on a device type of the nodes that its kernels are made for."""
    index = KernelIndex.shared()
    boxes: dict[Kernel, set[Box]] = defaultdict(set)
    for kernel in found:
        if kernel.device_type in (device_type, "DEFAULT"):
            for node, box in _nodes(definition, kernel):
                if serving := index.lookup(node).kernels.get(device_type):
                    boxes[serving].add(box)
    return "; ".join(sorted(_words(box) + _host(definition, serving) for serving, some in boxes.items() for box in _merged(some)))


def _nodes(definition: OpDef, kernel: KernelDef) -> Iterator[tuple[NodeDef, Box]]:
    """A node for each combination of attribute values that a kernel asks for; each argument stands for one tensor."""
    kinds = {a.name: a.type for a in definition.attr}
    choices = []
    for constraint in kernel.constraint:
        values, kind = constraint.allowed_values.list, kinds.get(constraint.name, "type").removeprefix("list(").removesuffix(")")
        field = {"type": "type", "string": "s", "int": "i", "bool": "b"}[kind]
        choices.append([(constraint.name, field, value) for value in getattr(values, field)])
    for choice in itertools.product(*choices):
        node = NodeDef(op=definition.name)
        for argument in (*definition.input_arg, *definition.output_arg):
            if argument.number_attr:
                node.attr[argument.number_attr].i = 1
        for name, field, value in choice:
            if kinds.get(name, "").startswith("list"):
                getattr(node.attr[name].list, field).append(value)
            else:
                node.attr[name].CopyFrom(AttrValue(**{field: value}))
        yield node, tuple(sorted((name, frozenset({_word(field, value)})) for name, field, value in choice))


def _word(field: str, value: int | bytes) -> str:
    if field == "type":
        return str(tf.as_dtype(value).name)
    return value.decode() if isinstance(value, bytes) else str(value)


def _merged(boxes: set[Box]) -> set[Box]:
    """Fewer boxes for the same values: those that differ in one attribute alone become one, attribute by attribute."""
    for attr in sorted({name for box in boxes for name, _ in box}):
        rest: dict[Box, frozenset[str]] = {}
        for box in boxes:
            values = dict(box).get(attr, frozenset())
            others = tuple(pair for pair in box if pair[0] != attr)
            rest[others] = rest.get(others, frozenset()) | values
        boxes = {tuple(sorted([*others, *([(attr, values)] if values else [])])) for others, values in rest.items()}
    return boxes


def _words(box: Box) -> str:
    return " ".join(f"{name}={','.join(sorted(values))}" for name, values in box) or "any"


def _host(definition: OpDef, kernel: Kernel) -> str:
    inputs = ",".join(definition.input_arg[i].name for i in kernel.host_inputs)
    outputs = ",".join(definition.output_arg[i].name for i in kernel.host_outputs)
    return f" @{inputs}>{outputs}" if inputs or outputs else ""


def _said(name: str) -> Iterator[str]:
    """What the table of ops and `placer.tf.trace.unrunnable` add to the registry."""
    entry = entry_of(name)
    named = {Difference.BOUNDS: "bounds", Difference.RANDOM: "random", Difference.SAVED: "saving"}
    yield from (flag for difference, flag in named.items() if difference in entry.differs)
    if entry.unseen_code == "python":
        yield "python"
    yield from (each.value for each in (Difference.DIVISION, Difference.POWER) if each in entry.differs)
    if op_types.is_stateful(name):
        yield "stateful"
    if op_types.runs_unseen_code(name):
        yield "unseen code"
    if why := op_types.unplaceable(name):
        yield f"left alone: {why}"
    yield from (f"at times the {row.device_type} kernel {row.why}" for row in UNRUNNABLE if name in row.ops)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("".join(f"{line}\n" for line in table()))
