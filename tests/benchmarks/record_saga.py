"""Records the makespans that SAGA's schedulers give on the graphs of `tests.helpers.task_graphs`, in tests/data/saga.json.

``pip install anrg.saga`` in an environment of its own, then ``PYTHONPATH=. PYTHON -m tests.benchmarks.record_saga`` with its
Python.

Where SAGA chooses between equals by the order of a Python set, that order is made to be the order of numbers: the names of
tasks and nodes are chosen for their hashes, and tasks and edges are sorted. WBA draws the first of its pairs. Each scheduler is
recorded as it is, and once more with `CORRECTIONS` where it departs from its paper.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
import types
from collections.abc import Iterable
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import networkx as nx
from saga import Network, NetworkEdge, NetworkNode, TaskGraph, TaskGraphNode  # type: ignore[import-not-found]
from saga import schedulers as of_saga

from tests.helpers import task_graphs as own

PATH = Path(__file__).parents[1] / "data" / "saga.json"
SCHEDULERS = {
    "bil": "BILScheduler",
    "cpop": "CpopScheduler",
    "dps": "DPSScheduler",
    "duplex": "DuplexScheduler",
    "fastest_node": "FastestNodeScheduler",
    "fcp": "FCPScheduler",
    "flb": "FLBScheduler",
    "gdl": "GDLScheduler",
    "hbmct": "HbmctScheduler",
    "heft": "HeftScheduler",
    "m_etf": "ETFScheduler",
    "max_min": "MaxMinScheduler",
    "mct": "MCTScheduler",
    "met": "METScheduler",
    "min_min": "MinMinScheduler",
    "msbc": "MsbcScheduler",
    "mst": "MSTScheduler",
    "olb": "OLBScheduler",
    "sufferage": "SufferageScheduler",
    "wba": "WBAScheduler",
}
"""The schedulers of SAGA, by their names here."""

BETWEEN = "[e for e in network.edges if e.source != e.target]"
MEAN_RATE = f"np.mean([e.speed for e in {BETWEEN}])"
BEFORE = "task_graph.get_task(task_graph_dependency.source).cost"
CORRECTIONS: dict[str, list[tuple[str, str]]] = {
    "cpop": [  # the mean copy is between two nodes; a way to a task ends with the time of the task before it, not with its own
        (r"for network_edge in network\.edges", f"for network_edge in {BETWEEN}"),
        (
            r"task\.cost\s*/ np\.mean\(\[neighbor\.speed for neighbor in network\.nodes\]\)",
            f"np.mean([{BEFORE} / n.speed for n in network.nodes])",
        ),
    ],
    "heft": [],  # uses a rank of cpop
    "dps": [  # a task whose node is open sends at the mean speed, not at speed 1
        (r"([TB]L) \+= (\w+)\.size\n", rf"\1 += np.mean([\2.size / e.speed for e in {BETWEEN}])\n"),
    ],
    "fcp": [  # the enabling node sends the last message; the last of the tasks before it may have run on another
        (
            r"key=lambda t: scheduled_tasks\[t\]\.end,",
            f"key=lambda t: scheduled_tasks[t].end + task_graph.get_dependency(t, task_name).size / {MEAN_RATE},",
        ),
    ],
    "flb": [  # a node that took a task is busy for all tasks; what remains of a heap must be made a heap again
        (r"(assert active_procs\.get)", r"all_procs.queue = sorted((getPRT(p), p) for _, p in all_procs.queue); \1"),
        (r"\.queue = \[(.*?)\]\n", r".queue = sorted([\1])\n"),
    ],
    "bil": [  # the number of nodes counts, not of tasks; the k-th shortest makespans of k ready tasks are compared
        (r"len\(ready_tasks\) / len\(list\(task_graph\.tasks\)\)", "len(bims) / len(network.nodes)"),
        (r"j = 0\n", "j = max(0, len(network.nodes) - len(bims))\n"),
    ],
    "gdl": [  # the highest level is best; a cost is the distance to the second best; medians are of a task; paths have no copies
        (r"return min\(\s*node_names,", "return max(node_names,"),
        (r"min\(candidate_tasks, key", "max(candidate_tasks, key"),
        (r"(task_name, other\) for other in node_names)\n(\s*\)\n\n)", r"\1 if other != preferred_node(task_name)\n\2"),
        (r"median_execution_time - execution_time", "median_execution_time_per_task[task.name] - execution_time"),
        (r"static_level\[out_edge\.target\] \+ out_edge\.size", "static_level[out_edge.target]"),
    ],
    "hbmct": [  # tasks of a node come in the order of their own starts; tasks of other nodes stay where they are
        (r"key=lambda task: est_table\[new_task_name\]", "key=lambda task: est_table[task]"),
        (r"for n in node_names:\n", "for n in (max_ft_node, min_ft_node):\n"),
    ],
    "etf": [  # of equals, the task with the lowest number
        (r"-> Set\[str\]:(.*?)return \{(.*?)\}\n", r"-> Set[str]:\1return sorted([\2])\n"),
    ],
}
"""By module of SAGA: patterns in its source, and what replaces them."""
USE_RANKS_OF = {"heft": ["cpop"], "hbmct": ["heft"]}
"""By module: those that it takes ranks from, which are corrected too."""


def corrected(module: str) -> types.ModuleType:
    """A module of SAGA with its corrections."""
    original = importlib.import_module(f"saga.schedulers.{module}")
    source = inspect.getsource(original)
    for pattern, replacement in CORRECTIONS[module]:
        source, count = re.subn(pattern, replacement, source, flags=re.DOTALL)
        assert count, f"{module} has no {pattern}"
    changed = types.ModuleType(f"corrected_{module}")
    changed.__file__ = str(original.__file__)
    exec(compile("import numpy as np\n" + source.replace("from __future__", "# "), changed.__name__, "exec"), changed.__dict__)
    for other in USE_RANKS_OF.get(module, []):
        for name, value in vars(corrected(other)).items():
            if callable(value) and not isinstance(value, type) and name in vars(changed):
                setattr(changed, name, value)
    return changed


def name_of(number: int) -> str:
    """A name whose hash gives it the place of its number in the table of a set."""
    return next(name for k in itertools.count() if hash(name := f"{number:03}.{k}") % 1024 == number)


class Ordered(TaskGraph):  # type: ignore[misc]
    """A task graph whose topological order, and whose order of edges, is that of the names."""

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from((task.name, {"weight": task.cost}) for task in sorted(self.tasks))
        graph.add_edges_from((edge.source, edge.target, {"weight": edge.size}) for edge in sorted(self.dependencies))
        return graph

    def topological_sort(self) -> list[TaskGraphNode]:
        return sorted(self.tasks)


def instances(graphs: Iterable[own.TaskGraph]) -> list[tuple[Network, TaskGraph]]:
    """The task graphs as SAGA has them."""
    made = []
    for graph in graphs:
        tasks, nodes = [name_of(k) for k in range(len(graph.work))], [name_of(d) for d in range(len(graph.speed))]
        links = [(a, b, float(graph.rate[i, j])) for (i, a), (j, b) in itertools.combinations(enumerate(nodes), 2)]
        network = Network.create(
            [NetworkNode(name=name, speed=float(speed)) for name, speed in zip(nodes, graph.speed, strict=True)],
            [NetworkEdge(source=a, target=b, speed=rate) for a, b, rate in links],
        )
        sent = [(tasks[a], tasks[b], float(nbytes)) for a, b, nbytes in graph.edges]
        made.append((network, Ordered.create(zip(tasks, map(float, graph.work), strict=True), sent)))
    return made


def makespans(scheduler: Any, pairs: list[tuple[Network, TaskGraph]]) -> list[int]:
    """In ns; 0 where the scheduler fails."""
    found = []
    for network, dag in pairs:
        try:
            makespan = scheduler.schedule(network, dag).makespan
        except KeyError:
            makespan = 0
        assert abs(makespan - round(makespan)) < 1e-6
        found.append(round(makespan))
    return found


def main() -> None:
    importlib.import_module("saga.schedulers.wba").random = types.SimpleNamespace(choice=lambda pairs: pairs[0])  # type: ignore
    graphs = instances(own.task_graphs(100))
    as_it_is, as_corrected = {}, {}
    for name, scheduler in SCHEDULERS.items():
        print(name, flush=True)
        module = getattr(of_saga, scheduler).__module__.rpartition(".")[2]
        as_it_is[name] = makespans(getattr(of_saga, scheduler)(), graphs)
        if module in CORRECTIONS:
            as_corrected[name] = makespans(getattr(corrected(module), scheduler)(), graphs)
    as_it_is["brute_force"] = makespans(of_saga.BruteForceScheduler(), instances(own.tiny_task_graphs(100)))
    content = {"saga": version("anrg.saga"), "as it is": as_it_is, "corrected": as_corrected}
    PATH.write_text(json.dumps(content).replace("], ", "],\n") + "\n")
    print(f"not recorded: {', '.join(sorted(set(of_saga.__all__) - set(SCHEDULERS.values()) - {'BruteForceScheduler'}))}")


if __name__ == "__main__":
    main()
