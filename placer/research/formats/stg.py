"""The text of the Standard Task Graph Set: a time and the predecessors of each task.

The first number is the number of tasks. Then a line for each task has its number, its time, the number of its predecessors, and
their numbers. A dummy task before all others and one after them are not counted. A unit of time is read as 1 ns. No task
passes data.

T. Tobita, H. Kasahara, A standard task graph set for fair evaluation of multiprocessor scheduling algorithms, Journal of
Scheduling 5(5), 2002, doi:10.1002/jos.116.
"""

from __future__ import annotations

import networkx as nx

from placer.research.formats.places import reading
from placer.research.formats.workflow import one_time_ns

NAME = "STG"
SUFFIX = ".stg"
HOLDS_MACHINE = False
EXPECTED = "The first line has the number of tasks, each other one a task, its time, the number of its predecessors, and these."


def read(content: bytes, source: str) -> tuple[nx.MultiDiGraph, None]:
    """The graph of tasks. Raises PlanError if it is no such text."""
    lines = [
        (number, line.split())
        for number, line in enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    rows: list[list[int]] = []
    for number, line in lines:
        with reading(f"{source}, line {number}", EXPECTED):
            rows.append([int(word) for word in line])
            if len(rows) > 1 and (len(line) < 3 or len(line) != 3 + rows[-1][2]):
                raise ValueError("the predecessors are not as many as it says")
    with reading(source, EXPECTED):
        (count,), *rows = rows
        if len(rows) not in (count, count + 2):
            raise ValueError(f"it has {len(rows)} tasks where its first line says {count}, or {count + 2} with dummy tasks")
        if count and len(rows) == count and not rows[0][1]:
            raise ValueError("the dummy task at its end is missing")
        dummies = {rows[0][0], rows[-1][0]} if len(rows) == count + 2 else set()
        dag = nx.MultiDiGraph()
        for task, time, *_ in rows:
            if f"task{task}" in dag:
                raise ValueError(f"two tasks have the number {task}")
            if task not in dummies:
                dag.add_node(f"task{task}", time_ns=time)
        for task, _, _, *listed in rows:
            edges = [(f"task{before}", f"task{task}") for before in listed if not dummies & {before, task}]
            if unknown := [a for a, _ in edges if a not in dag]:
                raise ValueError(f"task {task} has the predecessor {unknown[0].removeprefix('task')}, which is not in the file")
            dag.add_edges_from(edges, control=True)
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
