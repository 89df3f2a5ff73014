"""Every file that is written or read: what a failure leaves, and what is said of a file that cannot be used."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import resource
import signal
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cost_models
import placer
from cost_models import MachineError, load_machine
from cost_models.calibrations import calibration_file, save_calibration
from cost_models.documents import MAX_DEPTH
from cost_models.exports import export_json, import_json
from cost_models.measurements import Measurement, Row
from cost_models.store import StoreError
from placer.command.main import main
from placer.errors import PlacerError, PlanError
from placer.graph.op_graph import OpGraph
from placer.plan.placement import Placement
from placer.research.arena.records import KEY, read_lines
from placer.research.formats.problem_file import load_problem, save_problem
from placer.research.instances.dnn_partitioning import load_split
from placer.research.instances.families import synthetic
from placer.research.instances.iopddl import load_pairwise
from placer.verbs.solve import solve
from tests.helpers.effort import EFFORT
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
            with redirect_stderr(StringIO()):  # the process's own may be a file, too
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


PAIRWISE = {
    "problem": {
        "name": "example",
        "nodes": {"intervals": [[30, 70], [40, 70]], "costs": [[15], [55, 65]], "usages": [[10], [25, 20]]},
        "edges": {"nodes": [[0, 1]], "costs": [[30, 40]]},
        "usage_limit": 50,
    }
}
NODE = {"cpuLatency": 2.0, "fpgaLatency": 1.0, "size": 4.0, "supportedOnFpga": 1}
WORKLOAD = {
    "maxSizePerFPGA": 8.0,
    "maxFPGAs": 1,
    "maxCPUs": 1,
    "nodes": [{"id": 1, **NODE}, {"id": 2, **NODE}],
    "edges": [{"sourceId": 1, "destId": 2, "cost": 0.5}],
}
RESULTS = f'{{"format":"placer.arena","version":1}}\n{json.dumps(dict.fromkeys([*KEY, "outcome"], "x"))}\n'
READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "plan.json": (PLAN.save, Placement.load),
    "graph.json": (GRAPH.save, OpGraph.load),
    "measurements.json": (lambda path: export_json(ROWS[:5], path), import_json),
    "pairwise.json": (lambda path: path.write_text(json.dumps(PAIRWISE)), load_pairwise),
    "pairwise.json.gz": (lambda path: path.write_bytes(gzip.compress(json.dumps(PAIRWISE).encode())), load_pairwise),
    "workload.json": (lambda path: path.write_text(json.dumps(WORKLOAD)), load_split),
    "machine.toml": (lambda path: path.write_text(load_machine("h100").to_toml()), load_machine),
    "results.jsonl": (lambda path: path.write_text(RESULTS), read_lines),
    "problem.npz": (lambda path: save_problem(synthetic("chain", ops=4), path), load_problem),
}
"""By the name of a file: what writes it, and what reads it."""
DAMAGES = [b"", b"9", b"-", b'"', b"null", b"[", b"1e999"]
REFUSED = (PlanError, MachineError, StoreError)


@contextmanager
def suppress_if_it_names(path: Path) -> Iterator[None]:
    """Nothing else may be raised than an error for a file that cannot be used, which names the file."""
    refusal = ""
    try:
        yield
    except REFUSED as error:
        refusal = str(error)
    assert not refusal or str(path) in refusal


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60 * EFFORT, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_by_name(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("damaged") / name
    write, read = READERS[name]
    write(path)
    read(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4), "damages")):
        at = data.draw(st.integers(0, len(content)), "at")
        to = data.draw(st.integers(at, min(len(content), at + 40)), "to")
        content[at:to] = data.draw(st.sampled_from([*DAMAGES, bytes([(*content, 0)[at] ^ 8])]) | st.binary(max_size=8))
    path.write_bytes(content)
    with suppress_if_it_names(path):
        read(path)


DEEP = {
    "arrays": b"[" * 200_000,
    "objects": b'{"a":' * 200_000,
    "after text with brackets": b'{"]]]]]]\\\\\\"]]]]": ' + b"[" * 200_000,
    "long number": b'{"format": ' + b"1" * 5_000 + b"}",
    "not UTF-8": b'{"format": "\xff"}',
    "lone surrogate": b'{"format": "x\\ud800"}',
    "empty": b"",
}
TOML = {
    "arrays": b"a = " + b"[" * 5_000,
    "tables": b"a = " + b"{a=" * 5_000,
    "on many lines": b"a = " + b"[\n" * 5_000,
    "long number": b"a = " + b"1" * 5_000,
    "dotted key": b".".join([b"a"] * 50_000) + b" = 1",
    "dotted key of text": b" . ".join([b'"\\""'] * 50_000) + b" = 1",
    "dotted header": b"[" + b".".join([b"'a'"] * 50_000) + b"]",
    "dotted key after text": b'a = """\\"""" # "\n' + b".".join([b"a"] * 50_000) + b" = 1",
    "large": b"#" * 2**21,
    "not UTF-8": b"name = '\xff'",
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(pytest.param(name, text, id=f"{name}: {what}") for name in READERS if "json" in name for what, text in DEEP.items()),
        *(pytest.param("machine.toml", text, id=what) for what, text in TOML.items()),
    ],
)
def test_what_would_take_the_parser_long_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content + b"\n")
    if (name, content) != ("results.jsonl", b""):
        with pytest.raises(REFUSED, match=re.escape(str(path))):
            READERS[name][1](path)


def test_what_unpacks_to_more_than_is_read_is_refused(tmp_path: Path) -> None:
    packed = tmp_path / "large.json.gz"
    with gzip.open(packed, "wb", 1) as file:
        for _ in range(300):
            file.write(bytes(2**20))
    with pytest.raises(PlanError, match="larger than 268435456 bytes"):
        load_pairwise(packed)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**40,)})
    path = tmp_path / "problem.npz"
    for size in (0, 300):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
            member.write(header.getvalue())
            for _ in range(size):
                member.write(bytes(2**20))
        with pytest.raises(PlanError, match=r"problem\.npz"):
            load_problem(path)


def test_nesting_up_to_the_limit_is_read(tmp_path: Path) -> None:
    """Brackets in text do not count."""
    path = tmp_path / "graph.json"
    text = json.dumps({"format": "[" * 300})[:-1] + f', "deep": {"[" * (MAX_DEPTH - 1)}{"]" * (MAX_DEPTH - 1)}}}'
    path.write_text(text)
    with pytest.raises(PlanError, match="its format is"):
        OpGraph.load(path)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "deep.json"],
        ["solve", "deep.json"],
        ["diff", "deep.json", "deep.json"],
        ["compare", "deep.json"],
        ["measurements", "--import", "deep.json"],
        ["solve", "shipped:detector", "--devices", "deep.toml"],
    ],
    ids=" ".join,
)
def test_the_command_line_says_it_in_a_line(
    arguments: list[str], as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deep.json").write_bytes(DEEP["arrays"])
    Path("deep.toml").write_bytes(TOML["arrays"])
    assert main([*arguments, "--json"] if as_json else arguments) == 1
    printed = capsys.readouterr()
    message = json.loads(printed.out)["error"]["message"] if as_json else printed.err
    assert re.search(r"deep\.(json|toml)", message)
    assert "Traceback" not in message


def test_one_module_writes_files() -> None:
    """What is written elsewhere is in a folder that nothing else reads, a log of results, or made before a release."""
    elsewhere = {"arena.py", "worker.py", "records.py", "fetch.py"}
    for package in (cost_models, placer):
        for file in Path(package.__file__).parent.rglob("*.py"):
            if file.name not in {"files.py", *elsewhere}:
                assert not re.search(r"write_text|write_bytes|open\(\"[awx]|savez\w*\(path", file.read_text()), file
