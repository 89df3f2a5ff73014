"""Pictures of a placement: folded to what can be looked at, nothing lost, nothing invented."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.common.units import format_bytes, format_ns
from placer.plan.placement import Placement
from placer.verbs.solve import solve
from placer.views.shared.colours import CROSSING
from placer.views.shared.folding import MIN_SIBLINGS, fold, without_repeats
from placer.views.shared.layout import HEIGHT, WIDTH, layout, spread
from placer.views.svg import EDGE, HEAD, LEGEND
from tests.helpers.graphs import GraphBuilder, floats, layers, stacked, towers


def past_a_lane() -> Placement:
    """Tensors go from the first device to the third and back while the second is busy."""
    graph = GraphBuilder("past a lane")
    makers = [graph.op(f"make/{word}", "Relu") for word in ("one", "two", "three")]
    before = "make/one"
    for word in ("a", "b", "c", "d", "e", "f"):
        graph.op(f"middle/{word}", "Tanh", [before])
        before = f"middle/{word}"
    graph.op("take/all", "AddN", [*makers, before])
    graph.op("back/one", "Sin", ["take/all"])
    return solve(
        graph.build("back/one"), "2xh100", pins={"make/*": "CPU:0", "back/*": "CPU:0", "middle/*": "GPU:0", "take/*": "GPU:1"}
    )


PLANS = {graph.name: solve(graph, "2xh100", objective="total_cost") for graph in (layers(), towers(), stacked(30))}
PLANS["pinned"] = solve(towers(), "2xh100", pins={"left/*": "GPU:1", "front/embed3": "CPU:0"})
PLANS["past a lane"] = past_a_lane()


def shown(plan: Placement) -> list[str]:
    """The ops that pictures show."""
    return [op.name for op in plan.graph if op.role != "constant" and not (op.role == "capture" and op.resource)]


@pytest.mark.parametrize("name", PLANS)
@given(limit=st.integers(3, 80))
def test_folding_keeps_to_the_limit_and_loses_nothing(name: str, limit: int) -> None:
    plan = PLANS[name]
    boxes = [data["box"] for _, data in fold(plan, limit).nodes(data=True)]
    assert len(boxes) <= limit
    for device in plan.devices:
        times_ns = [plan.ops[name].time_ns[device] for name in shown(plan) if plan.ops[name].device == device]
        assert sum(box.ops for box in boxes if box.device == device) == len(times_ns)
        assert sum(box.time_ns for box in boxes if box.device == device) == sum(times_ns)


@pytest.mark.parametrize("name", PLANS)
@given(limit=st.integers(3, 80))
def test_each_transfer_is_one_arrow(name: str, limit: int) -> None:
    plan = PLANS[name]
    folded = fold(plan, limit)
    flows = [data["flow"] for *_, data in folded.edges(data=True)]
    for source, target, data in folded.edges(data=True):
        assert data["flow"].crosses == (folded.nodes[source]["box"].device != folded.nodes[target]["box"].device)
    moved = sum(t.nbytes * t.count for t in plan.transfers if t.src != t.dst)
    assert sum(flow.nbytes for flow in flows if flow.crosses) == round(moved)
    # A control edge may share its way with a tensor; nothing else takes time.
    assert sum(flow.time_ns for flow in flows) == sum(t.time_ns for t in plan.transfers if t.src != t.dst)
    assert not any(flow.time_ns for flow in flows if not flow.crosses)


def test_a_tensor_that_many_take_crosses_to_the_first_and_goes_on_from_there() -> None:
    graph = GraphBuilder()
    graph.op("make", "Relu")
    graph.op("take_a", "Tanh", ["make"])
    graph.op("take_b", "Sin", ["make"])
    plan = solve(graph.build("take_a", "take_b"), "h100", pins={"make": "CPU", "take*": "GPU"})
    folded = fold(plan, 40)
    label = {number: data["box"].label for number, data in folded.nodes(data=True)}
    arrows = {(label[a], label[b]): data["flow"].crosses for a, b, data in folded.edges(data=True)}
    assert arrows == {("make", "take_a"): True, ("take_a", "take_b"): False}


@pytest.mark.parametrize("name", PLANS)
def test_siblings_of_like_names_share_a_box(name: str) -> None:
    plan = PLANS[name]
    boxes = [data["box"] for _, data in fold(plan, 80).nodes(data=True)]
    siblings = Counter((box.device, re.sub(r"\d+(?=/|$)", "", box.label)) for box in boxes)
    assert max(siblings.values()) < MIN_SIBLINGS
    for box in boxes:
        if "*" in box.label:
            pattern = re.compile(re.escape(box.scope).replace(r"\*", r"[_\d]*") + "(/|$)")
            assert box.ops == sum(plan.ops[op].device == box.device for op in shown(plan) if pattern.match(op))


@pytest.mark.parametrize("name", PLANS)
@given(limit=st.integers(3, 60))
def test_arrows_left_out_repeat_others(name: str, limit: int) -> None:
    folded = fold(PLANS[name], limit)
    thinned = without_repeats(folded)
    assert nx.transitive_closure(thinned).edges == nx.transitive_closure(folded).edges
    assert all(flow.crosses <= thinned.has_edge(a, b) for a, b, flow in folded.edges(data="flow"))
    for a, b, flow in thinned.edges(data="flow"):
        others = nx.restricted_view(thinned, [], [(a, b)])
        assert flow.crosses or not nx.has_path(others, a, b)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("limit", [6, 40])
def test_boxes_stand_apart_in_their_lanes_and_time_runs_down(name: str, limit: int) -> None:
    plan = PLANS[name]
    folded = fold(plan, limit)
    placed = layout(folded, plan.devices)
    centres = list(placed.centres.values())
    for i, (x, y) in enumerate(centres):
        assert HEIGHT / 2 < y < placed.height - HEIGHT / 2
        assert all(abs(x - a) >= WIDTH or abs(y - b) >= HEIGHT for a, b in centres[:i])
    for number, data in folded.nodes(data=True):
        left, right = placed.lanes[data["box"].device]
        assert left < placed.centres[number][0] < right
    for source, target in folded.edges:
        if not nx.has_path(folded, target, source):
            assert placed.centres[source][1] < placed.centres[target][1]


@given(st.lists(st.floats(0, 100), max_size=8))
def test_spread_labels_do_not_overlap(wanted: list[float]) -> None:
    placed = sorted(spread(wanted, 1.0))
    assert all(b - a >= 1.0 - 1e-9 for a, b in pairwise(placed))
    assert all(p >= w for p, w in zip(spread(wanted, 1.0), wanted, strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_dot_draws_every_box_once_and_only_edges_between_them(name: str) -> None:
    plan = PLANS[name]
    text = plan.view("dot", boxes=20)
    boxes = re.findall(r"^\s*(n\d+) \[label=", text, re.MULTILINE)
    ends = re.findall(r"(n\d+) -> (n\d+) \[", text)
    assert len(boxes) == len(set(boxes)) <= 20
    assert {end for pair in ends for end in pair} <= set(boxes)
    assert text.count("{") == text.count("}")
    assert ("penwidth=3" in text) == any(data["crosses"] for *_, data in plan.to_networkx().edges(data=True) if data["nbytes"])


def test_graphviz_draws_it_whatever_names_are() -> None:
    program = shutil.which("dot")
    if program is None:
        pytest.skip("Graphviz is not installed")
    odd = GraphBuilder('a "graph" \\ {')
    odd.argument("x", floats(4))
    odd.op('"quoted"/<b>/{brace}', "Relu", ["x"])
    odd.op("back\\slash/é", "Tanh", ['"quoted"/<b>/{brace}'])
    for plan in (*PLANS.values(), solve(odd.build("back\\slash/é"), "h100", pins={"x": "CPU:0", "back*": "GPU:0"})):
        made = subprocess.run([program, "-Tsvg"], input=str(plan.view("dot")), capture_output=True, text=True, check=True)
        assert made.stderr == ""
        drawn = [element.get("class") for element in ElementTree.fromstring(made.stdout).iter("{http://www.w3.org/2000/svg}g")]
        thinned = without_repeats(fold(plan, 40))
        assert (drawn.count("node"), drawn.count("edge")) == (len(thinned), thinned.number_of_edges())


@pytest.mark.parametrize("name", PLANS)
def test_svg_says_what_crosses_and_what_its_colours_mean(name: str) -> None:
    pytest.importorskip("matplotlib")
    plan = PLANS[name]
    text = plan.view("svg")
    assert text == plan.view("svg")
    words = [element.text for element in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    folded = fold(plan, 30)
    for device in {data["box"].device for _, data in folded.nodes(data=True)}:
        assert words.count(device) == 2  # above its lane and in the legend
    for meaning, *_ in LEGEND:
        assert meaning in words
    crossing = [flow for *_, flow in folded.edges(data="flow") if flow.crosses and flow.nbytes]
    sizes = Counter(f"{format_bytes(flow.nbytes)}, {format_ns(flow.time_ns)}" for flow in crossing)
    assert sizes == Counter(word for word in words if word in sizes)
    for _, data in folded.nodes(data=True):
        assert any(word and data["box"].label.endswith(word.removeprefix("…")) for word in words)


@pytest.mark.parametrize("boxes", [8, 30])
@pytest.mark.parametrize("name", PLANS)
def test_crossings_pass_no_box_and_their_labels_stand_free(name: str, boxes: int) -> None:
    pytest.importorskip("matplotlib")
    plan = PLANS[name]
    drawn = ElementTree.fromstring(str(plan.view("svg", boxes=boxes)))
    tag = "{http://www.w3.org/2000/svg}"
    placed = layout(fold(plan, boxes), plan.devices)
    centres = [(72 * (x + EDGE), 72 * (y + HEAD + EDGE)) for x, y in placed.centres.values()]
    ways = [
        [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path.get("d", ""))]
        for path in drawn.iter(f"{tag}path")
        if f"stroke: {CROSSING}" in path.get("style", "") and "fill: none" in path.get("style", "")
    ]
    assert len(ways) == 1 + sum(flow.crosses for *_, flow in fold(plan, boxes).edges(data="flow"))  # and the legend's
    for (a, b), (c, d) in (pair for way in ways for pair in pairwise(way)):
        for k in range(1, 40):
            x, y = a + k / 40 * (c - a), b + k / 40 * (d - b)
            assert not any(abs(x - at) < 72 * WIDTH / 2 - 1 and abs(y - row) < 72 * HEIGHT / 2 - 1 for at, row in centres)
    labels = [
        (float(text.get("x", "")), float(text.get("y", "")))
        for text in drawn.iter(f"{tag}text")
        if f"fill: {CROSSING}" in text.get("style", "")
    ]
    for i, (x, y) in enumerate(labels):
        assert all(abs(x - a) > 72 or abs(y - b) >= 15 for a, b in labels[:i])
        assert all(abs(x - a) > 72 * (WIDTH + 1) / 2 for a, _ in centres)


def test_names_that_begin_alike_share_a_box_where_a_scope_holds_too_many() -> None:
    graph = GraphBuilder()
    graph.op("in", "Relu")
    before = "in"
    for stage, blocks in ((1, 1), (2, 3), (3, 4), (4, 6), (5, 3)):
        for block in range(blocks):
            for layer in ("conv", "bn", "relu"):
                graph.op(f"net/conv{stage}_block{block}_{layer}/Tanh", "Tanh", [before])
                before = f"net/conv{stage}_block{block}_{layer}/Tanh"
    plan = solve(graph.build(before), "cpu2", pins={"*": "CPU:0"})
    few = [data["box"].label for _, data in fold(plan, 7).nodes(data=True)]
    assert few == ["in", *(f"net/conv{stage}_*" for stage in range(1, 6))]
    more = [data["box"] for _, data in fold(plan, 16).nodes(data=True)]
    assert "net/conv4_*" not in {box.label for box in more}
    assert {box.label: box.ops for box in more if box.label.startswith("net/conv4")} == {
        f"net/conv4_block{k}_*": 3 for k in range(6)
    }
