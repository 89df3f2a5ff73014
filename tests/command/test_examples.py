"""`placer examples`: every example is listed, printed and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placer.command.main import main

EXAMPLES = {path.stem: path for path in (Path(__file__).parents[2] / "examples").iterdir() if path.suffix in (".py", ".ipynb")}


def test_every_example_is_listed_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert lines.keys() == EXAMPLES.keys()
    assert all(lines.values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", name]) == 0
    assert capsys.readouterr().out.rstrip("\n") == EXAMPLES[name].read_text().rstrip("\n")


def test_an_unknown_example_is_an_error_that_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "training"]) == 2
    assert "training_step" in capsys.readouterr().err


def test_all_are_written_and_none_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "--out", str(tmp_path)]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "examples").iterdir()} == {
        path.name: path.read_bytes() for path in EXAMPLES.values()
    }
    assert main(["examples", "--out", str(tmp_path)]) == 2
    assert "exists" in capsys.readouterr().err
