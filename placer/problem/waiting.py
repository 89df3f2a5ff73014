"""Control edges that are left when a function runs."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Bools, Ints


def left_waiting(ops: int, data: Ints, control: Ints, joins: Bools) -> Ints:
    """The control edges that TensorFlow's dependency optimizer leaves, of ops in topological order.

    A `NoOp` goes where that adds no edge, what it waited for being waited for by what waited for it. Then goes what a longer way
    implies: a transitive reduction (Aho, Garey, Ullman 1972). See tensorflow/core/grappler/optimizers/dependency_optimizer.cc,
    which looks at devices too: it keeps a `NoOp` that would have more edges cross.

    Args:
        ops: how many, N.
        data: [E, 2]: producers and consumers.
        control: [K, 2]
        joins: [N]: which ops are a `NoOp`.

    Returns:
        [K', 2], in order.
    """
    before: dict[int, set[int]] = {}
    after: dict[int, set[int]] = {}
    for src, dst in control.tolist():
        before.setdefault(dst, set()).add(src)
        after.setdefault(src, set()).add(dst)
    for op in np.flatnonzero(joins).tolist():
        ins, outs = before.get(op, set()), after.get(op, set())
        if len(ins) * len(outs) <= len(ins) + len(outs):
            for src in ins:
                after[src] = after[src] - {op} | outs
            for dst in outs:
                before[dst] = before[dst] - {op} | ins
            before[op], after[op] = set(), set()

    bit = {src: 1 << k for k, src in enumerate(sorted(src for src, targets in after.items() if targets))}
    fed: list[set[int]] = [set() for _ in range(ops)]
    for src, dst in np.unique(data.reshape(-1, 2), axis=0).tolist():
        fed[dst].add(src)
    reached = [0] * ops  # by op: which of those that others wait for come before it
    kept = []
    for op in range(ops):
        for src in fed[op]:
            reached[op] |= reached[src] | bit.get(src, 0)
        waits = before.get(op, ())
        for src in waits:
            reached[op] |= reached[src]
        kept += [(src, op) for src in waits if not reached[op] & bit[src]]
        for src in waits:
            reached[op] |= bit[src]
    return np.array(sorted(kept), np.int64).reshape(-1, 2)
