"""What ops pass to each other: tensors, their consumers, control edges, and when each tensor is held."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from cost_models.machines import Machine, task_of
from cost_models.ops import View, entry_of, is_copied, view_of
from cost_models.transfers import unpinned_factor
from placer.graph.op_graph import OpGraph, OpNode
from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.constant_push_down import pushed_down
from placer.problem.constraints import Constraints
from placer.problem.control_edge_reduction import reduced_control_edges
from placer.problem.lifetimes import allocated, breadth_first, lifetimes
from placer.problem.parts import Consumers, Tensors


@dataclass(frozen=True, eq=False)
class DataFlow:
    """What ops pass to each other, in the order in which TensorFlow runs them."""

    tensors: Tensors
    consumers: Consumers
    output: Ints
    """[T]: which output of its producer a tensor is."""
    moment: Ints
    """[N]: see `Ops.moment`."""
    controls: Ints
    """[K, 2]: producer and consumer of each control edge."""
    unused_bytes: Ints
    """[N]: outputs without consumers, which are held while their op runs."""


def data_flow(graph: OpGraph, constraints: Constraints, ops: list[OpNode], machine: Machine) -> DataFlow:
    """The tensors, their consumers and the control edges of a graph.

    A tensor is one output with all its consumers. A tensor that crosses places crosses as often per step as its producer runs,
    but no more often than its busiest consumer runs. So a branch that is taken in half of the steps fetches its inputs in half of
    them. A value from outside a loop enters once, and crosses in each round as the loop's own variable. A list to which a loop
    adds elements has its final size all the time, from the op that makes it to the last op that reads it. The control edges are
    the ones that TensorFlow keeps and the ones that it adds to loops.
    """
    unused_bytes = np.zeros(len(ops), np.int64)
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
            unused_bytes[i] += sum(spec.nbytes for k, spec in enumerate(op.signature.outputs) if (i, k) not in numbers)
    producer, output = np.array(list(numbers), np.int64).reshape(-1, 2).T.copy()
    result = np.isin(np.arange(len(producer)), results)

    constant = np.array([op.role == "constant" for op in ops], np.bool_)
    free_to_move = constant & np.array([not graph.graph.pred[op.name] for op in ops], np.bool_)
    uses = np.array(entries, np.int64).reshape(-1, 3)
    run, memory_uses = pushed_down(ops, free_to_move, producer, output, result, uses)
    links = np.concatenate(
        [np.array([*idle, *control], np.int64).reshape(-1, 2), np.stack([producer[memory_uses[:, 0]], memory_uses[:, 1]], 1)]
    )
    moment = breadth_first(len(ops), *links.T)
    lists = [each for each in _lists(graph, ops, moment) if (each[0], 0) in numbers]
    ends = np.array([(numbers[maker, 0], last, position) for maker, last, position, _ in lists], np.int64).reshape(-1, 3)
    grown = np.array([nbytes for *_, nbytes in lists], np.int64)

    def sizes(of: list[OpNode]) -> Ints:
        nbytes = np.array([of[i].signature.outputs[k].nbytes for i, k in numbers], np.int64)
        nbytes[ends[:, 0]] = grown
        return nbytes

    consumers = np.concatenate([uses, ends])
    memory_uses = np.concatenate([memory_uses, ends])
    order = np.argsort(consumers[:, 0], kind="stable")
    consumers, memory_uses = consumers[order], memory_uses[order]
    tensor, consumer, position = consumers.T.copy()
    count = np.array([op.count for op in ops], np.float64)
    busiest = np.zeros(len(producer))
    np.maximum.at(busiest, tensor, count[consumer])
    joins = np.array([op.op_type == "NoOp" for op in ops], np.bool_)
    fed = np.stack([producer[uses[:, 0]], uses[:, 1]], axis=1)
    reduced = reduced_control_edges(len(ops), fed, np.array(control, np.int64).reshape(-1, 2), joins)
    controls = np.concatenate([reduced, _loop_control_edges(ops, fed)])
    held = result | np.array([op.role == "argument" for op in ops], np.bool_)[producer]
    until, view = lifetimes(run, moment, producer, output, held | constant[producer], memory_uses)
    last = np.where(held, len(ops) - 1, -1)
    np.maximum.at(last, tensor, until)
    captured = np.array([op.role == "capture" for op in ops], np.bool_)[producer]
    in_variable = _in_variables(graph, ops, moment, producer, last)
    nbytes = sizes(ops)
    bounds = np.array([_bound_bytes(graph, ops[i], k) for i, k in numbers], np.int64)
    tensors = Tensors(
        op=producer,
        nbytes=nbytes,
        count=np.minimum(count[producer], busiest),
        on_host=_on_host(ops, machine, producer, output, "host_outputs"),
        free=constant[producer],
        is_result=held,
        shared=view | captured | in_variable,
        copy_bytes=_copy_bytes(ops, constraints, machine, producer, nbytes),
        held_bytes=allocated(np.maximum(sizes(run), bounds) * _rounds_at_once(ops, producer, busiest)),
    )
    return DataFlow(
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
        unused_bytes,
    )


def _bound_bytes(graph: OpGraph, op: OpNode, output: int) -> int:
    """The most bytes that an output can have, if its size is not exact; else 0. A dimension without a bound counts as 1."""
    size = graph.size_of(op.name, output)
    return 0 if size is None else replace(op.signature.outputs[output], shape=size.bound).nbytes


def _loop_control_edges(ops: list[OpNode], fed: Ints) -> Ints:
    """[K, 2]: control edges that TensorFlow adds to each loop: from its first variable to its condition, and on to its ops.

    Ops without an input from the loop wait in each round for these edges alone. See lower_while_op.cc and graph_partition.cc in
    tensorflow/core.
    """
    number = {op.name: i for i, op in enumerate(ops) if op.count}
    loops = {i: name for name, i in number.items() if entry_of(ops[i].op_type).control == "loop"}
    begins = [(number[first], i) for i, name in loops.items() if (first := f"{name}/in0") in number]
    rounds = fed[np.isin(fed[:, 0], list(loops))]
    return np.unique(np.concatenate([np.array(begins, np.int64).reshape(-1, 2), rounds]), axis=0)


def _in_variables(graph: OpGraph, ops: list[OpNode], moment: Ints, producer: Ints, last: Ints) -> Bools:
    """[T]: the tensors that are in a variable's own memory: its value as read, unless the read copies or the value outlives an
    update.

    An update gives the variable new memory while the old memory is in use (`PrepareToUpdateVariable` in TensorFlow's
    training_op_helpers.h). The value read before then keeps the old memory, which is counted from the read on.
    """
    updates: dict[str, list[int]] = {}
    for i, op in enumerate(ops):
        if entry_of(op.op_type).updates == "value" and op.count:
            updates.setdefault(handle_of(graph, op), []).append(int(moment[i]))
    shared = np.zeros(len(producer), np.bool_)
    for t, i in enumerate(producer.tolist()):
        if entry_of(ops[i].op_type).reads == "value" and not is_copied(ops[i].signature):
            shared[t] = not any(moment[i] < update <= last[t] for update in updates.get(handle_of(graph, ops[i]), ()))
    return shared


def _rounds_at_once(ops: list[OpNode], producer: Ints, busiest: Floats) -> Ints:
    """[T]: copies of each tensor in memory at once: 2 of a variable that a loop reads by copying, else 1.

    Such a read waits for nothing of the round before, so its copy is made while that round still uses its own copy. `busiest`
    [T]: runs of the consumer that runs most often.
    """
    copied = np.array([is_copied(op.signature) for op in ops], np.bool_)[producer]
    return np.where(copied & (busiest > 1), 2, 1)


def _lists(graph: OpGraph, ops: list[OpNode], moment: Ints) -> list[tuple[int, int, int, int]]:
    """The final sizes of tensor lists, such as those in which a loop keeps the results of each round for its gradient.

    Returns:
        For each list: the op that makes it, whose output stands for the whole list; the last op that reads it; the index of the
        list among that op's inputs; bytes per run of the op that makes it.
    """
    maker_of_group: dict[str, int] = {}
    last: dict[str, tuple[int, int]] = {}
    grown: Counter[str] = Counter()
    for i, op in enumerate(ops):
        signature = op.signature
        list_input = next((k for k, spec in enumerate(signature.inputs) if spec.dtype == "variant"), None)
        if not op.group or not op.count:
            continue
        if list_input is not None:
            last[op.group] = max(last.get(op.group, (i, list_input)), (i, list_input), key=lambda end: int(moment[end[0]]))
        elif entry_of(op.op_type).makes_list:
            maker_of_group.setdefault(op.group, i)
        element = entry_of(op.op_type).list_element
        if element is not None and not _is_read(graph, op.name, element):
            grown[op.group] += round(_most_bytes_read(graph, op, element) * op.count)
    lists = [(maker, *last[group], grown[group]) for group, maker in maker_of_group.items() if group in last and grown[group]]
    return [(maker, end, position, round(nbytes / ops[maker].count)) for maker, end, position, nbytes in lists if end > maker]


def _most_bytes_read(graph: OpGraph, op: OpNode, position: int) -> int:
    """The bytes of an input, by the bound of its size if that is not exact."""
    makers = (
        _bound_bytes(graph, graph.op(name), edge.src_index)
        for name, edge in graph.inputs_of(op.name)
        if edge.dst_index == position
    )
    return max(op.signature.inputs[position].nbytes, *makers, 0)


def _is_read(graph: OpGraph, name: str, position: int) -> bool:
    """Whether an input is the value of a variable, which is in memory once however many lists have it."""
    source = next((graph.op(maker) for maker, edge in graph.inputs_of(name) if edge.dst_index == position), None)
    if source is not None and source.op_type == "LoopVariable":  # one that is read before the loop, where it goes in
        return any(entry_of(graph.op(src).op_type).reads == "value" for src in graph.graph.predecessors(source.name))
    return source is not None and entry_of(source.op_type).reads == "value"


def _on_host(ops: list[OpNode], machine: Machine, op: Ints, position: Ints, side: str) -> Bools:
    """[len(op), D]: whether the kernels of each device keep these inputs or outputs in host memory; False on CPUs."""
    flags = np.zeros((len(op), len(machine.devices)), np.bool_)
    for kind in dict.fromkeys(d.kind for d in machine.devices if d.kind != "CPU"):
        host_indices = [frozenset(getattr(o.kernels[kind], side)) if kind in o.kernels else frozenset() for o in ops]
        column = np.array([p < 0 or p in host_indices[o] for o, p in zip(op.tolist(), position.tolist(), strict=True)], np.bool_)
        flags[:, [d for d, device in enumerate(machine.devices) if device.kind == kind]] = column[:, None]
    return flags


def _copy_bytes(ops: list[OpNode], constraints: Constraints, machine: Machine, producer: Ints, nbytes: Ints) -> Ints:
    """[T]: bytes as copies count them: more for arguments and variables, which a CPU keeps in ordinary (pageable) memory.

    A GPU reads ordinary memory of its host more slowly than the pinned memory in which ops put their results. The bytes of a
    tensor do not depend on where it is made or used, so one case is assumed: that a GPU of the same host uses it. A variable that
    may be on the CPU or on one GPU counts as one on the CPU, because plans would make that copy too often if it seemed cheap. A
    variable that may be on several GPUs counts as one on a GPU, from which copies are fast.
    """
    outside = np.array([op.role in ("argument", "capture") or entry_of(op.op_type).reads == "value" for op in ops], np.bool_)
    on_cpu = np.array([device.kind == "CPU" for device in machine.devices], np.bool_)
    allowed = constraints.allowed
    ordinary = allowed[:, on_cpu].any(axis=1) & (allowed[:, ~on_cpu].sum(axis=1) <= 1)
    of_cpu = [unpinned_factor(machine, task_of(device.name)) if device.kind == "CPU" else 1.0 for device in machine.devices]
    of_unit = np.where(allowed, of_cpu, 1.0).max(axis=1)
    factor = np.where(outside & ordinary[constraints.op_unit], of_unit[constraints.op_unit], 1.0)
    return np.rint(nbytes * factor[producer]).astype(np.int64)


def handle_of(graph: OpGraph, op: OpNode) -> str:
    """The producer of an op's first input, which is the handle where the op takes a variable."""
    return next((name for name, edge in graph.inputs_of(op.name) if edge.dst_index == 0), "")
