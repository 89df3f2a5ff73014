"""Control-edge reduction: the control edges that TensorFlow's optimizer keeps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placer.problem.arrays import Bools, Ints


def reduced_control_edges(ops: int, data: Ints, control: Ints, joins: Bools) -> Ints:
    """The control edges that TensorFlow's dependency optimizer keeps, of ops in topological order.

    An edge into a `NoOp` goes if all successors of the `NoOp` come after its source in any case; a `NoOp` without such edges goes
    too. Then each edge that a longer path implies goes: a transitive reduction (Aho, Garey, Ullman 1972). See
    dependency_optimizer.cc in tensorflow/core/grappler/optimizers: it bypasses a `NoOp` with i edges in and o edges out if i*o <=
    i+o and no more edges cross devices.

    Args:
        ops: the number of ops, N.
        data: [E, 2]: producers and consumers.
        control: [K, 2]
        joins: [N]: which ops are a `NoOp`.

    Returns:
        [K', 2], in order.
    """
    fed: list[set[int]] = [set() for _ in range(ops)]
    for src, dst in np.unique(data.reshape(-1, 2), axis=0).tolist():
        fed[dst].add(src)
    bit = {src: 1 << k for k, src in enumerate(np.unique(control[:, 0]).tolist())}
    before = _by_target(control)

    joined = joins[control].any(axis=1)
    apart = _reached(fed, _by_target(control[~joined]), bit)
    after: dict[int, list[int]] = {}
    for src, dst in control[joined].tolist():
        after.setdefault(src, []).append(dst)
    for op in np.flatnonzero(joins).tolist():
        ins, outs = before.get(op, set()), after.get(op, [])
        if len(ins) * len(outs) > len(ins) + len(outs):
            continue
        before[op] = {src for src in ins if not all(apart[dst] & bit[src] for dst in outs)}
        if not before[op]:
            for dst in outs:
                before[dst].discard(op)

    implied = _reached(fed, before, bit, direct=False)
    edges = [(src, dst) for dst, waits in before.items() for src in waits if not implied[dst] & bit[src]]
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def _by_target(edges: Ints) -> dict[int, set[int]]:
    sources: dict[int, set[int]] = {}
    for src, dst in edges.tolist():
        sources.setdefault(dst, set()).add(src)
    return sources


def _reached(fed: list[set[int]], before: Mapping[int, set[int]], bit: Mapping[int, int], *, direct: bool = True) -> list[int]:
    """By op: the bits of the ops that come before it. Without `direct`, an op's own control edges do not count: only data edges
    and longer paths do.
    """
    reached, implied = [0] * len(fed), [0] * len(fed)
    for op, makers in enumerate(fed):
        for src in makers:
            implied[op] |= reached[src] | bit.get(src, 0)
        waits = before.get(op, ())
        for src in waits:
            implied[op] |= reached[src]
        reached[op] = implied[op]
        for src in waits:
            reached[op] |= bit[src]
    return reached if direct else implied
