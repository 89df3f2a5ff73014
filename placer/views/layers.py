"""The layers of a model: where each runs, how long, what it takes and gives, and its parameters."""

from __future__ import annotations

from collections import Counter, defaultdict

from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError
from placer.graph.layers import is_in
from placer.plan.placement import Placement

NO_LAYER = "(no layer)"
MIN_SHARE = 0.01
"""The least share of a layer's time for which a device is named: shapes of tensors that a GPU computes are made on the host."""


def layers(placement: Placement, *, depth: int = 2) -> str:
    """A row for each layer, in execution order, then one for the ops in no layer.

    The columns:

    - devices: those with at least `MIN_SHARE` of the time of its ops, the one with the most time first;
    - ops, time: the number of its ops, and the sum of their times in a step;
    - in, out: the bytes of the tensors that it takes from other layers in a step, and of those that it gives to them;
    - parameters: the bytes of its own variables, without those that an optimizer keeps for them.

    `placer.graph.layers` says which ops a layer has.

    Args:
        placement: whose layers.
        depth: how many scopes name a layer: 2 for "model/layer".

    Raises:
        OptionError: the depth is no whole number of at least 1.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise OptionError(f"depth={depth!r} is not a whole number of at least 1.")
    graph = placement.graph
    layer_of = {name: "/".join(layer.split("/")[:depth]) or NO_LAYER for name, layer in graph.layers.items()}
    time_ns: dict[str, Counter[str]] = defaultdict(Counter)
    ops: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    given: Counter[str] = Counter()
    parameters: Counter[str] = Counter()
    for op in graph:
        layer, plan = layer_of[op.name], placement.ops[op.name]
        ops[layer] += 1
        time_ns[layer][plan.device] += plan.time_ns.get(plan.device, 0)
        takers: dict[int, set[str]] = defaultdict(set)
        for target, data in graph.graph.adj[op.name].items():
            for tensor in data["tensors"]:
                takers[tensor.src_index].add(layer_of[target])
        for output, others in takers.items():
            nbytes = round(op.signature.outputs[output].nbytes * op.count)
            others.discard(layer)
            given[layer] += nbytes if others else 0
            taken.update(dict.fromkeys(others, nbytes))
        state = graph.resources.get(op.resource)
        if state is not None and state.kind == "variable" and is_in(graph.layers[op.name], state.name.rpartition("/")[0]):
            parameters[layer] += state.nbytes
    rows = [
        [
            ", ".join(_devices(time_ns[layer])),
            str(ops[layer]),
            format_ns(time_ns[layer].total()),
            format_bytes(taken[layer]),
            format_bytes(given[layer]),
            format_bytes(parameters[layer]) if parameters[layer] else "",
            layer,
        ]
        for layer in sorted(time_ns, key=NO_LAYER.__eq__)
    ]
    return table(["devices", "ops", "time", "in", "out", "parameters", "layer"], rows, {"layer"})


def _devices(time_ns: Counter[str]) -> list[str]:
    least_ns = MIN_SHARE * time_ns.total()
    return [device for device, ns in time_ns.most_common() if ns >= least_ns and (ns or not least_ns)]
