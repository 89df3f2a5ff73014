"""OpGraph + constraints + costs + machine -> PlacementProblem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device, Machine
from cost_models.ops import View, copied_read, entry_of, is_awaited, is_copied, view_of
from cost_models.ops.convolution import channels_first_bytes
from cost_models.transfers import copy_costs, unpinned_factor
from placer.common.device_spec import parse
from placer.common.units import parse_bytes
from placer.errors import DeviceError, InfeasibleError, OptionError
from placer.graph.op_graph import OpGraph, OpNode
from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.constant_push_down import pushed_down
from placer.problem.constraints import Constraints
from placer.problem.control_edge_reduction import left_waiting
from placer.problem.fusion import chains
from placer.problem.lifetimes import allocated, breadth_first, lifetimes
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import PlacementProblem

FREE_ROLES = frozenset({"argument", "capture", "constant"})
"""Roles whose nodes do no work in a step."""
MOST = 2**50
"""What a figure of one run of an op must stay under: 13 days in ns, 1 PiB in bytes."""


@dataclass(frozen=True, eq=False)
class Formulation:
    """A problem and the few things a report says about it that no solver needs. S different signatures, D devices."""

    problem: PlacementProblem
    op_signature: Ints
    """[N]: row of `sources`; -1 for ops that do no work."""
    sources: tuple[tuple[str, ...], ...]
    """[S][D]: where the price of a signature on a device comes from (`OpCost.source`)."""
    tensor_output: Ints
    """[T]: which output of its producer a tensor is."""
    cold_ns: Ints
    """[N, D]: what of an op's time is that of the first op of its type."""


def formulate(
    graph: OpGraph,
    constraints: Constraints,
    model: CostModel,
    machine: Machine,
    memory_limits: Mapping[str, str | int] | None = None,
) -> Formulation:
    """Prices the graph: every op on every device of its kernels, every tensor at every place.

    A tensor is one output with all its consumers. It crosses, where it crosses, as often per step as its producer runs, but
    no more often than its busiest consumer does: a branch taken half of the time fetches half of the time; a value from
    outside a loop enters once and then crosses as the loop's own variable. Control edges are those that TensorFlow leaves, and
    those that it adds to loops.

    A list that a loop adds to is as large as all that is added, from where it is made to where it is last taken from.

    Outputs nobody takes live only while their op runs and count as its workspace. Variables, captures and constants count as
    persistent; a capture or variable with its unit, a constant wherever it is copied. The caller has arguments throughout.

    Args:
        memory_limits: bytes (see `placer.common.units.parse_bytes`) by device spec, "GPU" for each GPU; the machine's memory
            less its reserve for the others.

    Raises:
        OptionError: a limit does not parse, or the model's answer is no cost.
        DeviceError: a limit names a device that is not there.
        InfeasibleError: a tensor is too large for any device.
    """
    ops = _with_copied_reads(graph)
    _check_sizes(ops)
    times, dispatch, compute, workspace, rows, sources = _op_costs(ops, _fused(graph), model, machine)
    numbers: dict[str, int] = {}
    kind = np.array([numbers.setdefault(op.op_type, len(numbers)) for op in ops], np.int64)
    first, again = _cold(ops, kind, machine, rows, sources, times)
    cold = _add_cold(first, machine, times, dispatch)
    workspace += _of_layouts(graph, ops, machine)
    flow = _flow(graph, constraints, ops, machine, workspace)
    latency, per_byte, interval = copy_costs(machine)
    passed, captured = (sum(op.role == role for op in ops) for role in ("argument", "capture"))
    problem = PlacementProblem(
        devices=Devices(
            names=tuple(d.name for d in machine.devices),
            kinds=tuple(d.kind for d in machine.devices),
            memory_limit_bytes=_limits(machine, memory_limits or {}),
            asynchronous=np.array([d.asynchronous for d in machine.devices], np.bool_),
            call_overhead_ns=machine.call_overhead_ns + machine.argument_ns * (passed + captured) + machine.passed_ns * passed,
            call_ns=np.array([d.call_ns for d in machine.devices], np.int64),
            split_ns=machine.split_ns,
            waiting_ns=machine.waiting_ns,
            threads=np.array([1 if d.asynchronous else d.threads or d.cores for d in machine.devices], np.int64),
            wake_ns=np.array([d.wake_ns for d in machine.devices], np.int64),
        ),
        ops=Ops(
            names=tuple(graph.graph),
            unit=constraints.op_unit,
            time_ns=times,
            dispatch_ns=dispatch,
            compute_ns=compute,
            count=np.array([op.count for op in ops], np.float64),
            workspace_bytes=workspace,
            follows_input=np.array([_follows(graph, op) for op in ops], np.bool_),
            awaited=np.array([is_awaited(op.signature) for op in ops], np.bool_),
            serial=np.array([entry_of(op.op_type).cpu_serial for op in ops], np.bool_),
            kind=kind,
            cold_ns=again,
            moment=flow.moment,
            control_src=flow.controls[:, 0],
            control_dst=flow.controls[:, 1],
        ),
        units=Units(
            allowed=constraints.allowed,
            persistent_bytes=_persistent(graph, constraints),
        ),
        links=Links(
            latency_ns=latency,
            ns_per_byte=per_byte,
            interval_ns=interval,
        ),
        tensors=flow.tensors,
        consumers=flow.consumers,
    )
    return Formulation(problem, rows, sources, flow.output, cold)


def _check_sizes(ops: list[OpNode]) -> None:
    for op in {id(op.signature): op for op in ops}.values():
        for spec in op.signature.outputs:
            if spec.nbytes >= MOST:
                raise InfeasibleError(
                    f"{op.name!r} ({op.op_type}) makes {spec}, which no device holds: the limit for a tensor is 1 PiB. "
                    "Way out: make it in parts, or smaller."
                )


def _with_copied_reads(graph: OpGraph) -> list[OpNode]:
    """The ops in order, reads that copy their variable marked as such: TensorFlow copies on each read what is also used by rows.

    Otherwise an update of rows could not be done in place (`EnsureSparseVariableAccess` in its resource_variable_ops.cc).
    """
    by_rows = {_handle(graph, op) for op in graph if entry_of(op.op_type).uses_rows}
    if not by_rows:
        return list(graph)
    reads = (op.op_type == "ReadVariableOp" and _handle(graph, op) in by_rows for op in graph)
    return [
        replace(op, signature=copied_read(op.signature)) if reads_copy else op
        for op, reads_copy in zip(graph, reads, strict=True)
    ]


def _handle(graph: OpGraph, op: OpNode) -> str:
    """What gives an op its first input, a variable's handle where it takes one."""
    edges = graph.graph.pred[op.name].items()
    return next((name for name, data in edges if any(edge.dst_index == 0 for edge in data["tensors"])), "")


def _follows(graph: OpGraph, op: OpNode) -> bool:
    """Whether TensorFlow's placer leaves an op beside its first input.

    What a loop passes on starts on the device that its first value asks for or sits on, the predicate's on that of its maker. An
    Identity that nothing asks for and that only gives a result is taken out, so the result is where it was made.
    """
    if op.role != "loop":
        gives_result = op.op_type == "Identity" and not op.requested_device and not graph.graph.succ[op.name]
        return gives_result or entry_of(op.op_type).follows_input
    before = graph.graph.pred[op.name].items()
    makers = (graph.op(name) for name, data in before if any(edge.dst_index == 0 for edge in data["tensors"]))
    return op.op_type == "NextIteration" or any(maker.requested_device or maker.location for maker in makers)


def _copied(ops: list[OpNode], constraints: Constraints, machine: Machine, producer: Ints, nbytes: Ints) -> Ints:
    """[T]: what a GPU reads of a CPU's arguments and variables is in ordinary memory, and slower than what ops make for it.

    A tensor has one price per byte wherever it is made: that of a variable which may be on the CPU or on one GPU is the CPU's,
    as that is the copy which plans are tempted by; what may be on several GPUs goes quickly between those.
    """
    outside = np.array([op.role in ("argument", "capture") or op.op_type == "ReadVariableOp" for op in ops], np.bool_)
    on_cpu = np.array([device.kind == "CPU" for device in machine.devices], np.bool_)
    allowed = constraints.allowed
    ordinary = allowed[:, on_cpu].any(axis=1) & (allowed[:, ~on_cpu].sum(axis=1) <= 1)
    factor = np.where((outside & ordinary[constraints.op_unit])[producer], unpinned_factor(machine), 1.0)
    return np.rint(nbytes * factor).astype(np.int64)


def _limits(machine: Machine, asked: Mapping[str, str | int]) -> Ints:
    limits = {
        d.name: d.memory_bytes - machine.reserve_bytes.get(d.name, 0) if d.memory_bytes > 0 else -1 for d in machine.devices
    }
    specs = {name: parse(name) for name in asked}
    for name, spec in sorted(specs.items(), key=lambda entry: entry[1].index is not None):  # one device's own limit holds
        matched = [device for device in limits if spec.matches(device)]
        if not matched:
            raise DeviceError(f"a memory limit names {name!r}, which {machine.name!r} does not have; it has {', '.join(limits)}.")
        limits.update(dict.fromkeys(matched, parse_bytes(asked[name])))
    return np.array(list(limits.values()), np.int64)


@dataclass(frozen=True, slots=True)
class _Link:
    """An op's part in what TensorFlow makes one op of on a CPU."""

    whole: OpSignature
    parts: tuple[OpSignature, ...]
    leads: bool
    """Whether it is the first of them, which stands for all."""


def _fused(graph: OpGraph) -> dict[str, _Link]:
    """By op."""
    links = {}
    for chain in chains(graph):
        whole, parts = chain.signature, tuple(op.signature for op in chain.ops)
        links.update({op.name: _Link(whole, parts, op is chain.ops[0]) for op in chain.ops})
    return links


def _op_costs(
    ops: list[OpNode], links: Mapping[str, _Link], model: CostModel, machine: Machine
) -> tuple[Ints, Ints, Ints, Ints, Ints, tuple[tuple[str, ...], ...]]:
    """Prices each distinct signature once per device that has a kernel for it, and spreads the prices over the ops."""
    rows = np.full(len(ops), -1, np.int64)
    numbers: dict[tuple[OpSignature, tuple[str, ...], _Link | None], int] = {}
    known: dict[
        tuple[int, tuple[str, ...], _Link | None], int
    ] = {}  # readers share signature objects; hashing one takes longer than a step here
    for i, op in enumerate(ops):
        if op.role in FREE_ROLES:
            continue
        kinds, link = tuple(op.kernels), links.get(op.name)
        row = known.get((id(op.signature), kinds, link))
        if row is None:
            row = numbers.setdefault((op.signature, kinds, link), len(numbers))
            known[id(op.signature), kinds, link] = row
        rows[i] = row
    prices = np.zeros((len(numbers) + 1, len(machine.devices), 4), np.int64)  # the last row prices what does no work
    sources = []
    for row, (signature, kinds, link) in enumerate(numbers):
        found = [
            (_price_of_link(model, link, device, kinds) if link else None) or _price(model, signature, device, kinds)
            for device in machine.devices
        ]
        prices[row] = [figures for figures, _ in found]
        sources.append(tuple(source for _, source in found))
    count = np.array([op.count for op in ops], np.float64)[:, None]
    each = prices[rows]
    times, dispatch, compute = (np.rint(each[:, :, k] * count).astype(np.int64) for k in range(3))
    return times, dispatch, compute, each[:, :, 3].copy(), rows, tuple(sources)


def _cold(
    ops: list[OpNode], kind: Ints, machine: Machine, rows: Ints, sources: tuple[tuple[str, ...], ...], times: Ints
) -> tuple[Ints, Ints]:
    """What the first op of each type takes more, on whichever device it is: others of its type are mostly there too.

    One that runs in a part of the steps is the first in those, and the next ones in the rest, but for those of one body, which
    run in the same steps. Where a user says what an op takes, that is all that it takes.

    Returns:
        [N, D] twice: in a step; and what is left for a run that is the first of its type to follow a copy.
    """
    count = np.array([op.count for op in ops], np.float64)[:, None]
    works = times > 0
    order = np.argsort(kind, kind="stable")
    runs = np.minimum(1.0, count) * works
    there: dict[tuple[int, str], Floats] = {}
    nothing = np.zeros(times.shape[1])
    for i in np.flatnonzero(count[:, 0] < 1.0).tolist():  # what is in one body runs in the same steps
        of_body = int(kind[i]), ops[i].body
        had = there.get(of_body, nothing)
        there[of_body] = np.maximum(had, runs[i])
        runs[i] = there[of_body] - had
    runs = runs[order]
    before = np.cumsum(runs, axis=0) - runs
    before -= before[np.searchsorted(kind[order], kind[order])]  # of the same type alone
    first = np.empty(times.shape)
    first[order] = np.clip(1.0 - before, 0.0, runs)
    left = works - first / np.where(count > 0, count, 1.0)
    told = np.array([*([source == "user" for source in by_device] for by_device in sources), [False] * times.shape[1]])
    more = np.where(told[rows], 0.0, [device.cold_ns for device in machine.devices])
    return np.rint(first * more).astype(np.int64), np.rint(left * more).astype(np.int64)


def _add_cold(cold: Ints, machine: Machine, times: Ints, dispatch: Ints) -> Ints:
    """Adds to the host's share of ops, and returns by how much that lengthens them, [N, D]."""
    dispatch += cold
    overlapping = np.array([device.asynchronous for device in machine.devices], np.bool_)
    more: Ints = np.where(overlapping & (cold > 0), np.maximum(0, dispatch - times), cold)
    times += more
    return more


def _of_layouts(graph: OpGraph, ops: list[OpNode], machine: Machine) -> Ints:
    """[N, D]: what convolutions take more on a GPU where TensorFlow has them work with the channels first.

    It does beside gradients of float32 ones (`GetSrcAndDstDataFormats` in its generic_layout_optimizer.cc), and where it makes
    one op of a convolution, its bias and its activation, whose kernel then copies both images too (`LaunchFusedConv2DOp`).

    What its library takes then is up to the algorithm that was quickest when it tried them: for one and the same convolution
    its images once on one card and twice on another, and not the same in two runs. The most that was seen is counted. Where
    that is not there, TensorFlow runs an algorithm that does without, if it found one (`AllocateScratchOrFallback`).
    """

    def only(name: str, op_type: str) -> str:
        """What alone takes the results of an op, if it is of that type."""
        users = list(graph.graph.succ[name])
        return users[0] if len(users) == 1 and graph.op(users[0]).op_type == op_type else ""

    gpu = np.array([device.kind != "CPU" for device in machine.devices], np.int64)
    trained = any(entry_of(op.op_type).wants_channels_first and op.signature.outputs[0].dtype == "float32" for op in ops)
    taken = np.zeros(len(ops), np.int64)
    for i, op in enumerate(ops):
        if op.op_type == "Conv2D":
            fused = (biased := only(op.name, "BiasAdd")) and only(biased, "Relu")
            if trained or fused:
                taken[i] = channels_first_bytes(op.signature, fused=bool(fused))
    return np.outer(taken, gpu)


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
        if all(isinstance(figure, (int, float, np.number)) and 0 <= figure < MOST for figure in figures):
            return figures, cost.source
    raise OptionError(
        f"cost model {model.name!r} prices {signature.op_type} on {device.name} as {cost!r}: "
        f"an OpCost is wanted, each of its figures from 0 to under {MOST}."
    )


def _price_of_link(model: CostModel, link: _Link, device: Device, kinds: tuple[str, ...]) -> tuple[tuple[int, ...], str] | None:
    """What an op of a chain costs where the chain was measured as the one op that it is there, and the user prices none of it.

    The first op costs what the whole does and the others nothing, wherever their neighbours are: a chain that is cut between
    devices is priced as if it were not.
    """
    if device.kind != "CPU" or any(_price(model, part, device, kinds)[1] == "user" for part in link.parts):
        return None
    figures, source = _price(model, link.whole, device, kinds)
    if source != "measured":
        return None
    return figures if link.leads else (0,) * len(figures), "measured fused"


@dataclass(frozen=True, eq=False)
class _Flow:
    """What ops pass to each other."""

    tensors: Tensors
    consumers: Consumers
    output: Ints
    """[T]: which output of its producer a tensor is."""
    moment: Ints
    """[N]: see `Ops`."""
    controls: Ints
    """[K, 2]: control edges."""


def _flow(graph: OpGraph, constraints: Constraints, ops: list[OpNode], machine: Machine, workspace: Ints) -> _Flow:
    """The tensors and control edges of a graph. Adds the bytes of outputs without consumers to `workspace`."""
    index = {name: i for i, name in enumerate(graph.graph)}
    numbers: dict[tuple[int, int], int] = {}  # by producer and output
    entries: list[tuple[int, int, int]] = []  # tensor, consumer, input index
    control: list[tuple[int, int]] = []
    idle: list[tuple[int, int]] = []
    for src, (_, targets) in enumerate(graph.graph.adjacency()):
        for name, data in targets.items():
            dst = index[name]
            if not ops[dst].count:  # it never runs, so nothing is sent to it
                idle.append((src, dst))
                continue
            if not data["tensors"]:
                control.append((src, dst))
            entries += [
                (numbers.setdefault((src, edge.src_index), len(numbers)), dst, edge.dst_index) for edge in data["tensors"]
            ]
    results = [numbers.setdefault((index[name], output), len(numbers)) for name, output in graph.outputs]
    for i, op in enumerate(ops):
        if op.count and op.role == "op" and view_of(op.signature) is View.NONE:
            workspace[i] += sum(spec.nbytes for k, spec in enumerate(op.signature.outputs) if (i, k) not in numbers)
    producer, output = np.array(list(numbers), np.int64).reshape(-1, 2).T.copy()
    result = np.isin(np.arange(len(producer)), results)

    constant = np.array([op.role == "constant" for op in ops], np.bool_)
    free_to_move = constant & np.array([not graph.graph.pred[op.name] for op in ops], np.bool_)
    run, taken = pushed_down(ops, free_to_move, producer, output, result, np.array(entries, np.int64).reshape(-1, 3))
    links = np.concatenate(
        [np.array([*idle, *control], np.int64).reshape(-1, 2), np.stack([producer[taken[:, 0]], taken[:, 1]], 1)]
    )
    moment = breadth_first(len(ops), *links.T)
    lists = [each for each in _lists(graph, ops, moment) if (each[0], 0) in numbers]
    ends = np.array([(numbers[maker, 0], last, position) for maker, last, position, _ in lists], np.int64).reshape(-1, 3)
    grown = np.array([nbytes for *_, nbytes in lists], np.int64)

    def sizes(of: list[OpNode]) -> Ints:
        found = np.array([of[i].signature.outputs[k].nbytes for i, k in numbers], np.int64)
        found[ends[:, 0]] = grown
        return found

    consumers, taken = np.concatenate([np.array(entries, np.int64).reshape(-1, 3), ends]), np.concatenate([taken, ends])
    order = np.argsort(consumers[:, 0], kind="stable")
    consumers, taken = consumers[order], taken[order]
    tensor, consumer, position = consumers.T.copy()
    count = np.array([op.count for op in ops], np.float64)
    busiest = np.zeros(len(producer))
    np.maximum.at(busiest, tensor, count[consumer])
    joins = np.array([op.op_type == "NoOp" for op in ops], np.bool_)
    taker = np.array(entries, np.int64).reshape(-1, 3)
    fed = np.stack([producer[taker[:, 0]], taker[:, 1]], axis=1)
    left = left_waiting(len(ops), fed, np.array(control, np.int64).reshape(-1, 2), joins)
    controls = np.concatenate([left, _of_loops(ops, fed)])
    held = result | np.array([op.role == "argument" for op in ops], np.bool_)[producer]
    until, view = lifetimes(run, moment, producer, output, held | constant[producer], taken)
    last = np.where(held, len(ops) - 1, -1)
    np.maximum.at(last, tensor, until)
    there = np.array([op.role == "capture" for op in ops], np.bool_)[producer] | _in_variables(graph, ops, moment, producer, last)
    nbytes = sizes(ops)
    tensors = Tensors(
        op=producer,
        nbytes=nbytes,
        count=np.minimum(count[producer], busiest),
        on_host=_on_host(ops, machine, producer, output, "host_outputs"),
        free=constant[producer],
        is_result=held,
        shared=view | there,
        copy_bytes=_copied(ops, constraints, machine, producer, nbytes),
        held_bytes=allocated(sizes(run) * _rounds_at_once(ops, producer, tensor, consumer)),
    )
    return _Flow(
        tensors,
        Consumers(
            start=np.searchsorted(tensor, np.arange(len(producer) + 1)),
            op=consumer,
            on_host=_on_host(ops, machine, consumer, position, "host_inputs"),
            until=until,
        ),
        output,
        moment,
        controls,
    )


def _of_loops(ops: list[OpNode], fed: Ints) -> Ints:
    """[K, 2]: control edges that TensorFlow adds to loops: from the first variable of each to its condition, and on to its ops.

    They are beside what crosses in host memory, such as the predicate: what has no input in a round waits for them alone. See
    lower_while_op.cc and graph_partition.cc in tensorflow/core.
    """
    number = {op.name: i for i, op in enumerate(ops) if op.count}
    loops = {i: name for name, i in number.items() if ops[i].op_type in ("While", "StatelessWhile")}
    begins = [(number[first], i) for i, name in loops.items() if (first := f"{name}/in0") in number]
    rounds = fed[np.isin(fed[:, 0], list(loops))]
    return np.unique(np.concatenate([np.array(begins, np.int64).reshape(-1, 2), rounds]), axis=0)


def _in_variables(graph: OpGraph, ops: list[OpNode], moment: Ints, producer: Ints, last: Ints) -> Bools:
    """[T]: which tensors are a variable's own memory: what is read of it, unless the read copies it or outlives its next update.

    An update gives the variable new memory while the old is in use (`PrepareToUpdateVariable` in TensorFlow's
    training_op_helpers.h); what was read then has the old from there on, and is counted from its beginning.
    """
    updates: dict[str, list[int]] = {}
    for i, op in enumerate(ops):
        if entry_of(op.op_type).updates == "value" and op.count:
            updates.setdefault(_handle(graph, op), []).append(int(moment[i]))
    found = np.zeros(len(producer), np.bool_)
    for t, i in enumerate(producer.tolist()):
        if ops[i].op_type == "ReadVariableOp" and not is_copied(ops[i].signature):
            found[t] = not any(moment[i] < update <= last[t] for update in updates.get(_handle(graph, ops[i]), ()))
    return found


def _rounds_at_once(ops: list[OpNode], producer: Ints, tensor: Ints, consumer: Ints) -> Ints:
    """[T]: 2 for copies of variables that a loop reads: a round's are made while the last of the one before is still to be used.

    All else in a round waits for what the one before hands on.
    """
    count = np.array([op.count for op in ops], np.float64)
    busiest = np.zeros(len(producer))
    np.maximum.at(busiest, tensor, count[consumer])
    copied = np.array([is_copied(op.signature) for op in ops], np.bool_)[producer]
    return np.where(copied & (busiest > 1), 2, 1)


def _lists(graph: OpGraph, ops: list[OpNode], moment: Ints) -> list[tuple[int, int, int, int]]:
    """What lists of tensors grow to, such as those in which a loop keeps for its gradient what each round made.

    For each: the op that makes it, whose output stands for all of it; the last op that takes it, and as which input; its bytes.
    """
    made: dict[str, int] = {}
    last: dict[str, tuple[int, int]] = {}
    grown: Counter[str] = Counter()
    for i, op in enumerate(ops):
        signature = op.signature
        taken = next((k for k, spec in enumerate(signature.inputs) if spec.dtype == "variant"), None)
        if not op.group or not op.count:
            continue
        if taken is not None:
            last[op.group] = max(last.get(op.group, (i, taken)), (i, taken), key=lambda end: int(moment[end[0]]))
        elif entry_of(op.op_type).makes_list:
            made.setdefault(op.group, i)
        element = entry_of(op.op_type).list_element
        if element is not None and not _is_read(graph, op.name, element):
            grown[op.group] += round(signature.inputs[element].nbytes * op.count)
    found = [(maker, *last[group], grown[group]) for group, maker in made.items() if group in last and grown[group]]
    return [(maker, end, position, round(nbytes / ops[maker].count)) for maker, end, position, nbytes in found if end > maker]


def _is_read(graph: OpGraph, name: str, position: int) -> bool:
    """Whether an input is the value of a variable, which is there once however many have it."""
    sources = [
        src for src, _, data in graph.graph.in_edges(name, data=True) if any(t.dst_index == position for t in data["tensors"])
    ]
    source = graph.op(sources[0]) if sources else None
    if source is not None and source.op_type == "LoopVariable":  # one that is read before the loop, where it goes in
        return any(graph.op(src).op_type == "ReadVariableOp" for src in graph.graph.predecessors(source.name))
    return source is not None and source.op_type == "ReadVariableOp"


def _on_host(ops: list[OpNode], machine: Machine, op: Ints, position: Ints, side: str) -> Bools:
    """[len(op), D]: whether the kernels of each device keep these inputs or outputs in host memory. A CPU's memory is its own."""
    flags = np.zeros((len(op), len(machine.devices)), np.bool_)
    for kind in dict.fromkeys(d.kind for d in machine.devices if d.kind != "CPU"):
        kept = [frozenset(getattr(o.kernels[kind], side)) if kind in o.kernels else frozenset() for o in ops]
        column = np.array([p < 0 or p in kept[o] for o, p in zip(op.tolist(), position.tolist(), strict=True)], np.bool_)
        flags[:, [d for d, device in enumerate(machine.devices) if device.kind == kind]] = column[:, None]
    return flags


def kept(graph: OpGraph) -> Iterator[tuple[int, str, int]]:
    """What is in memory from step to step: the position of the op that holds it, its name and bytes.

    Each variable or table is there once, with the first op that holds it; a captured tensor is called as its op is.
    """
    seen: set[str] = set()
    for i, op in enumerate(graph):
        if op.resource:
            if op.resource in graph.resources and op.resource not in seen:
                yield i, graph.resources[op.resource].name, graph.resources[op.resource].nbytes
            seen.add(op.resource)
        elif op.role == "capture":
            yield i, op.name, sum(spec.nbytes for spec in op.signature.outputs)


def _persistent(graph: OpGraph, constraints: Constraints) -> Ints:
    """[U]: bytes that each unit keeps from step to step."""
    held = np.zeros(len(constraints.allowed), np.int64)
    for i, _, nbytes in kept(graph):
        held[constraints.op_unit[i]] += allocated(nbytes)
    return held
