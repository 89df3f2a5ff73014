"""The layer of each op: by the name scopes of ops and variables, and by what an optimizer updates.

A layer is a name scope. Its ops are

- those of its forward pass, "model/dense/MatMul", and of its backward pass, "gradient_tape/model/dense/MatMul/MatMul";
- its variables, "model/dense/kernel", and those that an optimizer keeps for them, "adam/model_dense_kernel_momentum" in Keras 3
  and "Adam/m/dense/kernel" in tf_keras;
- the ops of an optimizer, "adam/Mul_3", that serve to update these variables and no others. A read of another variable,
  such as the learning rate, is in the optimizer's scope.

The name of an op is no scope: "range/start" belongs to "range", and both are in no layer.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from cost_models.ops import entry_of

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph

_BEFORE_LAYERS = ("backward", "gradient_tape")
"""Scopes of gradients, in which ops have the scopes of the layer once more."""


def layers(graph: OpGraph) -> Mapping[str, str]:
    """By op: the scope of its layer, such as "model/dense"; "" for an op in no scope."""
    scopes = {name: _scope_of(name, graph.graph) for name in graph.graph}
    of_variable = _layers_of_variables(graph, scopes)
    layer_of = {op.name: of_variable.get(op.resource) or scopes[op.name] for op in graph}
    layer_of.update(_updates(graph, of_variable, layer_of))
    return layer_of


def _scope_of(name: str, names: Container[str]) -> str:
    """The scope of an op's name, without the scopes of gradients around it; the other names tell what is a scope."""
    parts = name.split("/")[:-1]
    while parts and parts[0] in _BEFORE_LAYERS:
        del parts[0]
    scopes = list(accumulate(parts, lambda outer, inner: f"{outer}/{inner}"))
    return next((scope.rpartition("/")[0] for scope in scopes if scope in names), scopes[-1] if scopes else "")


def is_in(layer: str, name: str) -> bool:
    """Whether a layer, given by its scope, is the layer `name` or a part of it. `name` may leave out the scopes around it."""
    return f"/{name.strip('/')}/" in f"/{layer}/"


def _layers_of_variables(graph: OpGraph, scopes: Mapping[str, str]) -> dict[str, str]:
    """By key of a variable: its layer. A variable of an optimizer has the layer of the variable that it is kept for.

    Args:
        graph: of the ops.
        scopes: by op: the scope of its name.
    """
    names = {key: resource.name for key, resource in graph.resources.items() if resource.kind == "variable"}
    joined = {name.replace("/", "_"): name for name in names.values()}
    layer_of_name = {name: name.rpartition("/")[0] for name in names.values()}
    of_optimizer = set(names.values())  # no op below the scope of the variable uses it
    for op in graph:
        if op.resource in names:  # ops may have scopes around those of the variable: "model/embed" for "embed/table"
            name = names[op.resource]
            layer = f"/{layer_of_name[name]}/"
            around = (f"/{scopes[reader]}/".partition(layer) for reader in graph.graph.succ[op.name])
            if used := next((before + layer for before, found, _ in around if found), ""):
                layer_of_name[name] = used.strip("/")
                of_optimizer.discard(name)
    layer_of = {}
    for key, name in names.items():
        last = name.rpartition("/")[2]
        stems = (joined.get(last[:k], "") for k, character in reversed(list(enumerate(last))) if character == "_")
        inner = (other for other in sorted(names.values(), key=len, reverse=True) if other != name and is_in(name, other))
        kept_for = next(filter(None, stems), "") or (next(inner, "") if name in of_optimizer else "")
        layer_of[key] = layer_of_name[kept_for or name]
    return layer_of


def _updates(graph: OpGraph, of_variable: Mapping[str, str], layer_of: Mapping[str, str]) -> dict[str, str]:
    """The layers of the ops of optimizers that serve to update the variables of one layer.

    An optimizer's scope is the outermost scope of an op outside of a layer that changes the layer's variables.
    """
    changed: dict[str, str] = {}
    for op in graph:
        if entry_of(op.op_type).updates:
            layers = (of_variable.get(graph.op(source).resource, "") for source in graph.graph.pred[op.name])
            layer = next(filter(None, layers), "")
            if layer and not is_in(layer_of[op.name], layer):
                changed[op.name] = layer
    scopes = {name.partition("/")[0] for name in changed if "/" in name}
    updates: dict[str, str] = {}
    served: dict[str, frozenset[str]] = {}  # by op of an optimizer: the layers whose variables depend on it
    for name in reversed(list(graph.graph)):
        if name in changed or name.partition("/")[0] in scopes:
            after = [served.get(target, frozenset()) for target in graph.graph.succ[name]]
            served[name] = frozenset([changed[name]] if name in changed else ()).union(*after)
            if len(served[name]) == 1 and not graph.op(name).resource:
                (layer,) = served[name]
                # an op that reads a variable is where the variable is, and all layers share a learning rate
                variables = (of_variable.get(graph.op(source).resource, layer) for source in graph.graph.pred[name])
                updates[name] = layer if all(of == layer for of in variables) else name.partition("/")[0]
    return updates
