"""WfCommons: the JSON of workflow executions, versions 1.3 to 1.5; 1.5 is written.

A task takes the time of its execution, in proportion to the speed of its machine where the file has speeds. The memory of a task
is its workspace. The file has no network, so links have `DEFAULT_NS_PER_BYTE`.

T. Coleman, H. Casanova, L. Pottier, M. Kaushik, E. Deelman, R. Ferreira da Silva, WfCommons: a framework for enabling scientific
workflow research and development, Future Generation Computer Systems 128, 2022, doi:10.1016/j.future.2021.09.043.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import networkx as nx

from cost_models.documents import parse_json
from placer.research.formats.network import equal_links
from placer.research.formats.places import reading
from placer.research.formats.workflow import NS_PER_S, Task, dag_of, one_time_ns, tasks_of

T = TypeVar("T")

NAME = "WfCommons"
SUFFIX = ".wfcommons.json"
HOLDS_MACHINE = True
EXPECTED = "A workflow has a specification with tasks and files, whose sizes are in sizeInBytes, and an execution with tasks."
TASK = "A task has an id, parents, inputFiles and outputFiles, which are ids, and in the execution a runtimeInSeconds."
_SPEED = 1000.0
"""In MHz: the speed that is written for the first machine."""


def recognises(document: Any) -> bool:
    """Whether a JSON document is in this format."""
    return isinstance(document, dict) and "workflow" in document and "schemaVersion" in document


def read(content: bytes, source: str) -> tuple[nx.MultiDiGraph, nx.DiGraph | None]:
    """The graph of tasks; and the graph of machines, if the file has some. Raises PlanError if it is not in this format."""
    document = parse_json(content, source)
    with reading(source, EXPECTED):
        workflow = document["workflow"]
        ran: dict[str, Mapping[str, Any]] = {}
        machines: Sequence[Mapping[str, Any]] = workflow.get("machines", ())
        tasks, sizes = workflow.get("tasks", ()), {}
        if "specification" in workflow:
            specification, execution = workflow["specification"], workflow.get("execution", {})
            tasks = specification["tasks"]
            sizes = {file["id"]: _size(file) for file in specification.get("files", ())}
            ran = {task["id"]: task for task in execution.get("tasks", ())}
            machines = execution.get("machines", ())
        names = {id_: str(task.get("id", task["name"])) for task in tasks for id_ in (task["name"], task.get("id", task["name"]))}
    with reading(f"{source}, machines", "A machine has a nodeName and a cpu with a speedInMHz and a coreCount."):
        speeds = {m["nodeName"]: float(m.get("cpu", {}).get("speedInMHz", m.get("cpu", {}).get("speed", 0))) for m in machines}
        if slow := [name for name, speed in speeds.items() if not speed >= 0]:
            raise ValueError(f"{slow[0]!r} has the speed {speeds[slow[0]]}")
        network = _network(machines) if machines else None
    read_tasks = []
    for task in tasks:
        with reading(f"{source}, task {names[task['name']]!r}", TASK):
            read_tasks.append(_task(dict(task) | dict(ran.get(task.get("id", ""), {})), names, sizes, speeds))
    with reading(source, "Each task has an id of its own."):
        return dag_of(read_tasks), network


def _task(row: Mapping[str, Any], names: Mapping[str, str], sizes: Mapping[str, int], speeds: Mapping[str, float]) -> Task:
    runtime_ns = NS_PER_S * float(row["runtime"] if "runtime" in row else row["runtimeInSeconds"])
    machine = str(next(iter(row.get("machines", ())), row.get("machine", "")))
    time_ns: Any = round(runtime_ns)
    if speeds.get(machine) and all(speeds.values()):
        time_ns = {name: round(runtime_ns * speeds[machine] / speed) for name, speed in speeds.items()}
    task = Task(names[row.get("id", row["name"])], time_ns, int(row.get("memoryInBytes", 0)))
    task.reads = {file: _known("file", file, sizes) for file in row.get("inputFiles", ())}
    task.writes = {file: _known("file", file, sizes) for file in row.get("outputFiles", ())}
    for file in row.get("files", ()):
        files = task.writes if file["link"] == "output" else task.reads
        files[file.get("id", file.get("name"))] = _size(file)
    task.parents = [_known("task", parent, names) for parent in row.get("parents", ())]
    return task


def _known(kind: str, name: str, known: Mapping[str, T]) -> T:
    """What is known by a name. Raises ValueError if nothing is."""
    if name not in known:
        raise ValueError(f"there is no {kind} {name!r}")
    return known[name]


def _size(file: Mapping[str, Any]) -> int:
    return int(file["size"] if "size" in file else file["sizeInBytes"])


def _network(machines: Sequence[Mapping[str, Any]]) -> nx.DiGraph:
    network = nx.DiGraph()
    for machine in machines:
        memory = {"memory_bytes": int(machine["memoryInBytes"])} if machine.get("memoryInBytes") else {}
        cpu = machine.get("cpu", {})
        network.add_node(machine["nodeName"], threads=int(cpu.get("coreCount", cpu.get("count", 1))), **memory)
    return equal_links(network)


def write(dag: nx.MultiDiGraph, network: nx.DiGraph) -> bytes:
    """The text of a file."""
    tasks, time = tasks_of(dag), {name: dag.nodes[name]["time_ns"] for name in dag}
    sizes = {file: size for task in tasks for file, size in task.writes.items()}
    children: dict[str, list[str]] = {task.name: [] for task in tasks}
    for task in tasks:
        for parent in task.parents:
            children[parent].append(task.name)
    speeds = _speeds(list(time.values()), list(network))
    execution = {
        "makespanInSeconds": 0,
        "executedAt": "1970-01-01T00:00:00Z",
        "tasks": [
            {
                "id": task.name,
                "runtimeInSeconds": one_time_ns(dag, task.name) / NS_PER_S,
                **({"memoryInBytes": task.workspace_bytes} if task.workspace_bytes else {}),
                "machines": [next(iter(time[task.name])) if isinstance(time[task.name], dict) else next(iter(network))],
            }
            for task in tasks
        ],
        "machines": [
            {
                "nodeName": name,
                **({"memoryInBytes": data["memory_bytes"]} if "memory_bytes" in data else {}),
                "cpu": {"coreCount": data.get("threads", 1), "speedInMHz": speeds[name]},
            }
            for name, data in network.nodes(data=True)
        ],
    }
    specification = {
        "tasks": [
            {
                "name": task.name,
                "id": task.name,
                "parents": task.parents,
                "children": children[task.name],
                "inputFiles": list(task.reads),
                "outputFiles": list(task.writes),
            }
            for task in tasks
        ],
        "files": [{"id": file, "sizeInBytes": size} for file, size in sizes.items()],
    }
    workflow = {"specification": specification, "execution": execution}
    return json.dumps({"name": "placer", "schemaVersion": "1.5", "workflow": workflow}, indent=1).encode()


def _speeds(times: Sequence[Any], devices: Sequence[str]) -> dict[str, float]:
    """The speed of each device by the tasks that may be on it and on the first one."""
    speeds = {}
    for device in devices:
        both = [row for row in times if isinstance(row, dict) and {device, devices[0]} <= row.keys()]
        own, first = sum(row[device] for row in both), sum(row[devices[0]] for row in both)
        speeds[device] = _SPEED * first / own if own and first else _SPEED
    return speeds
