"""Scientific workflows: tasks that read and write files, as graphs of ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

NS_PER_S = 10**9


@dataclass
class Task:
    """A task, with the sizes of the files that it reads and writes in bytes, and the tasks that end before it."""

    name: str
    time_ns: Any
    """As the attribute of that name, see `PlacementProblem.from_networkx`."""
    workspace_bytes: int = 0
    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    parents: list[str] = field(default_factory=list)


def dag_of(tasks: Sequence[Task]) -> nx.MultiDiGraph:
    """The graph of tasks: a file that one task writes and others read is a tensor; other dependencies are control edges.

    Files that no task writes are there from the start, so they are left out.

    Raises ValueError if two tasks have one name, or a parent is no task.
    """
    dag = nx.MultiDiGraph()
    writer = {file: task for task in tasks for file in task.writes}
    for task in tasks:
        if task.name in dag:
            raise ValueError(f"two tasks are called {task.name!r}")
        workspace = {"workspace_bytes": task.workspace_bytes} if task.workspace_bytes else {}
        dag.add_node(task.name, time_ns=task.time_ns, **workspace)
    for task in tasks:
        for file in task.reads:
            if (source := writer.get(file)) is not None and source is not task:
                dag.add_edge(source.name, task.name, tensor=file, bytes=source.writes[file])
    for task in tasks:
        for parent in task.parents:
            if not dag.has_node(parent):
                raise ValueError(f"{parent!r}, the parent of {task.name!r}, is no task")
            if not dag.has_edge(parent, task.name):
                dag.add_edge(parent, task.name, control=True)
    return dag


def tasks_of(dag: nx.MultiDiGraph) -> list[Task]:
    """The tasks of a graph: each tensor is a file."""
    tasks: dict[str, Task] = {}
    for name, data in dag.nodes(data=True):
        workspace = data.get("workspace_bytes", 0)
        workspace = max(workspace.values(), default=0) if isinstance(workspace, Mapping) else workspace
        tasks[name] = Task(name, data["time_ns"], workspace)
    for a, b, data in dag.edges(data=True):
        tasks[b].parents += [a] if a not in tasks[b].parents else []
        if not data.get("control"):
            file = f"{a}:{data.get('tensor', 0)}"
            tasks[a].writes[file] = tasks[b].reads[file] = data.get("bytes", dag.nodes[a].get("output_bytes", 0))
    return list(tasks.values())


def one_time_ns(dag: nx.MultiDiGraph, name: str) -> int:
    """The time of an op for formats that have one time: that on the first of its devices."""
    time_ns: int | dict[str, int] = dag.nodes[name]["time_ns"]
    return next(iter(time_ns.values())) if isinstance(time_ns, dict) else time_ns
