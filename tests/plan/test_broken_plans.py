"""Plans with a right checksum and wrong content: each is refused when it is read, or can be shown and solved like any other."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.errors import OptionError, PlacerError, PlanError
from placer.graph.op_graph import OpGraph
from placer.plan import saving
from placer.plan.placement import Placement
from placer.plan.views import views
from placer.verbs.simulate import simulate
from placer.verbs.solve import solve
from tests.helpers.effort import EFFORT
from tests.helpers.graphs import loop_then_wide, towers

PLANS = [
    json.loads(json.dumps(solve(towers(), "2xh100", pins={"left/*": "GPU:1", "front/embed3": "CPU:0"}).to_json())),
    json.loads(json.dumps(simulate(loop_then_wide(), {"wide0/MatMul": "CPU:0"}, "h100").to_json())),
]
WRONG = [None, True, -1, 0, 1, 2**64, 1.0, 0.5, math.nan, math.inf, "", "x", "CPU:0", "GPU:7", [], {}, [0, 0], {"x": 1}]

Path = tuple[str | int, ...]


def paths(data: Any, at: Path = ()) -> Iterator[Path]:
    """The paths of all values of a JSON document."""
    yield at
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from paths(value, (*at, key))


def kinds(data: Any) -> dict[tuple[str, ...], list[Path]]:
    """Paths by what they lead to, so that a graph's many edges are not drawn more often than its one name."""
    found: dict[tuple[str, ...], list[Path]] = {}
    for path in paths({key: data[key] for key in ("plan", "graph")}):
        if path[1:]:
            kind = tuple("[]" if isinstance(step, int) else step for step in path[:4])
            found.setdefault(kind, []).append(path)
    return found


KINDS = [kinds(data) for data in PLANS]


def damaged(data: Any, path: Path, how: str, wrong: Any) -> Any:
    """A copy of a plan with one value replaced, left out, repeated, or swapped with the next."""
    data = copy.deepcopy(data)
    *above, last = path
    holder = data
    for step in above:
        holder = holder[step]
    if how == "replaced":
        holder[last] = wrong
    elif how == "left out":
        del holder[last]
    elif isinstance(holder, list):
        if how == "repeated":
            holder.insert(int(last), holder[last])
        else:
            other = (int(last) + 1) % len(holder)
            holder[last], holder[other] = holder[other], holder[last]
    elif how == "repeated":
        holder[f"{last} "] = holder[last]
    return data


def signed(data: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The data with the checksum and the fingerprint that it should have."""
    monkeypatch.setattr(OpGraph, "fingerprint", property(lambda self: "unchecked"))
    if isinstance(data["graph"], dict):
        data["graph"]["fingerprint"] = "unchecked"
    return data | {"checksum": saving._checksum({key: data[key] for key in ("plan", "graph")})}


def is_used(plan: Placement) -> None:
    """Draws each view and plans the graph again. Only errors of the package's own may come out."""
    for name in views():
        for option in [{"op": op} for op in plan.ops] if name == "explain" else [{}]:
            try:
                plan.view(name, **option)
            except OptionError:  # an op's name may be one that `find` does not tell from a glob
                assert name == "explain"
    plan.diff(plan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(PlacerError):
            solve(plan.graph, "2xh100", objective="total_cost")


@settings(max_examples=100 * EFFORT, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_wrong_plan_is_refused_or_can_be_used(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(PLANS) - 1), "plan")
    kind = data.draw(st.sampled_from(list(KINDS[which])), "kind")
    path = data.draw(st.sampled_from(KINDS[which][kind]), "path")
    how = data.draw(st.sampled_from(["replaced", "replaced", "left out", "repeated", "swapped"]), "how")
    written = signed(damaged(PLANS[which], path, how, data.draw(st.sampled_from(WRONG), "wrong")), monkeypatch)
    plan = None
    with suppress(PlanError):
        plan = Placement.from_json(written)
    if plan is not None:
        is_used(plan)


@pytest.mark.parametrize(
    ("path", "wrong", "words"),
    [
        (("plan", "ops", 3, 1), 10**6, "numbers of ops"),
        (("plan", "ops", 3, 1), 1.0, r"plan.ops\[3\]\[1\] must be integer"),
        (("plan", "ops", 3, 0), "GPU:7", "'GPU:7'|on GPU:7"),
        (("plan", "memory", "GPU:0"), [], "at 0 ops"),
        (("plan", "transfers", 0, "tensor"), "nothing:0", "'nothing:0' is copied"),
        (("graph", "edges", 0, 2, 0, 0), 9, "output 9 of"),
        (("graph", "edges", 0, 1), 0, "runs later"),
        (("graph", "signatures", 0, 2), "x", r"graph.signatures\[0\]\[2\] must be array"),
        (("graph", "outputs", 0, 1), 5, "output 5"),
    ],
)
def test_what_is_wrong_is_said(path: Path, wrong: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match=words):
        Placement.from_json(signed(damaged(PLANS[0], path, "replaced", wrong), monkeypatch))
