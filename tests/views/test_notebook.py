"""What a notebook shows for a result: markup that holds together, with its figures, compact, and with names that stay names."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cost_models.machine_files import load_machine
from placer.common.units import format_bytes, format_ns
from placer.plan.verdict import TimedCandidate, Verdict
from placer.tf.run.observing import Mismatch, Observation
from placer.verbs.profile import Profile
from placer.verbs.solve import solve
from placer.views.notebook import MAX_PIXELS
from tests.helpers.graphs import layers, stacked, towers

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
PLANS = {graph.name: solve(graph, "2xh100", objective="total_cost") for graph in (layers(), towers(), stacked(30))}
HOSTILE = "<b>&\x1b\ud800"


def body(shown: Any) -> ElementTree.Element:
    """The HTML that a notebook shows for a value."""
    return ElementTree.fromstring(f"<body>{shown._repr_html_()}</body>".encode())


def rows(parsed: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in parsed.iter("tr")]


@pytest.mark.parametrize("name", PLANS)
def test_a_placement_shows_devices_and_folds_baselines_notes_and_a_small_picture(name: str) -> None:
    plan = replace(PLANS[name], notes=("a note",))
    shown = body(plan)
    found = rows(shown)
    for device, total in plan.totals.items():
        assert [device, f"{total.ops:,}", format_ns(total.time_ns), format_bytes(total.peak_bytes)] in [row[:4] for row in found]
    for baseline in plan.baselines.values():
        assert any(format_ns(baseline.step_time_ns) in row for row in found)
    folded = list(shown.iter("details"))
    assert not any("open" in part.attrib for part in folded)
    assert len(list(shown.iter("tr"))) - sum(len(list(part.iter("tr"))) for part in folded) == 1 + len(plan.totals)
    assert any("a note" in item.itertext() for item in shown.iter("li"))
    pictures = list(shown.iter("{http://www.w3.org/2000/svg}svg"))
    assert len(pictures) == (importlib.util.find_spec("matplotlib") is not None)
    for picture in pictures:
        width = int(re.search(r"width:(\d+)px", picture.attrib["style"])[1])  # type: ignore[index]
        *_, wide, high = map(float, picture.attrib["viewBox"].split())
        assert max(width, width * high / wide) <= MAX_PIXELS + 1


def race(name: str = "the plan") -> Verdict:
    rows = (TimedCandidate(name, 2_000_000, 1_500_000, 7, ""), TimedCandidate("TensorFlow's default", 0, 3_000_000, 6, "slower"))
    return Verdict(rows, name, "all others are slower", 0.25)


def test_other_results_show_their_figures() -> None:
    found = {tuple(row) for row in rows(body(race()))}
    assert ("the plan", "1.50 ms", "2.00 ms", "7", "used") in found
    assert "measured 2.00x faster" in "".join(body(race()).itertext())

    plan = PLANS["towers"]
    other = solve(plan.graph, "2xh100", pins=dict.fromkeys(list(plan.ops)[-1:], "CPU:0"))
    difference = plan.diff(other)
    found = {tuple(row) for row in rows(body(difference))}
    assert {(*devices, name) for name, devices in difference.moved.items()} <= found
    assert any(format_ns(other.step_time_ns) in row for row in found)

    mismatch = Mismatch("op", "GPU:0", "CPU:0")
    observation = Observation(None, {"op": "CPU:0"}, (mismatch,), {}, ())
    assert ["op", "GPU:0", "CPU:0"] in rows(body(observation))
    assert "each op ran on its planned device" in "".join(body(replace(observation, mismatches=())).itertext())

    profile = Profile(3, 2, 1, {"has side effects": {"Print": 2}}, 4.0)
    assert ["has side effects", "Print (2)"] in rows(body(profile))
    assert str(profile).split("\n")[0] in "".join(body(profile).itertext())

    machine = load_machine("h100")
    assert [row[0] for row in rows(body(machine))[1:]] == [device.name for device in machine.devices]


def test_names_stay_names() -> None:
    """The parser refuses markup that does not close, and characters that no document may have."""
    machine = load_machine("cpu2")
    device = replace(machine.devices[0], model=HOSTILE)
    shown = [
        race(HOSTILE),
        replace(PLANS["towers"].diff(PLANS["towers"]), moved={HOSTILE: ("CPU:0", "GPU:0")}),
        Observation(None, {HOSTILE: "CPU:0"}, (Mismatch(HOSTILE, "GPU:0", "CPU:0"),), {}, (), (HOSTILE,)),
        Profile(0, 0, 0, {HOSTILE: {HOSTILE: 1}}, 0.0),
        replace(machine, name=HOSTILE, provenance=HOSTILE, devices=(device, *machine.devices[1:])),
    ]
    for value in shown:
        assert "<b>&" in "".join(body(value).itertext())


def test_the_example_runs_cell_by_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(EXAMPLE.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    variables: dict[str, Any] = {}
    shown = []
    for cell in notebook["cells"]:
        assert set(cell) == {"id", "cell_type", "metadata", "source"} | (
            {"outputs", "execution_count"} if cell["cell_type"] == "code" else set()
        )
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            lines = [line for line in "".join(cell["source"]).split("\n") if not line.startswith("%")]
            parsed = ast.parse("\n".join(lines))
            last = parsed.body.pop() if parsed.body and isinstance(parsed.body[-1], ast.Expr) else None
            exec(compile(parsed, "<cell>", "exec"), variables)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "<cell>", "eval"), variables))
    rendered = {type(value).__name__ for value in shown if hasattr(value, "_repr_html_") and body(value) is not None}
    assert rendered >= {"Placement", "Observation", "Difference", "Machine"}
    assert (tmp_path / "report.html").stat().st_size > 100_000
