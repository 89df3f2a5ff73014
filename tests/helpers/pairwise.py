"""Small pairwise problems, and all ways to choose."""

from __future__ import annotations

import itertools

import numpy as np

from placer.research.pairwise.problem import FORBIDDEN, PairwiseProblem, pairwise_cost, peak_usage


def random_pairwise(seed: int, *, nodes: int = 7, edges: int | None = None, room: float = 0.5) -> PairwiseProblem:
    """A few choices for each node; some edges mean "the same", others forbid some pairs or none, a few join the same nodes again.

    There are three edges for two nodes if not said. `room` is where the limit lies between the least peak that choices node by
    node can have, at 0, and the largest.
    """
    rng = np.random.default_rng(seed)
    count = rng.integers(1, 5, nodes)
    joined, tables = [], []
    for _ in range(nodes * 3 // 2 if edges is None else edges):
        a, b = rng.choice(nodes, 2, replace=False).tolist()
        shape = int(count[a]), int(count[b])
        table = rng.integers(0, 30, shape)
        kind = rng.integers(4)
        if kind == 0:
            table[rng.permuted(np.tile(np.arange(shape[1]) > 0, (shape[0], 1)), axis=1)] = FORBIDDEN
        elif kind == 1:
            table[rng.random(shape) < 0.3] = FORBIDDEN
        joined.append((a, b))
        tables.append(table.ravel())
    cost, usage = rng.integers(0, 30, count.sum()), rng.integers(0, 10, count.sum())
    cost[rng.random(len(cost)) < 0.05] = FORBIDDEN
    begin = rng.integers(0, 8, nodes)
    start = np.append(0, np.cumsum(count))
    problem = PairwiseProblem(
        name=f"random {seed}",
        usage_limit=0,
        choice_start=start,
        choice_cost=cost,
        choice_usage=usage,
        node_interval=np.stack([begin, begin + rng.integers(0, 6, nodes)], axis=1),
        edge_nodes=np.array(joined, np.int64).reshape(-1, 2),
        edge_start=np.append(0, np.cumsum([len(table) for table in tables], dtype=np.int64)),
        edge_cost=np.concatenate([np.zeros(0, np.int64), *tables]),
    )
    least, most = (
        peak_usage(problem, np.array([int(of(usage[a:b])) for a, b in itertools.pairwise(start)]))
        for of in (np.argmin, np.argmax)
    )
    return limited(problem, least + int(room * (most - least)))


def limited(problem: PairwiseProblem, usage_limit: int) -> PairwiseProblem:
    return PairwiseProblem(**{**vars_of(problem), "usage_limit": usage_limit})


def vars_of(problem: PairwiseProblem) -> dict[str, object]:
    return {name: getattr(problem, name) for name in PairwiseProblem.__dataclass_fields__}


def optimum(problem: PairwiseProblem) -> int | None:
    """The least cost of all choices that are allowed and fit; None where there are none."""
    options = itertools.product(*(range(count) for count in problem.choices.tolist()))
    found = (np.array(choice, np.int64) for choice in options)
    costs = (pairwise_cost(problem, choice) for choice in found if peak_usage(problem, choice) <= problem.usage_limit)
    return min((cost for cost in costs if cost < FORBIDDEN), default=None)
