"""When ops take and give back memory, and which results are in the memory of other tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from cost_models.ops import View, entry_of, view_of
from placer.graph.op_graph import OpNode
from placer.problem.arrays import Bools, Ints

GRAIN = 256
"""TensorFlow's GPU allocator rounds sizes up to multiples of this number of bytes (kMinAllocationSize in its bfc_allocator.h)."""

T = TypeVar("T", int, Ints)


def lifetimes(
    ops: Sequence[OpNode], moment: Ints, tensor_op: Ints, tensor_output: Ints, kept: Bools, entries: Ints
) -> tuple[Ints, Bools]:
    """Until when tensors are held for their consumers, [C], and which tensors are in the memory of others, [T].

    See `Consumers.until` and `Tensors.shared`.

    Args:
        ops: [N]
        moment: [N], when each op runs.
        tensor_op: [T], the producer of each tensor.
        tensor_output: [T], which of the producer's outputs it is.
        kept: [T], whether it is held to the end of the step in any case.
        entries: [C, 3], tensor, consumer and input index, by tensor.
    """
    tensor, consumer, position = entries.T
    nbytes = [ops[op].signature.outputs[k].nbytes for op, k in zip(tensor_op.tolist(), tensor_output.tolist(), strict=True)]
    takes: list[list[int]] = [[] for _ in ops]
    for c, op in enumerate(consumer.tolist()):
        takes[op].append(c)
    makes: list[list[int]] = [[] for _ in ops]
    for t, op in enumerate(tensor_op.tolist()):
        makes[op].append(t)

    until: list[int] = moment[consumer].tolist()
    last = np.where(kept, len(ops) - 1, moment[tensor_op]).tolist()
    start = np.searchsorted(tensor, np.arange(len(tensor_op) + 1)).tolist()
    of, at, output = tensor.tolist(), position.tolist(), tensor_output.tolist()
    views = [view_of(op.signature) for op in ops]

    def viewed(op: int, t: int) -> list[int]:
        """The entries whose memory the result t of an op is in."""
        if views[op] is View.NONE:
            return []
        if views[op] is View.PARTS:
            return [c for c in takes[op] if at[c] == 0]
        same_size = [c for c in takes[op] if nbytes[of[c]] == nbytes[t]]
        return same_size if views[op] is View.ANY_INPUT else [c for c in same_size if at[c] == output[t]]

    order = np.argsort(moment).tolist()
    view = np.zeros(len(tensor_op), np.bool_)
    memory = list(range(len(tensor_op)))  # of each tensor: the tensor for which its memory was taken
    whole = [True] * len(tensor_op)
    for op in order:
        for t in makes[op]:
            for c in viewed(op, t)[:1]:
                view[t], memory[t], whole[t] = True, memory[of[c]], whole[of[c]] and views[op] is not View.PARTS
    for op in reversed(order):  # consumers before producers
        for t in makes[op]:
            last[t] = max([last[t], *until[start[t] : start[t + 1]]])
            for c in viewed(op, t):
                until[c] = max(until[c], last[t])
        if entry_of(ops[op].op_type).in_place and ops[op].signature.outputs:
            out_spec = ops[op].signature.outputs[0]
            input_memory = [memory[of[c]] for c in takes[op]]
            for c in takes[op]:
                in_spec = ops[tensor_op[of[c]]].signature.outputs[output[of[c]]]
                same = (in_spec.dtype, in_spec.nbytes) == (out_spec.dtype, out_spec.nbytes)
                if same and whole[of[c]] and input_memory.count(memory[of[c]]) == 1:
                    until[c] -= 1
    return np.array(until, np.int64), view


def allocated(nbytes: T) -> T:
    """The bytes that a tensor of this size takes of a GPU's memory."""
    return -(-nbytes // GRAIN) * GRAIN


def breadth_first(ops: int, src: Ints, dst: Ints) -> Ints:
    """[ops]: the position of each op in the order in which TensorFlow's executor starts them, if one thread starts all.

    One thread starts the ops of a GPU. The executor keeps a queue and appends the ops that become ready (`ScheduleReady` in its
    executor.cc). Memory of a GPU is taken and given back when an op starts, not when it runs, since the stream keeps the order.
    """
    order = np.lexsort((dst, src))
    after, start = dst[order].tolist(), np.searchsorted(src[order], np.arange(ops + 1)).tolist()
    waits = np.bincount(dst, minlength=ops).tolist()
    queue = deque(op for op, n in enumerate(waits) if not n)
    moment = np.empty(ops, np.int64)
    for position in range(ops):
        op = queue.popleft()
        moment[op] = position
        for e in range(start[op], start[op + 1]):
            waits[after[e]] -= 1
            if not waits[after[e]]:
                queue.append(after[e])
    return moment
