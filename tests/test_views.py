"""Pictures of a placement: folded to what can be looked at, nothing lost, nothing invented."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.placement import Placement
from placer.solving import solve
from placer.views.folding import fold
from placer.views.layout import HEIGHT, WIDTH, layout, spread
from tests.graphs import layers, stacked, towers

PLANS = {graph.name: solve(graph, "2xh100", objective="total_cost") for graph in (layers(), towers(), stacked(30))}


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
        there = [plan.ops[name].time_ns[device] for name in shown(plan) if plan.ops[name].device == device]
        assert sum(box.ops for box in boxes if box.device == device) == len(there)
        assert sum(box.time_ns for box in boxes if box.device == device) == sum(there)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("limit", [6, 40])
def test_boxes_stand_apart_in_their_lanes_and_time_runs_down(name: str, limit: int) -> None:
    plan = PLANS[name]
    folded = fold(plan, limit)
    placed = layout(folded, plan.devices)
    centres = list(placed.centres.values())
    for i, (x, y) in enumerate(centres):
        assert 0 <= y <= placed.height
        assert all(abs(x - a) >= WIDTH or abs(y - b) >= HEIGHT for a, b in centres[:i])
    for number, data in folded.nodes(data=True):
        left, right = placed.lanes[data["box"].device]
        assert left < placed.centres[number][0] < right


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


def test_svg_is_the_same_each_time_and_names_the_devices() -> None:
    pytest.importorskip("matplotlib")
    plan = PLANS["towers"]
    text = plan.view("svg")
    assert text == plan.view("svg")
    ElementTree.fromstring(text)
    for words in ("CPU:0", "GPU:0", "left/dense0", "1.00 MiB"):
        assert words in text
