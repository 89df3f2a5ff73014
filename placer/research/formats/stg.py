"""The text of the Standard Task Graph Set: a time and the predecessors of each task.

The first number is the number of tasks. Then a line for each task has its number, its time, the number of its predecessors, and
their numbers. A dummy task before all others and one after them are not counted. A unit of time is read as 1 ns. No task
passes data.

T. Tobita, H. Kasahara, A standard task graph set for fair evaluation of multiprocessor scheduling algorithms, Journal of
Scheduling 5(5), 2002, doi:10.1002/jos.116.
"""

from __future__ import annotations

import networkx as nx

from placer.errors import PlanError
from placer.research.formats.workflow import one_time_ns

NAME = "STG"
SUFFIX = ".stg"
HOLDS_MACHINE = False


def read(content: bytes, source: str) -> tuple[nx.MultiDiGraph, None]:
    """The graph of tasks. Raises PlanError if it is no such text."""
    lines = [
        line.split() for line in content.decode("utf-8", "replace").splitlines() if line.strip() and not line.startswith("#")
    ]
    try:
        (count,), *rows = [[int(word) for word in line] for line in lines]
        if len(rows) not in (count, count + 2):
            raise PlanError(f"{source} has {len(rows)} tasks where its first line says {count}, or {count + 2} with dummy tasks.")
        dummies = {rows[0][0], rows[-1][0]} if len(rows) == count + 2 else set()
        dag = nx.MultiDiGraph()
        for task, time, predecessors, *listed in rows:
            if len(listed) != predecessors:
                raise PlanError(f"{source}: task {task} lists {len(listed)} predecessors and says {predecessors}.")
            if task not in dummies:
                dag.add_node(f"task{task}", time_ns=time)
        for task, _, _, *listed in rows:
            edges = [(f"task{before}", f"task{task}") for before in listed if not dummies & {before, task}]
            if unknown := [a for a, _ in edges if a not in dag]:
                raise PlanError(f"{source}: task {task} has the predecessor {unknown[0]}, which is not in the file.")
            dag.add_edges_from(edges, control=True)
    except (ValueError, IndexError) as error:
        raise PlanError(f"{source} is not in the format of STG: {error}.") from error
    return dag, None


def write(dag: nx.MultiDiGraph, network: nx.DiGraph) -> bytes:
    """The text of a file."""
    number = {name: k for k, name in enumerate(dag, 1)}
    before: dict[str, list[int]] = {name: sorted({number[a] for a in dag.predecessors(name)}) for name in dag}
    last = [number[name] for name in dag if not dag.out_degree(name)]
    rows = [(0, 0, 0), *((number[n], one_time_ns(dag, n), max(1, len(p)), *(p or [0])) for n, p in before.items())]
    rows.append((len(dag) + 1, 0, len(last), *last))
    text = "\n".join(" ".join(f"{value:7d}" for value in row) for row in rows)
    return f"{len(dag):7d}\n{text}\n".encode()
