"""Fusion: chains of ops that TensorFlow makes one op of on a CPU. A chain is a product or a convolution, its bias, an addition,
an activation.

This follows Grappler's remapper.cc for float32 where oneDNN is on, after its arithmetic_optimizer.cc has gathered sums. Not
covered are further fusions of oneDNN (GELU, Swish, batch norms, depthwise and three-dimensional convolutions). Chains through an
Identity that Grappler removes are found in part or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from cost_models.base import AttrValue, OpSignature, TensorSpec
from cost_models.ops import Fusion, entry_of, types_where
from placer.graph.op_graph import OpGraph, OpNode

_ATTRS = frozenset({"T", "transpose_a", "transpose_b", "data_format", "dilations", "explicit_paddings", "padding", "strides"})
"""Attributes that the fused op has from its first op."""
_ACTIVATIONS = frozenset().union(*(fusion.activations for name in types_where() if (fusion := entry_of(name).fusion)))


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops that run as one."""

    ops: tuple[OpNode, ...]
    """A MatMul or a Conv2D, then the ops that follow it."""
    inputs: tuple[TensorSpec, ...]
    """Of the fused op."""

    @property
    def fusion(self) -> Fusion:
        """How the first op may be fused with the others."""
        fusion = entry_of(self.ops[0].op_type).fusion
        assert fusion is not None
        return fusion

    @property
    def is_broken(self) -> bool:
        """Whether the remapper fails on the chain, so that TensorFlow optimises no op of the function."""
        return len(self.ops) > 3 and self.ops[-1].op_type in self.fusion.breaking_after_sum

    @property
    def signature(self) -> OpSignature:
        """The fused op as Grappler writes it; oneDNN's pass may still give it another kernel."""
        head, *others = self.ops
        attrs: dict[str, AttrValue] = {name: value for name, value in head.signature.attrs if name in _ATTRS}
        attrs["num_args"] = len(self.inputs) - 2
        attrs["fused_ops"] = ("BiasAdd", *("Add" if entry_of(op.op_type).adds else op.op_type for op in others[1:]))
        if head.op_type == "Conv2D":
            attrs |= {"TArgs": ("float32",) * (len(self.inputs) - 2), "num_host_args": 0}
        if (alpha := self.ops[-1].signature.attr("alpha")) is not None:  # a LeakyRelu's
            attrs["leakyrelu_alpha"] = alpha
        return OpSignature(self.fusion.op_type, self.inputs, self.ops[-1].signature.outputs, tuple(sorted(attrs.items())))

    def then(self, op: OpNode, *inputs: TensorSpec) -> Chain:
        """The chain with one more op, which takes these inputs beside the chain's result."""
        return Chain((*self.ops, op), (*self.inputs, *inputs))


def chains(graph: OpGraph) -> tuple[Chain, ...]:
    """The chains of a graph that TensorFlow fuses if all their ops are on one CPU. No op is in two chains."""
    fused: list[Chain] = []
    fused_names: set[str] = set()
    for op in reversed(list(graph)):
        if op.name in fused_names:
            continue
        chain = _activated(graph, op) or _summed(graph, op) or _biased(graph, op)
        if chain is None:
            continue
        if chain.is_broken:
            return ()
        fused.append(chain)
        fused_names.update(link.name for link in chain.ops)
    return tuple(reversed(fused))


def _activated(graph: OpGraph, op: OpNode) -> Chain | None:
    """The chain that ends with an op that is an activation, which may be broken; None if there is none."""
    if op.op_type not in _ACTIVATIONS or (before := _before(graph, op, 0)) is None:
        return None
    chain = _summed(graph, before) or _biased(graph, before)
    if chain is None:
        return None
    is_summed = len(chain.ops) > 2
    activations = (is_summed and chain.fusion.breaking_after_sum) or chain.fusion.activations
    return chain.then(op) if op.op_type in activations else None


def _summed(graph: OpGraph, op: OpNode) -> Chain | None:
    """The chain that ends with an op that adds two tensors of one shape, of which one has its bias; the first if both have."""
    inputs = op.signature.inputs
    if not entry_of(op.op_type).adds or len(inputs) != 2 or inputs[0] != inputs[1] or _is_gathered(graph, op):
        return None
    makers = [_maker(graph, op, position) for position in (0, 1)]
    if any(maker is None or maker.role == "constant" or _is_gathered(graph, maker) for maker in makers):
        return None
    for position in (0, 1):
        before = _before(graph, op, position)
        chain = _biased(graph, before) if before else None
        if chain:
            return chain.then(op, inputs[1 - position])
    return None


def _biased(graph: OpGraph, op: OpNode) -> Chain | None:
    """The chain that ends with an op that adds the bias: a BiasAdd, or an addition that does the same."""
    inputs = op.signature.inputs
    if len(inputs) != 2:
        return None
    if op.op_type == "BiasAdd":
        positions: tuple[int, ...] = (0,)
    elif entry_of(op.op_type).adds and not _is_gathered(graph, op):
        positions = tuple(position for position in (0, 1) if _is_bias(inputs[1 - position], inputs[position]))
    else:
        return None
    for position in positions:
        head = _before(graph, op, position)
        if head is not None and entry_of(head.op_type).fusion is not None and _runs_on_cpus(head) and _runs_on_cpus(op):
            return Chain((head,), head.signature.inputs).then(op, inputs[1 - position])
    return None


def _runs_on_cpus(op: OpNode) -> bool:
    return all(spec.dtype == "float32" for spec in op.signature.inputs) and op.signature.attr("data_format", "NHWC") == "NHWC"


def _is_bias(addend: TensorSpec, to: TensorSpec) -> bool:
    """Whether the addition adds one number to each channel (`IsBiasSemanticAdd`)."""
    if not addend.shape or not to.shape or len(addend.shape) > len(to.shape) or addend.shape == to.shape:
        return False
    *others, channels = addend.shape
    return channels is not None and channels == to.shape[-1] and all(side == 1 for side in others)


def _is_gathered(graph: OpGraph, op: OpNode) -> bool:
    """Whether TensorFlow makes one sum of this addition and the addition that alone takes its result (`AddOpsRewriteStage`)."""
    if not entry_of(op.op_type).adds:
        return False
    user = next(iter(graph.graph.succ[op.name]), "")
    return bool(user) and entry_of(graph.op(user).op_type).adds and _is_only_for(graph, op, graph.op(user))


def _before(graph: OpGraph, op: OpNode, position: int) -> OpNode | None:
    """The producer of an input of an op, if this is its only consumer and neither has a control edge."""
    maker = _maker(graph, op, position)
    return maker if maker and _is_only_for(graph, maker, op) and not _is_ordered(graph, op) else None


def _maker(graph: OpGraph, op: OpNode, position: int) -> OpNode | None:
    for name, data in graph.graph.pred[op.name].items():
        if any(edge.dst_index == position for edge in data["tensors"]):
            return graph.op(name)
    return None


def _is_only_for(graph: OpGraph, op: OpNode, user: OpNode) -> bool:
    """Whether an op's only consumer is this one, of the same body, which takes one result once."""
    users = graph.graph.succ[op.name]
    alone = list(users) == [user.name] and len(users[user.name]["tensors"]) == 1 and not _is_ordered(graph, op)
    return alone and op.role == "op" and op.body == user.body and all(name != op.name for name, _ in graph.outputs)


def _is_ordered(graph: OpGraph, op: OpNode) -> bool:
    """Whether an op has a control edge, in or out."""
    edges = (*graph.graph.pred[op.name].values(), *graph.graph.succ[op.name].values())
    return any(data["control"] for data in edges)
