"""What each op costs on each device: the price of its signature, and of the first op of each type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device, Machine
from cost_models.ops import entry_of
from cost_models.ops.convolution import channels_first_bytes
from placer.errors import OptionError
from placer.graph.op_graph import OpGraph, OpNode
from placer.problem.arrays import Bools, Ints

FREE_ROLES = frozenset({"argument", "capture", "constant"})
"""Roles whose nodes do no work in a step."""
FIRST_RUN_NS = 520
"""How much longer the host takes with the first run of an op on an asynchronous device in a step than with runs in a row."""
MAX_FIGURE = 2**50
"""A time or size of one run of an op must be below this: 13 days in ns, 1 PiB in bytes."""


@dataclass(frozen=True, eq=False)
class OpCosts:
    """The costs of N ops on D devices; S distinct signatures. Zero where a device has no kernel."""

    time_ns: Ints
    """[N, D]: this and the next three are the fields of `Ops` of the same names."""
    dispatch_ns: Ints
    """[N, D]"""
    compute_ns: Ints
    """[N, D]"""
    workspace_bytes: Ints
    """[N, D]"""
    first_of_type_ns: Ints
    """[N, D]: the part of `time_ns` that an op takes because it is the first of its type."""
    signature: Ints
    """[N]: row of `sources`; -1 for ops that do no work."""
    sources: tuple[tuple[str, ...], ...]
    """[S][D]: where the price of a signature on a device comes from (`OpCost.source`)."""


def op_costs(graph: OpGraph, ops: Sequence[OpNode], model: CostModel, machine: Machine) -> OpCosts:
    """Prices each distinct signature once for each device that has a kernel for it.

    Args:
        graph: the graph of the ops.
        ops: its ops in order, where reads that copy their variable are marked as such.
        model: gives the prices.
        machine: its devices.

    Raises:
        OptionError: the model fails, or returns something that is no cost.
    """
    rows = np.full(len(ops), -1, np.int64)
    numbers: dict[tuple[OpSignature, tuple[str, ...]], int] = {}
    # Readers share signature objects; hashing one takes longer than a step here.
    known: dict[tuple[int, tuple[str, ...]], int] = {}
    for i, op in enumerate(ops):
        if op.role in FREE_ROLES:
            continue
        kinds = tuple(op.kernels)
        row = known.get((id(op.signature), kinds))
        if row is None:
            row = known[id(op.signature), kinds] = numbers.setdefault((op.signature, kinds), len(numbers))
        rows[i] = row
    prices = np.zeros((len(numbers) + 1, len(machine.devices), 4), np.int64)  # the last row prices what does no work
    sources = []
    for row, (signature, kinds) in enumerate(numbers):
        figures_and_sources = [_price(model, signature, device, kinds) for device in machine.devices]
        prices[row] = [figures for figures, _ in figures_and_sources]
        sources.append(tuple(source for _, source in figures_and_sources))
    each, count = prices[rows], np.array([op.count for op in ops], np.float64)[:, None]
    time_ns, dispatch_ns, compute_ns = (np.rint(each[:, :, k] * count).astype(np.int64) for k in range(3))
    from_user = np.array([*([source == "user" for source in by_device] for by_device in sources), [False] * len(machine.devices)])
    works = time_ns > 0
    charged = works & ~from_user[rows]
    overlapping = np.array([device.asynchronous for device in machine.devices], np.bool_)
    dispatch_ns += np.rint(FIRST_RUN_NS * np.minimum(1.0, count) * (charged & overlapping)).astype(np.int64)
    time_ns = np.where(overlapping, np.maximum(time_ns, dispatch_ns), time_ns)
    types: dict[str, int] = {}
    kind = np.array([types.setdefault(op.op_type, len(types)) for op in ops], np.int64)
    first_ns = _cold_ns(ops, kind, machine, works, charged)
    dispatch_ns += first_ns
    added_ns = np.where(overlapping & (first_ns > 0), np.maximum(0, dispatch_ns - time_ns), first_ns)
    return OpCosts(
        time_ns=time_ns + added_ns,
        dispatch_ns=dispatch_ns,
        compute_ns=compute_ns,
        workspace_bytes=each[:, :, 3] + _layout_workspace(graph, ops, machine),
        first_of_type_ns=added_ns,
        signature=rows,
        sources=tuple(sources),
    )


def _price(model: CostModel, signature: OpSignature, device: Device, kinds: tuple[str, ...]) -> tuple[tuple[int, ...], str]:
    if device.kind not in kinds:
        return (0, 0, 0, 0), ""
    try:
        cost = model.op_cost(signature, device)
    except Exception as error:  # whatever a model of the user's own raises
        raise OptionError(
            f"cost model {model.name!r} failed to price {signature.op_type} on {device.name}: {type(error).__name__}: {error}"
        ) from error
    if isinstance(cost, OpCost):
        figures: tuple[Any, ...] = (cost.time_ns, cost.dispatch_ns, cost.compute_ns, cost.workspace_bytes)
        if all(isinstance(figure, (int, float, np.number)) and 0 <= figure < MAX_FIGURE for figure in figures):
            return figures, cost.source
    raise OptionError(
        f"cost model {model.name!r} prices {signature.op_type} on {device.name} as {cost!r}: "
        f"an OpCost is wanted, each of its figures from 0 to under {MAX_FIGURE}."
    )


def _cold_ns(ops: Sequence[OpNode], kind: Ints, machine: Machine, works: Bools, charged: Bools) -> Ints:
    """[N, D]: how much longer the host takes with the first op of each type, in ns for all runs of a step.

    The first op in graph order is charged, whatever its device, since ops of a type are mostly on one device. An op that runs in
    a part of the steps is the first of its type in those steps only; the next ops of the type are charged for the other steps.

    Args:
        ops: [N]
        kind: [N]: the number of each op's type.
        machine: its devices.
        works: [N, D]: whether the op takes time.
        charged: [N, D]: whether it also takes longer, as an op whose time the user gave does not.
    """
    count = np.array([op.count for op in ops], np.float64)[:, None]
    order = np.argsort(kind, kind="stable")
    runs = (np.minimum(1.0, count) * works)[order]
    before = np.cumsum(runs, axis=0) - runs
    before -= before[np.searchsorted(kind[order], kind[order])]  # of the same type alone
    first = np.empty(works.shape)
    first[order] = np.clip(1.0 - before, 0.0, runs)
    return np.rint(first * charged * [device.cold_ns for device in machine.devices]).astype(np.int64)


def _layout_workspace(graph: OpGraph, ops: Sequence[OpNode], machine: Machine) -> Ints:
    """[N, D]: workspace of a convolution, in bytes, beyond its priced one, on a GPU that computes it channels first.

    TensorFlow computes float32 convolutions channels first in two cases: in graphs with gradients of convolutions
    (`GetSrcAndDstDataFormats` in its generic_layout_optimizer.cc), and where it fuses a convolution, its bias and its activation
    into one op. The kernel of the fused op copies both images too (`LaunchFusedConv2DOp`).

    The workspace depends on the algorithm that was the fastest when the library tried them. For one convolution it was as large
    as the images on one card, twice as large on another, and differed between two runs. The largest measured workspace is
    counted. If memory does not suffice, TensorFlow runs an algorithm without workspace if it has one
    (`AllocateScratchOrFallback`).
    """

    def only(name: str, op_type: str) -> str:
        """The only consumer of an op's results, if it is of that type; otherwise ""."""
        users = list(graph.graph.succ[name])
        return users[0] if len(users) == 1 and graph.op(users[0]).op_type == op_type else ""

    gpu = np.array([device.kind != "CPU" for device in machine.devices], np.int64)
    trained = any(entry_of(op.op_type).wants_channels_first and op.signature.outputs[0].dtype == "float32" for op in ops)
    copy_bytes = np.zeros(len(ops), np.int64)
    for i, op in enumerate(ops):
        if op.op_type == "Conv2D":
            fused = (biased := only(op.name, "BiasAdd")) and only(biased, "Relu")
            if trained or fused:
                copy_bytes[i] = channels_first_bytes(op.signature, fused=bool(fused))
    return np.outer(copy_bytes, gpu)
