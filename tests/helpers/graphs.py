"""Op graphs made by hand, for tests and benchmarks that need no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx

from cost_models.base import OpSignature, TensorSpec
from placer.graph.op_graph import Kernel, OpGraph, OpNode, Resource, TensorEdge
from placer.graph.sizes import Rounds

ANYWHERE = {"CPU": Kernel(), "GPU": Kernel()}
CPU_ONLY = {"CPU": Kernel()}
GPU_ONLY = {"GPU": Kernel()}


def floats(*shape: int | None) -> TensorSpec:
    return TensorSpec("float32", shape)


HANDLE = TensorSpec("resource", ())


@dataclass
class GraphBuilder:
    """Adds ops in execution order; an input is "op" (its output 0), "op:2" or, for a control edge, "^op"."""

    name: str = "handmade"
    process_devices: tuple[str, ...] = ("CPU:0",)
    resources: dict[str, Resource] = field(default_factory=dict)
    group_reasons: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, Rounds] = field(default_factory=dict)
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)

    def op(
        self,
        name: str,
        op_type: str,
        inputs: Sequence[str] = (),
        outputs: Sequence[TensorSpec] = (floats(4),),
        *,
        kernels: Mapping[str, Kernel] = ANYWHERE,
        attrs: tuple[tuple[str, Any], ...] = (),
        predicate: str = "",
        **fields: Any,
    ) -> str:
        """Returns the name. `predicate` names a loop or branch node that governs the op."""
        data = [self._source(text) for text in inputs if not text.startswith("^")]
        specs = tuple(self.graph.nodes[source]["op"].signature.outputs[k] for source, k in data)
        fields.setdefault("count", 1.0)
        fields.setdefault("refusals", {kind: f"no {kind} kernel" for kind in ("CPU", "GPU") if kind not in kernels})
        signature = OpSignature(op_type, specs, tuple(outputs), attrs)
        self.graph.add_node(name, op=OpNode(name, op_type, signature, kernels=kernels, **fields))
        for position, (source, k) in enumerate(data):
            self._edge(source, name, TensorEdge(k, position))
        if predicate:
            self._edge(predicate, name, TensorEdge(0, -1))
        for text in inputs:
            if text.startswith("^"):
                self._edge(text[1:], name, None)
        return name

    def argument(self, name: str, spec: TensorSpec, location: str = "") -> str:
        return self.op(name, "Placeholder", outputs=(spec,), role="argument", location=location)

    def constant(self, name: str, spec: TensorSpec, **fields: Any) -> str:
        return self.op(name, "Const", outputs=(spec,), role="constant", **fields)

    def variable(self, name: str, nbytes: int, device: str = "CPU:0") -> str:
        """A captured handle; `read` uses it."""
        self.resources[name] = Resource(name, "variable", device, nbytes)
        self.group_reasons[name] = f"they use variable {name!r}"
        return self.op(f"{name}/handle", "Placeholder", outputs=(HANDLE,), role="capture", resource=name, group=name)

    def read(self, name: str, variable: str, spec: TensorSpec, **fields: Any) -> str:
        return self.op(name, "ReadVariableOp", [f"{variable}/handle"], (spec,), group=variable, **fields)

    def build(self, *outputs: str, notes: tuple[str, ...] = ()) -> OpGraph:
        return OpGraph(
            name=self.name,
            graph=self.graph,
            resources=self.resources,
            group_reasons=self.group_reasons,
            process_devices=self.process_devices,
            rounds=self.rounds,
            outputs=tuple(self._source(text) for text in outputs),
            notes=notes,
        )

    def _source(self, text: str) -> tuple[str, int]:
        if text in self.graph:
            return text, 0
        name, colon, index = text.rpartition(":")
        return (name, int(index)) if colon else (text, 0)

    def _edge(self, source: str, target: str, tensor: TensorEdge | None) -> None:
        data = self.graph.get_edge_data(source, target) or {"tensors": (), "control": False}
        tensors = data["tensors"] if tensor is None else (*data["tensors"], tensor)
        self.graph.add_edge(source, target, tensors=tensors, control=data["control"] or tensor is None)


def layers(width: int = 64, depth: int = 3, batch: int = 32, name: str = "mlp") -> OpGraph:
    """Dense layers with variables: scopes "layer0/…", one argument "x", one result."""
    b = GraphBuilder(name)
    value = b.argument("x", floats(batch, width))
    for k in range(depth):
        weights = b.variable(f"layer{k}/kernel", 4 * width * width)
        read = b.read(f"layer{k}/ReadVariableOp", weights.removesuffix("/handle"), floats(width, width))
        value = b.op(f"layer{k}/MatMul", "MatMul", [value, read], (floats(batch, width),))
        value = b.op(f"layer{k}/Relu", "Relu", [value], (floats(batch, width),))
    return b.build(value)


def loop_then_wide(trips: int = 64, width: int = 4096) -> OpGraph:
    """A loop of small ops whose result four wide layers take: the loop is best on the CPU, the layers on a GPU."""
    b = GraphBuilder("loop_then_wide", rounds={"while": Rounds(trips, "exact")})
    b.argument("x", floats(1, 64))
    b.argument("batch", floats(512, width))
    inside: dict[str, Any] = {"count": float(trips), "body": "while/body"}
    loop: dict[str, Any] = {"role": "loop", "group": "while/in0"} | inside
    b.group_reasons["while/in0"] = "loop variable 0 of while keeps one device"
    b.op("while/in0", "LoopVariable", ["x"], (floats(1, 64),), **loop)
    scalar = TensorSpec("bool", ())
    b.op("while/cond/Less", "Less", ["while/in0"], (scalar,), count=trips + 1.0, body="while/cond")
    host = {"CPU": Kernel(), "GPU": Kernel((0,), (0,))}
    b.op("while", "While", ["while/cond/Less"], (scalar,), role="loop", kernels=host, count=trips + 1.0, body="while/body")
    value = "while/in0"
    for k in range(8):
        value = b.op(f"while/body/tanh{k}", "Tanh", [value], (floats(1, 64),), predicate="while", **inside)
    b.op("while/out0", "NextIteration", [value], (floats(1, 64),), predicate="while", **loop)
    value = "batch"
    for k in range(4):
        variable = f"wide{k}/kernel"
        b.variable(variable, 4 * width * width)
        b.read(f"wide{k}/ReadVariableOp", variable, floats(width, width))
        value = b.op(f"wide{k}/MatMul", "MatMul", [value, f"wide{k}/ReadVariableOp"], (floats(512, width),))
    b.op("scale", "Sum", ["while/out0"], (floats(),))
    b.op("result", "Mul", [value, "scale"], (floats(512, width),))
    return b.build("result")


def stacked(blocks: int, ops_per_block: int = 20) -> OpGraph:
    """`blocks` equal blocks in a row with a constant, residual edges and control edges: for growth, not for meaning."""
    b = GraphBuilder(f"stacked{blocks}")
    value = b.argument("x", floats(32, 128))
    for k in range(blocks):
        entry = value
        b.constant(f"block{k}/scale", floats())
        for j in range(ops_per_block - 2):
            other = entry if j % 3 == 2 else f"block{k}/scale"
            value = b.op(f"block{k}/op{j}", "Mul" if j % 4 else "Tanh", [value, other][: 2 if j % 4 else 1], (floats(32, 128),))
        value = b.op(f"block{k}/end", "AddV2", [value, entry, f"^block{k}/op0"], (floats(32, 128),))
    return b.build(value)


def with_op(graph: OpGraph, name: str, **changes: Any) -> OpGraph:
    """A copy of `graph` in which one op's fields differ."""
    copy = graph.graph.copy()
    copy.nodes[name]["op"] = replace(graph.op(name), **changes)
    return replace(graph, graph=copy)


def towers() -> OpGraph:
    """Two towers of layers after a hashing front end, about 100 ops: scopes, CPU-only ops, variables on both sides."""
    b = GraphBuilder("towers")
    b.argument("words", TensorSpec("string", (256,)))
    b.argument("pixels", floats(256, 1024))
    for k in range(8):
        b.op(f"front/hash{k}", "StringToHashBucketFast", ["words"], (TensorSpec("int64", (256,)),), kernels=CPU_ONLY)
        b.variable(f"front/table{k}", 4 * 10_000 * 64)
        b.read(f"front/table{k}/ReadVariableOp", f"front/table{k}", floats(10_000, 64))
        b.op(f"front/embed{k}", "GatherV2", [f"front/table{k}/ReadVariableOp", f"front/hash{k}"], (floats(256, 64),))
    b.op("front/concat", "ConcatV2", [f"front/embed{k}" for k in range(8)], (floats(256, 512),))
    ends = []
    for tower, start in (("left", "front/concat"), ("right", "pixels")):
        value = start
        for k in range(6):
            width = b.graph.nodes[value]["op"].signature.outputs[0].shape[-1]
            variable = f"{tower}/dense{k}/kernel"
            b.variable(variable, 4 * width * 2048)
            b.read(f"{tower}/dense{k}/ReadVariableOp", variable, floats(width, 2048))
            b.op(f"{tower}/dense{k}/MatMul", "MatMul", [value, f"{tower}/dense{k}/ReadVariableOp"], (floats(256, 2048),))
            value = b.op(f"{tower}/dense{k}/Relu", "Relu", [f"{tower}/dense{k}/MatMul"], (floats(256, 2048),))
        ends.append(value)
    b.op("head/concat", "ConcatV2", ends, (floats(256, 4096),))
    b.op("head/scores", "Sum", ["head/concat"], (floats(256),))
    b.op("head/unique", "Unique", ["head/scores"], (floats(None), TensorSpec("int32", (256,))), kernels=CPU_ONLY)
    return b.build("head/unique")
