"""Op graphs: kept on disk, recognised again, looked things up in."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import OptionError, PlanError
from placer.graph.op_graph import OpGraph
from tests.helpers.graphs import GraphBuilder, floats, layers, loop_then_wide, towers, with_op

GRAPHS = [layers(), loop_then_wide(), towers()]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_a_graph_comes_back_from_disk_as_it_was(graph: OpGraph, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    graph.save(path)
    loaded = OpGraph.load(path)
    assert list(loaded) == list(graph)
    assert list(loaded.graph.edges(data=True)) == list(graph.graph.edges(data=True))
    assert loaded == graph
    assert hash(loaded) == hash(graph)
    assert loaded != replace(graph, process_devices=("CPU:0", "CPU:1"))


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"location": "GPU:0"}, True),
        ({"kernels": {}}, True),
        ({"requested_device": "/GPU:0"}, True),
        ({"role": "capture"}, False),
        ({"signature": layers(width=65).op("x").signature}, False),
    ],
)
def test_the_fingerprint_is_of_what_is_computed_not_of_where(changes: dict[str, Any], same: bool) -> None:
    graph = layers()
    assert layers().fingerprint == graph.fingerprint
    assert (with_op(graph, "x", **changes).fingerprint == graph.fingerprint) is same


def test_the_fingerprint_sees_edges_and_results() -> None:
    def swapped(a: str, b: str, result: str) -> str:
        builder = GraphBuilder()
        builder.argument("x", floats(4))
        builder.argument("y", floats(4))
        builder.op("z", "Sub", [a, b])
        return builder.build(result).fingerprint

    assert len({swapped("x", "y", "z"), swapped("y", "x", "z"), swapped("x", "y", "x"), swapped("x", "x", "z")}) == 4


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d.update(version=99), "version 99"),
        (lambda d: d.update(format="onnx"), "'onnx'"),
        (lambda d: d["nodes"].pop(), "broken graph"),
        (lambda d: d["edges"].pop(), "changed after it was saved"),
        (lambda d: d.pop("kernels"), "broken graph.*kernels"),
        (lambda d: d["nodes"][0].update(name="^x"), "broken graph"),
    ],
)
def test_broken_files_are_told_apart(edit: Any, words: str, tmp_path: Path) -> None:
    data = layers().to_json()
    edit(data)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match=words) as error:
        OpGraph.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), ("{", "not JSON"), ("[1]", "list")])
def test_files_that_hold_no_graph(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanError, match=words):
        OpGraph.load(path)


def test_find() -> None:
    graph = towers()
    assert graph.find("left/dense0/MatMul").name == "left/dense0/MatMul"
    assert graph.find("hash3").name == "front/hash3"
    assert graph.find("*scores").name == "head/scores"
    assert graph.find("Unique").name == "head/unique"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MatMul", r"12 ops.*left/dense0/MatMul"),
        ("ConcatV2", r"2 ops.*front/concat, head/concat\. Give"),
        ("head/scoers", r"did you mean .*head/scores"),
        ("HEAD/Concat", r"did you mean head/concat\?"),
        ("Relu_7", r"list\(placement\.ops\) has its \d+ names"),
        ("HASH1", r"did you mean front/hash1\?"),
        ("DENSE1/matmul", r"did you mean left/dense1/MatMul, right/dense1/MatMul\?"),
    ],
)
def test_a_name_that_is_none_or_many_is_answered_with_names(name: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        towers().find(name)


def test_near_names_come_nearest_first() -> None:
    b = GraphBuilder()
    for name in ("Conv2D_30", "block/Conv2D_3", "Conv2D_3"):
        b.op(name, "Conv2D")
    assert b.build("Conv2D_3").did_you_mean("conv2d_3") == "; did you mean Conv2D_3, block/Conv2D_3, Conv2D_30?"


@pytest.mark.parametrize(
    ("name", "pin", "near"),
    [
        ("MatMull", False, [f"{side}/dense{k}/MatMul" for side in ("left", "right") for k in range(6)][:5]),
        ("left/dense1/MatMull", False, ["left/dense1/MatMul"]),
        ("dense1/MatMull", False, ["left/dense1/MatMul", "right/dense1/MatMul"]),
        ("densse1", False, ["left/dense1/kernel"]),
        ("PartitionedCall/model/left/dense1/MatMul", False, ["left/dense1/MatMul"]),
        ("left/dense1/kernel:0", False, ["left/dense1/kernel"]),
        ("Matmull", True, ["MatMul"]),
        ("rihgt/*", True, ["right/*"]),
        ("left/dense_1", True, ["left/dense1/*"]),
        ("left/dence1/*", True, ["left/dense1/*"]),
        ("nothing_like_it", True, []),
        ("***", True, []),
    ],
)
def test_names_are_guessed_by_what_they_end_in_and_pins_by_scope_and_type_too(name: str, pin: bool, near: list[str]) -> None:
    said = towers().did_you_mean(name, pins=pin)
    assert said.startswith(f"; did you mean {near[0]}" if near else "."), said
    assert len(near) <= 1 or said == f"; did you mean {', '.join(near)}?"


@given(st.sampled_from(list(towers().graph)), st.data())
def test_a_name_with_a_letter_too_few_or_too_many_is_found(name: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(name) - 1))
    for typed in (name[:position] + name[position + 1 :], name[:position] + "q" + name[position:]):
        containing = [other for other in towers().graph if typed in other]  # at most five of them are suggested
        assert typed in towers().graph or name in towers().did_you_mean(typed) or len(containing) > 5


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            layers(width=32),
            r"'x' is Placeholder\(\) -> float32\[32,64\] in the plan and .* -> float32\[32,32\] in the function",
        ),
        (layers(depth=4), "the plan has no op 'layer3/kernel/handle'"),
        (layers(depth=2), "the function has no op 'layer2/kernel/handle'"),
        (with_op(layers(), "x", role="capture"), "'x' is argument .* in the plan and capture"),
        (replace(layers(), outputs=()), "edges or results differ"),
    ],
)
def test_where_two_graphs_differ_is_said(other: OpGraph, words: str) -> None:
    assert re.search(words, layers().difference(other))
