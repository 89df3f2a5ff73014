"""A graph with everything that is assumed or only bounded at its low or at its high end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cost_models.base import OpSignature, TensorSpec
from placer.graph.op_graph import OpGraph, OpNode
from placer.graph.sizes import End, Rounds


def at_end(graph: OpGraph, end: End) -> OpGraph | None:
    """The graph with other shapes and numbers of rounds; None if nothing changes.

    Ops inside compiled calls, and those that run for each element of a dataset, keep their shapes.
    """
    specs = _specs_at(graph, end)
    rounds = {loop: Rounds(known.at(end), known.source) for loop, known in graph.rounds.items()}
    changed_rounds = {loop: (known.value, known.at(end)) for loop, known in graph.rounds.items() if known.at(end) != known.value}
    if not specs and not changed_rounds:
        return None
    changed = graph.graph.copy()
    shared: dict[OpSignature, OpSignature] = {}
    for op in graph:
        signature = _signature_at(graph, op, specs, rounds)
        count = op.count * _runs_more(op, changed_rounds)
        if signature is not op.signature or count != op.count:
            signature = shared.setdefault(signature, signature)  # an equal signature is priced once
            changed.nodes[op.name]["op"] = replace(op, signature=signature, count=count)
    return replace(graph, graph=changed, rounds=rounds, sizes={})


def _specs_at(graph: OpGraph, end: End) -> dict[str, tuple[TensorSpec, ...]]:
    """By node whose shapes differ at an end: the types of its outputs there."""
    specs = {}
    for name, sizes in graph.sizes.items():
        shapes = [size.at(end) if size else None for size in sizes]
        if any(shape is not None for shape in shapes):
            outputs = zip(graph.op(name).signature.outputs, shapes, strict=True)
            specs[name] = tuple(spec if shape is None else replace(spec, shape=shape) for spec, shape in outputs)
    return specs


def _signature_at(
    graph: OpGraph, op: OpNode, specs: Mapping[str, tuple[TensorSpec, ...]], rounds: Mapping[str, Rounds]
) -> OpSignature:
    signature = op.signature
    if op.name in specs:
        signature = replace(signature, outputs=specs[op.name])
    if op.role == "loop" and op.name in specs:
        signature = replace(signature, inputs=specs[op.name])
    elif op.role != "loop" and not specs.keys().isdisjoint(graph.graph.pred[op.name]):
        inputs = list(signature.inputs)
        for name, edge in graph.inputs_of(op.name):
            if name in specs and 0 <= edge.dst_index < len(inputs):
                inputs[edge.dst_index] = specs[name][edge.src_index]
        signature = replace(signature, inputs=tuple(inputs))
    if op.name in rounds and signature.attr("rounds") is not None:
        attributes = {**dict(signature.attrs), "rounds": rounds[op.name].value}
        signature = replace(signature, attrs=tuple(sorted(attributes.items())))
    return signature


def _runs_more(op: OpNode, changed: Mapping[str, tuple[int, int]]) -> float:
    """How many times as often an op runs with other rounds of the loops around it, given by loop as (before, after)."""
    factor = 1.0
    for loop, (before, after) in changed.items():
        if op.name == loop or _inside(op.body, f"{loop}/cond"):
            factor *= (after + 1) / (before + 1)
        elif _inside(op.body, f"{loop}/body"):
            factor *= after / before
    return factor


def _inside(body: str, path: str) -> bool:
    return body == path or body.startswith(f"{path}/")
