"""The pages of docs/ for users: their programs run, and the messages that they explain are messages of the package."""

from __future__ import annotations

import inspect
import json
import re
import runpy
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer import Options, Placement, optimized_placement, place
from placer.command.main import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", DOCS / "steps.md", DOCS / "objectives.md", *sorted((DOCS / "how-to").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
    (tmp_path / "page.py").write_text(program)
    runpy.run_path("page.py")


def test_messages_that_the_page_of_questions_explains_exist() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "placer").rglob("*.py"))
    source = re.sub(r'"\s+f?"', "", sources)  # joins strings that are split over lines
    fragments = re.findall(r'^\| "([^"]+)"', (DOCS / "faq.md").read_text(), re.MULTILINE)
    assert len(fragments) > 5
    assert [fragment for fragment in fragments if fragment not in source] == []


@pytest.mark.parametrize(("tolerance", "code"), [("0.05", 0), ("-0.5", 1)])
def test_check_fails_if_a_step_takes_longer_than_allowed(
    tolerance: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "plan.json")
    assert main(["solve", "shipped:detector", "--out", saved]) == 0
    capsys.readouterr()
    assert main(["check", saved, "shipped:detector", "--tolerance", tolerance, "--json"]) == code
    printed = json.loads(capsys.readouterr().out)
    step_ns = Placement.load(saved).step_time_ns
    if code:
        assert printed["error"]["type"] == "WorsePlanError"
        assert "0 ops move" in printed["error"]["message"]
    else:
        assert printed["change"] == 0
        assert printed["difference"]["step_time_ns"] == [step_ns, step_ns]


def test_check_does_not_compare_given_sizes_with_assumed_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, target, batch = str(tmp_path / "plan.json"), str(tmp_path / "graph.json"), tf.TensorSpec([None, 4], name="x")
    placer.solve(placer.build_graph(tf.tanh, batch, devices="h100", sizes={"x": 128}), "h100").save(saved)
    placer.build_graph(tf.tanh, batch, devices="h100").save(target)
    assert main(["check", saved, target]) == 2
    assert "assumes nothing, so their step times cannot be compared" in capsys.readouterr().err


def test_check_of_a_folder_says_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path), "shipped:detector"]) == 2
    assert "is a folder; PLAN is the file of one plan" in capsys.readouterr().err


@pytest.mark.parametrize("function", [optimized_placement, place])
def test_help_lists_every_option(function: Any) -> None:
    lines = inspect.getdoc(function).splitlines()
    for option in fields(Options):
        (line,) = (line for line in lines if line.strip().startswith(f"- {option.name} ("))
        assert option.metadata["help"] in line
        assert "Default: " in line
