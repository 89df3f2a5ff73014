"""When ops take and give back memory, and whose memory a result is in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from cost_models.ops import View, entry_of, view_of
from placer.graph.op_graph import OpNode
from placer.problem.arrays import Bools, Ints

GRAIN = 256
"""TensorFlow's GPU allocator gives multiples of so many bytes (kMinAllocationSize in its bfc_allocator.h)."""

T = TypeVar("T", int, Ints)


def lifetimes(
    ops: Sequence[OpNode], moment: Ints, tensor_op: Ints, tensor_output: Ints, kept: Bools, entries: Ints
) -> tuple[Ints, Bools]:
    """How long tensors are held for those that take them, [C], and which are in the memory of others, [T].

    See `Consumers.until` and `Tensors.shared`.

    Args:
        ops: [N]
        moment: [N], when each runs.
        tensor_op: [T], the op that makes each tensor.
        tensor_output: [T], as which of its outputs.
        kept: [T], held to the end of the step whoever takes it.
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

    def seen(op: int, t: int) -> list[int]:
        """The entries whose memory its result is in."""
        if views[op] is View.NONE:
            return []
        if views[op] is View.PARTS:
            return [c for c in takes[op] if at[c] == 0]
        same_size = [c for c in takes[op] if nbytes[of[c]] == nbytes[t]]
        return same_size if views[op] is View.ANY_INPUT else [c for c in same_size if at[c] == output[t]]

    order = np.argsort(moment).tolist()
    view = np.zeros(len(tensor_op), np.bool_)
    memory = list(range(len(tensor_op)))  # by the tensor that it was taken for
    whole = [True] * len(tensor_op)
    for op in order:
        for t in makes[op]:
            for c in seen(op, t)[:1]:
                view[t], memory[t], whole[t] = True, memory[of[c]], whole[of[c]] and views[op] is not View.PARTS
    for op in reversed(order):  # what takes a tensor before what makes it
        for t in makes[op]:
            last[t] = max([last[t], *until[start[t] : start[t + 1]]])
            for c in seen(op, t):
                until[c] = max(until[c], last[t])
        if entry_of(ops[op].op_type).in_place and ops[op].signature.outputs:
            made = ops[op].signature.outputs[0]
            taken = [memory[of[c]] for c in takes[op]]
            for c in takes[op]:
                given = ops[tensor_op[of[c]]].signature.outputs[output[of[c]]]
                same = (given.dtype, given.nbytes) == (made.dtype, made.nbytes)
                if same and whole[of[c]] and taken.count(memory[of[c]]) == 1:
                    until[c] -= 1
    return np.array(until, np.int64), view


def allocated(nbytes: T) -> T:
    """What so many bytes take of a GPU's memory."""
    return -(-nbytes // GRAIN) * GRAIN


def breadth_first(ops: int, src: Ints, dst: Ints) -> Ints:
    """[ops]: when TensorFlow's executor comes to each op, if one thread starts them all, as it does those of a GPU.

    It keeps a queue: what an op makes ready goes to its end (`ScheduleReady` in its executor.cc). A GPU's memory is taken and
    given back then, not when the op runs, since its stream keeps their order.
    """
    order = np.lexsort((dst, src))
    after, start = dst[order].tolist(), np.searchsorted(src[order], np.arange(ops + 1)).tolist()
    waits = np.bincount(dst, minlength=ops).tolist()
    queue = deque(op for op, n in enumerate(waits) if not n)
    moment = np.empty(ops, np.int64)
    for now in range(ops):
        op = queue.popleft()
        moment[op] = now
        for e in range(start[op], start[op + 1]):
            waits[after[e]] -= 1
            if not waits[after[e]]:
                queue.append(after[e])
    return moment
