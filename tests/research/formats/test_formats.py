"""Problems as graphs and files: what is read is what was written, or the message names what is missing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import OptionError, PlanError
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.research.formats.differences import differences
from placer.research.formats.problem_file import fingerprint
from placer.research.formats.registry import FORMATS, PROBLEM, read_problem, write_problem
from placer.research.formats.xml_text import parse_xml
from tests.helpers.effort import EFFORT
from tests.helpers.random_problems import problems


def random_network(rng: np.random.Generator, *, plain: bool) -> nx.DiGraph:
    """Two or three devices. A plain network has what most formats hold: CPUs with one thread and no latency."""
    network = nx.DiGraph()
    for i in range(int(rng.integers(2, 4))):
        gpu = i > 0 and not plain and rng.random() < 0.7
        limit = {} if plain or rng.random() < 0.5 else {"memory_bytes": int(rng.integers(500, 2000))}
        network.add_node(f"{'GPU' if gpu else 'CPU'}:{i}", threads=1 if plain else int(rng.integers(1, 4)), **limit)
    for a, b in itertools.permutations(network, 2):
        network.add_edge(a, b, ns_per_byte=1.0 if plain else float(rng.random()))
        if not plain:
            network.edges[a, b]["latency_ns"] = int(rng.integers(300))
    return network


def random_dag(rng: np.random.Generator, devices: list[str], *, plain: bool) -> nx.MultiDiGraph:
    """Ops with some of the ten attributes; plain ones have a time that is equal on all devices, and data on edges."""
    dag = nx.MultiDiGraph()
    ops = int(rng.integers(1, 9))
    for i in range(ops):
        time: Any = int(rng.integers(1, 400)) * 1000
        data: dict[str, Any] = (
            {} if plain else {"output_bytes": int(rng.integers(100)), "persistent_bytes": int(rng.integers(50))}
        )
        if not plain and rng.random() < 0.6:
            time = {device: int(rng.integers(400)) for device in devices if device == devices[0] or rng.random() < 0.8}
        if not plain and rng.random() < 0.4:
            data |= {"group": f"group{rng.integers(2)}", "workspace_bytes": {devices[0]: int(rng.integers(40))}, "count": 2.5}
            least = min(time.values()) if isinstance(time, dict) else time
            share = min(50, least + 1)
            data |= {"dispatch_ns": int(rng.integers(share)), "compute_ns": {devices[-1]: int(rng.integers(share))}}
        dag.add_node(f"op <{i}> & co", time_ns=time, **data)
    names = list(dag)
    for a, b in itertools.combinations(names, 2):
        if rng.random() < 0.4:
            carried: Any = {"control": True} if rng.random() < 0.2 else {"bytes": int(rng.integers(1, 100))}
            if not plain and rng.random() < 0.5:
                carried = {} if rng.random() < 0.5 else {"tensor": f"{a} {rng.integers(2)}"}
            dag.add_edge(a, b, **carried)
    return dag


def step_and_cost(problem: PlacementProblem, device_of: dict[str, int]) -> tuple[int, int]:
    """Step time and total cost with the device of each op."""
    device = np.zeros(problem.num_units, np.int64)
    for name, unit in zip(problem.ops.names, problem.ops.unit.tolist(), strict=True):
        device[unit] = device_of[name]
    assignment = Assignment(device)
    return Simulator(problem).step_ns(assignment), total_cost_ns(problem, assignment)


def random_assignments(problem: PlacementProblem, rng: np.random.Generator) -> list[dict[str, int]]:
    """The device of each op in three random assignments."""
    units = [np.array([rng.choice(np.flatnonzero(row)) for row in problem.units.allowed]) for _ in range(3)]
    return [dict(zip(problem.ops.names, device[problem.ops.unit].tolist(), strict=True)) for device in units]


@settings(max_examples=25 * EFFORT, deadline=None)
@given(seed=st.integers(0, 2**32), plain=st.booleans(), suffix=st.sampled_from([PROBLEM, *FORMATS]))
def test_what_is_written_is_read_or_named(seed: int, plain: bool, suffix: str, tmp_path_factory: Any) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, plain=plain)
    problem = PlacementProblem.from_networkx(random_dag(rng, list(network), plain=plain), network)
    path = tmp_path_factory.mktemp("formats") / f"problem{suffix}"
    dropped = write_problem(problem, path)
    again = read_problem(path, None if suffix == PROBLEM or FORMATS[suffix].HOLDS_MACHINE else network)
    if suffix in (PROBLEM, ".graphml") or (plain and suffix in (".dax", ".wfcommons.json")):
        assert set(dropped) <= {"the devices and links"}
    if set(dropped) <= {"the devices and links"}:
        for device_of in random_assignments(problem, rng):
            assert step_and_cost(problem, device_of) == step_and_cost(again, device_of)
    # The second time nothing more is lost.
    second = path.with_name(f"again{suffix}")
    assert set(write_problem(again, second)) <= {"the devices and links", *differences(again, read_problem(second, network))}


@settings(max_examples=25 * EFFORT, deadline=None)
@given(problem=problems(), seed=st.integers(0, 99))
def test_any_problem_prices_alike_as_a_graph_unless_a_field_is_named(problem: PlacementProblem, seed: int) -> None:
    again = PlacementProblem.from_networkx(*problem.to_networkx())
    named = differences(problem, again)
    assert not differences(again, PlacementProblem.from_networkx(*again.to_networkx()))
    if not named:
        for device_of in random_assignments(problem, np.random.default_rng(seed)):
            assert step_and_cost(problem, device_of) == step_and_cost(again, device_of)


def small() -> nx.DiGraph:
    dag = nx.DiGraph()
    dag.add_node("a", time_ns=10, output_bytes=5)
    dag.add_node("b", time_ns={"CPU": 10, "GPU": 1})
    dag.add_edge("a", "b")
    return dag


NO_NUMBERS = (None, True, "x", -1, float("nan"), float("inf"), 2**60, [], np.ones(2))


@pytest.mark.parametrize(
    ("part", "attribute", "values", "allowed"),
    [
        *(
            ("a", name, NO_NUMBERS, "a number from 0 to 1.1e[+]15, or a mapping from devices or their kinds to numbers")
            for name in ("time_ns", "dispatch_ns", "compute_ns", "workspace_bytes")
        ),
        *(("a", name, NO_NUMBERS, "a number from 0 to 1.1e[+]15") for name in ("output_bytes", "persistent_bytes", "count")),
        ("a", "time_ns", ({"TPU": 3}, {1: 3}), "the devices and kinds are CPU:0, GPU:0, CPU, GPU"),
        ("b", "time_ns", ({"GPU": "fast"}, {"GPU": -1}), "a number from 0"),
        ("b", "time_ns", ({},), "allowed on no device"),
        ("a", "dispatch_ns", (20, {"GPU": 11}), "at most time_ns=10 on .PU:0"),
        ("a", "compute_ns", (20,), "at most time_ns=10 on CPU:0"),
        ("a", "count", (0,), "above 0"),
        ("a", "devices", (5, "", [], {"CPU": 1}, b"CPU"), "a list of devices or kinds of devices"),
        ("a", "devices", ("GPU:7", ["TPU"], [0]), "the devices and kinds are CPU:0, GPU:0, CPU, GPU"),
        ("a", "group", (5, True, None, ["g"]), "a text"),
        ("a", "output_byte", (5,), "output_bytes"),
        ("a", "bytes", (5,), "the attributes here are time_ns, "),
        ("ab", "bytes", NO_NUMBERS, "a number from 0 to 1.1e[+]15"),
        ("ab", "tensor", (5, True, None, ["t"]), "a text"),
        ("ab", "control", (1, "yes", None), "True or False"),
        ("ab", "tensors", ("t",), "tensor"),
    ],
)
def test_a_wrong_attribute_is_named_with_its_place_and_what_is_allowed(
    part: str, attribute: str, values: tuple[Any, ...], allowed: str
) -> None:
    where = f"node {part!r}" if len(part) == 1 else "edge 'a' -> 'b'"
    for value in values:
        dag = small()
        (dag.nodes[part] if len(part) == 1 else dag.edges["a", "b"])[attribute] = value
        with pytest.raises(OptionError, match=f"{where}.*{allowed}") as error:
            PlacementProblem.from_networkx(dag, "h100")
        assert attribute in str(error.value)


def test_wrong_edges_and_graphs_are_named() -> None:
    dag = small()
    dag.edges["a", "b"].update(control=True, bytes=5)
    with pytest.raises(OptionError, match="edge 'a' -> 'b': bytes=5 must be absent"):
        PlacementProblem.from_networkx(dag, "h100")
    dag = small()
    dag.add_edge("b", "a")
    with pytest.raises(OptionError, match="circle: 'a' -> 'b' -> 'a'"):
        PlacementProblem.from_networkx(dag, "h100")
    dag = small()
    nx.set_node_attributes(dag, "g", "group")
    dag.nodes["a"]["devices"], dag.nodes["b"]["devices"] = "CPU", "GPU"
    with pytest.raises(OptionError, match=r"group 'g' \(node 'a', node 'b'\) is allowed on no device"):
        PlacementProblem.from_networkx(dag, "h100")
    with pytest.raises(OptionError, match="no shipped machine is called 'h1000'"):
        PlacementProblem.from_networkx(small(), "h1000")
    dag = nx.DiGraph()
    dag.add_nodes_from([1, "1"], time_ns=1)
    with pytest.raises(OptionError, match="several nodes are called '1'"):
        PlacementProblem.from_networkx(dag, "h100")
    with pytest.raises(OptionError, match="the network is a MultiGraph"):
        PlacementProblem.from_networkx(small(), nx.MultiGraph([("CPU:0", "GPU:0")]))
    network = nx.Graph([("CPU:0", "GPU:0")])
    network.edges["CPU:0", "GPU:0"]["latency"] = 5
    with pytest.raises(OptionError, match=r"link 'CPU:0' -> 'GPU:0': latency .* latency_ns"):
        PlacementProblem.from_networkx(small(), network)
    network = nx.Graph([("CPU:0", "GPU:0")])
    network.add_node("GPU:1")
    with pytest.raises(OptionError, match="no link from 'CPU:0' to 'GPU:1'"):
        PlacementProblem.from_networkx(small(), network)


def test_an_output_is_one_tensor_and_edges_with_bytes_are_tensors_of_their_own() -> None:
    dag = nx.DiGraph()
    dag.add_nodes_from("abcd", time_ns=1, output_bytes=7)
    dag.add_edges_from(["ab", "ac"])
    dag.add_edge("a", "d", bytes=9)
    problem = PlacementProblem.from_networkx(dag, "h100")
    assert problem.tensors.nbytes.tolist() == [7, 9]
    assert problem.consumers.start.tolist() == [0, 2, 3]
    assert problem.ops.workspace_bytes[:, 0].tolist() == [0, 7, 7, 7]  # an output that no op takes is held while its op runs


WFCOMMONS_1_4 = {
    "name": "two tasks",
    "schemaVersion": "1.4",
    "workflow": {
        "tasks": [
            {
                "name": "first", "id": "t1", "runtimeInSeconds": 2.0, "parents": [], "machine": "fast",
                "files": [{"link": "output", "name": "f", "sizeInBytes": 3000}],
            },
            {
                "name": "second", "id": "t2", "runtimeInSeconds": 1.5, "parents": ["first"], "machine": "slow",
                "memoryInBytes": 64, "files": [{"link": "input", "name": "f", "sizeInBytes": 3000}],
            },
        ],
        "machines": [{"nodeName": "fast", "cpu": {"speedInMHz": 2000}}, {"nodeName": "slow", "cpu": {"speedInMHz": 1000}}],
    },
}  # fmt: skip

SAGA = {
    "name": "two tasks",
    "task_graph": {
        "tasks": [{"name": "A", "cost": 2.0}, {"name": "B", "cost": 1.0}],
        "dependencies": [{"source": "A", "target": "B", "size": 0.5}],
    },
    "network": {
        "nodes": [{"name": "n0", "speed": 1.0}, {"name": "n1", "speed": 2.0}],
        "edges": [
            {"source": "n0", "target": "n1", "speed": 0.25},
            {"source": "n0", "target": "n0", "speed": None},
            {"source": "n1", "target": "n1", "speed": None},
        ],
    },
}

DAX = """<?xml version="1.0"?>
<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="2.1">
  <job id="ID1" name="project" runtime="2.0"><uses file="f" link="output" size="3000"/></job>
  <job id="ID2" name="add" runtime="1.5"><uses file="f" link="input" size="3000"/><uses file="g" link="input" size="1"/></job>
  <child ref="ID2"><parent ref="ID1"/></child>
</adag>"""

STG = """ 2
 0 0 0
 1 5 1 0
 2 7 1 1
 3 0 1 2
# a comment
"""


def test_files_of_other_programs_mean_what_they_say(tmp_path: Path) -> None:
    texts = {"w.json": json.dumps(WFCOMMONS_1_4), "s.json": json.dumps(SAGA), "d.xml": DAX, "t.stg": STG}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    read = {name: read_problem(tmp_path / name) for name in texts}
    w, s, d, t = (read[name] for name in texts)
    assert w.devices.names == ("fast", "slow")
    assert (w.ops.time_ns / 1e9).tolist() == [[2.0, 4.0], [0.75, 1.5]]
    assert step_and_cost(w, {"t1": 0, "t2": 1})[0] == 3_500_003_000  # 3000 bytes at 1 GB/s
    assert step_and_cost(s, {"A": 1, "B": 1})[0] == 1_500_000_000
    assert step_and_cost(s, {"A": 1, "B": 0})[0] == 4_000_000_000  # 1 s, 0.5 units of data at 0.25, 1 s
    assert step_and_cost(d, {"ID1": 0, "ID2": 0})[0] == 3_500_000_000
    assert read_problem(tmp_path / "d.xml", processors=2).num_devices == 2
    assert t.ops.names == ("task1", "task2")
    assert step_and_cost(t, {"task1": 0, "task2": 3})[0] == 12


BOMB = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><adag>&c;</adag>'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.dax", BOMB, "document type"),
        ("a.graphml", BOMB, "document type"),
        ("a.dax", "<adag>" * 200, "elements inside each other"),
        ("a.dax", "", "not XML"),
        ("a.dax", "<x/>", "not <adag>"),
        ("a.dax", "<adag><job id='1'/></adag>", "job 1 has no 'runtime'"),
        ("a.dax", "<adag><job id='1' runtime='2'/><job id='1' runtime='2'/></adag>", "two tasks are called '1'"),
        ("a.dax", "<adag><job id='1' runtime='2'/><child ref='7'/></adag>", "child 1 .* no job '7'"),
        ("a.dax", "<adag><job id='1' runtime='inf'/></adag>", "job 1 .* infinity"),
        ("a.graphml", "<x/>", "no GraphML"),
        ("a.graphml", "<graphml", "not XML"),
        ("a.stg", "", "The first line has the number of tasks"),
        ("a.stg", "3\n1 2 0\n", "1 tasks where its first line says 3"),
        ("a.stg", "# two\n1\n1 2 1\n", "line 3 .* not as many"),
        ("a.stg", "1\n1 2 1 9\n", "predecessor 9, which is not in the file"),
        ("a.stg", "2\n1 5 0\n1 6 0\n", "two tasks have the number 1"),
        ("a.stg", "2\n0 0 0\n1 5 1 0\n", "the dummy task at its end is missing"),
        ("a.stg", "2\n1 5 1 2\n2 5 1 1\n", "circle: 'task1' -> 'task2' -> 'task1'"),
        ("a.saga.json", '{"task_graph": {}, "network": 3}', "has no 'tasks'. An instance of SAGA"),
        ("a.saga.json", json.dumps(SAGA).replace('"speed": 1.0', '"speed": 0'), "node 1 .*speed 0"),
        ("a.saga.json", json.dumps(SAGA).replace('"cost": 1.0', '"cost": null'), "task 2 cannot be read"),
        ("a.saga.json", json.dumps(SAGA).replace('"name": "B"', '"name": "A"'), "task 2 .*another task is called 'A'"),
        ("a.saga.json", json.dumps(SAGA).replace('"target": "B"', '"target": "C"'), "dependency 1 .* no task 'C'"),
        ("a.saga.json", json.dumps(SAGA).replace("0.5", str(10**400)), "edge 'A' -> 'B': bytes=10.*0 must be a number"),
        ("a.wfcommons.json", '{"workflow": [], "schemaVersion": 1}', "A workflow has a specification"),
        ("a.wfcommons.json", json.dumps(WFCOMMONS_1_4).replace('["first"]', '["last"]'), "task 't2' .*no task 'last'"),
        ("a.wfcommons.json", json.dumps(WFCOMMONS_1_4).replace("1.5,", '"long",'), "task 't2' .*could not convert .*'long'"),
        ("a.wfcommons.json", json.dumps(WFCOMMONS_1_4).replace('"t2"', '"t1"'), "two tasks are called 't1'"),
        ("a.wfcommons.json", json.dumps(WFCOMMONS_1_4).replace("2000", "-2000"), "machines .*'fast' has the speed -2000"),
        ("a.wfcommons.json", "[" * 1000, "brackets inside each other"),
        ("a.wfcommons.json", '{"workflow', "Was it written whole"),
        ("a.npz", "", "not a problem"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PlanError, match=message) as error:
        read_problem(tmp_path / name)
    assert name in str(error.value)


@settings(max_examples=30 * EFFORT, deadline=None)
@given(data=st.data(), suffix=st.sampled_from(list(FORMATS)))
def test_a_damaged_file_is_refused_or_read(data: st.DataObject, suffix: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("damaged") / f"a{suffix}"
    write_problem(PlacementProblem.from_networkx(small(), "h100"), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.sampled_from([b"", b"-", b"9", b"e", b'"', b"<", b"\xff", b" "])
        )
    path.write_bytes(bytes(content))
    try:
        fingerprint(read_problem(path))
    except PlanError as error:
        assert path.name in str(error)  # noqa: PT017


def test_xml_keeps_ordinary_entities() -> None:
    assert parse_xml(b"<a>&lt;&amp;&#65;</a>", "text").text == "<&A"
