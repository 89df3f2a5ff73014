"""The instances of the ASPLOS 2025 contest on intra-operator parallelism (github.com/google/iopddl)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from cost_models.documents import read_json
from placer.errors import PlanError
from placer.problem.arrays import Ints
from placer.research.pairwise.problem import PairwiseProblem


def load_pairwise(path: str | Path) -> PairwiseProblem:
    """Reads an instance of the contest, ``.json`` or ``.json.gz``.

    Raises:
        PlanError: the file is not such an instance.
    """
    try:
        stated = read_json(path)["problem"]
        nodes, edges = stated["nodes"], stated["edges"]
        choice_start, choice_cost = _flat(nodes["costs"])
        edge_start, edge_cost = _flat(edges["costs"])
        return PairwiseProblem(
            name=stated["name"],
            usage_limit=int(stated["usage_limit"]),
            choice_start=choice_start,
            choice_cost=choice_cost,
            choice_usage=_flat(nodes["usages"])[1],
            node_interval=np.array(nodes["intervals"], np.int64).reshape(-1, 2),
            edge_nodes=np.array(edges["nodes"], np.int64).reshape(-1, 2),
            edge_start=edge_start,
            edge_cost=edge_cost,
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise PlanError(
            f"{path} is not a problem in the format of iopddl: {type(error).__name__}: {error}. A file has a problem with "
            "name, usage_limit, nodes with intervals, costs and usages, and edges with nodes and costs."
        ) from error


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """The start of each list and the end of the last; and all entries, flat."""
    start = np.append(0, np.cumsum([len(entries) for entries in lists], dtype=np.int64))
    return start, np.fromiter(chain.from_iterable(lists), np.int64, count=int(start[-1]))
