"""Every file that is written or read: what a failure leaves, and what is said of a file that cannot be used."""

from __future__ import annotations

import os
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cost_models import load_machine
from cost_models.calibrations import calibration_file, save_calibration
from cost_models.exports import export_json
from cost_models.measurements import Measurement, Row
from cost_models.store import StoreError
from placer.command.main import main
from placer.errors import PlacerError
from placer.research.arena.problem_file import save_problem
from placer.research.instances.families import synthetic
from placer.verbs.solve import solve
from tests.helpers.graphs import layers

GRAPH = layers()
PLAN = solve(GRAPH, "h100")
ROWS = [Row("a device", "2.21", op.signature, Measurement(9000, 3000, 6000, 0.1)) for op in GRAPH] * 20

WRITERS: dict[str, Callable[[Path], Any]] = {
    "plan": PLAN.save,
    "graph": GRAPH.save,
    "html": lambda path: PLAN.write("html", path),
    "json": lambda path: PLAN.write("json", path),
    "problem": lambda path: save_problem(synthetic("layered"), path),
    "measurements": lambda path: export_json(ROWS, path),
    "--out": lambda path: main(["solve", "shipped:detector", "--out", str(path)]),
}


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow beyond 100 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # then a write raises OSError
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_that_fails_leaves_the_file_that_was_there(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, write = tmp_path / "file", WRITERS[name]
    path.write_text("what was there")
    with capfd.disabled(), full_disk():
        if name == "--out":
            assert write(path) == 1
        else:
            with pytest.raises((PlacerError, StoreError), match="cannot be written"):
                write(path)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "what was there"
    write(path)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_size > 100


def test_a_calibration_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    machine = load_machine("h100")
    save_calibration(machine)
    with full_disk(), pytest.raises(OSError, match="too large"):
        save_calibration(machine)
    assert load_machine(calibration_file(machine)) == machine


def test_a_file_that_is_replaced_keeps_its_link_and_its_permissions(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("what was there")
    target.chmod(0o640)
    link.symlink_to(target)
    PLAN.save(link)
    assert link.is_symlink()
    assert type(PLAN).load(target) == PLAN
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    umask = os.umask(0o027)
    try:
        PLAN.save(tmp_path / "new")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_what_is_no_file_is_written_directly() -> None:
    PLAN.save("/dev/null")
    assert not Path("/dev/null").is_file()
