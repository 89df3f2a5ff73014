"""The store of measurements and its exports: no process loses a measurement, and a file that is no store is set aside."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.auto import auto_model
from cost_models.base import OpSignature, TensorSpec
from cost_models.exports import export_json, import_json
from cost_models.machine_files import load_machine
from cost_models.measurements import Measurement, Row, signature_text
from cost_models.store import Store, StoreError
from placer.problem.op_costs import MAX_FIGURE

scalars = st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans())
specs = st.builds(
    TensorSpec,
    st.sampled_from(["float32", "int64", "string", "resource"]),
    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 2**40)), max_size=4).map(tuple)),
)
plain_signatures = st.builds(
    OpSignature,
    st.sampled_from(["MatMul", "Unique", "Conv2D"]),
    st.lists(specs, max_size=3).map(tuple),
    st.lists(specs, max_size=2).map(tuple),
    st.dictionaries(st.text(), st.one_of(scalars, st.lists(scalars, max_size=3).map(tuple)), max_size=3).map(
        lambda attrs: tuple(sorted(attrs.items()))
    ),
)
signatures = st.one_of(
    plain_signatures,
    st.lists(plain_signatures, max_size=2).map(lambda inner: OpSignature("PartitionedCall", (), (), inner=tuple(inner))),
)
times = st.integers(0, 2**40)
rows = st.builds(
    Row,
    st.sampled_from(["NVIDIA H100 80GB HBM3", "Xeon’s 2 cores"]),
    st.sampled_from(["2.9.1", "2.20.0", "2.21.0"]),
    signatures,
    st.builds(Measurement, times, times, times, st.floats(0, 100), st.booleans()),
)


def by_key(given_rows: list[Row]) -> dict[tuple[str, str, str], Row]:
    """The last row with each key of the store."""
    return {(row.device_model, row.tensorflow, signature_text(row.signature)): row for row in given_rows}


@given(st.lists(rows, max_size=12))
@settings(max_examples=20)
def test_the_store_and_an_export_return_what_was_put_in(tmp_path_factory: pytest.TempPathFactory, given_rows: list[Row]) -> None:
    folder = tmp_path_factory.mktemp("stores")
    store, other = Store(folder / "a.sqlite"), Store(folder / "b.sqlite")
    store.put(given_rows)
    assert by_key(list(store.rows())) == by_key(given_rows)
    assert sum(store.counts().values()) == len(by_key(given_rows))

    export_json(store.rows(), folder / "export.json")
    assert other.add_missing(import_json(folder / "export.json")) == len(by_key(given_rows))
    assert list(other.rows()) == list(store.rows())
    assert other.add_missing(import_json(folder / "export.json")) == 0


@given(st.lists(rows, max_size=12), st.sampled_from(["2.9.1", "2.20.0", "2.21.0", ""]))
@settings(max_examples=20)
def test_measurements_count_before_harvests_and_this_version_before_the_newest(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[Row], installed: str
) -> None:
    store = Store(tmp_path_factory.mktemp("stores") / "a.sqlite")
    store.put(given_rows)
    order = ["2.9.1", "2.20.0", "2.21.0", installed]
    for model in {row.device_model for row in given_rows}:
        expected = {
            signature_text(row.signature): row.measured
            for harvested in (True, False)
            for version in order
            for row in by_key(given_rows).values()
            if (row.device_model, row.tensorflow, row.measured.harvested) == (model, version, harvested)
        }
        stored = {text: measured for column in store.table(model, installed).values() for text, measured in column.items()}
        assert stored == expected


ROW = Row("a model", "2.21.0", OpSignature("MatMul", (), ()), Measurement(3, 1, 2, 0.1))

HARVESTED = replace(ROW, measured=Measurement(9, 1, 8, 0.1, harvested=True))


def test_a_measurement_replaces_a_harvested_one_and_never_the_other_way(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.sqlite")
    assert [store.add_missing([row]) for row in (HARVESTED, HARVESTED, ROW, HARVESTED, ROW)] == [1, 0, 1, 0, 0]
    assert list(store.rows()) == [ROW]
    store.put([HARVESTED])
    assert store.measured_signatures(ROW.device_model, ROW.tensorflow) == set()
    assert store.table(ROW.device_model, "")["MatMul"] == {signature_text(ROW.signature): HARVESTED.measured}


def test_an_export_of_version_1_is_read(tmp_path: Path) -> None:
    """A file as that version made it: without the figure for harvested."""
    export = {"device_model": "a model", "tensorflow": "2.21.0", "measurements": [[ROW.signature.to_json(), 3, 1, 2, 0.1]]}
    (tmp_path / "export.json").write_text(json.dumps({"format": "placer.measurements", "version": 1, "groups": [export]}))
    assert import_json(tmp_path / "export.json") == [ROW]


WRITER = """
import sys
from cost_models.base import OpSignature
from cost_models.measurements import Measurement, Row
from cost_models.store import Store
path, writer = sys.argv[1], int(sys.argv[2])
for k in range(20):
    signature = OpSignature("Op", (), (), (("writer", writer), ("k", k)))
    Store(path).put([Row("a model", "2.21.0", signature, Measurement(k, 0, k, 0.0))])
"""


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    command = [sys.executable, "-W", "error", "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, str(k)], stderr=subprocess.PIPE) for k in range(4)]
    for writer in writers:
        _, complaint = writer.communicate()
        assert writer.returncode == 0, complaint.decode()
    assert Store(path).counts() == {("a model", "2.21.0"): 80}
    assert os.listdir(tmp_path) == ["a.sqlite"]


@pytest.mark.parametrize("content", [b"", b"not a database. " * 100, "another program"])
def test_processes_that_find_an_unusable_file_at_the_same_time_lose_nothing(tmp_path: Path, content: bytes | str) -> None:
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        path = folder / "a.sqlite"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE t (x)")
        writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(k)], stderr=subprocess.PIPE) for k in range(10)]
        complaints = [writer.communicate()[1].decode() for writer in writers]
        assert [writer.returncode for writer in writers] == [0] * 10, complaints
        assert Store(path).counts() == {("a model", "2.21.0"): 200}
        assert sum("aside-1" in complaint for complaint in complaints) == (content != b"")
        assert not (folder / "a.sqlite.aside-2").exists()


KILLED = """
import os, signal, sys
from cost_models import store
from cost_models.store import Store
def killed(connection):
    connection.execute("PRAGMA cache_size = 10")  # pages go to the file before the transaction ends
    connection.execute("DELETE FROM measurements")
    connection.executemany(store._INSERT_OR_REPLACE, (("m", "1", "Op", str(k), 1, 1, 1, 1.0, 0) for k in range(10_000)))
    os.kill(os.getpid(), signal.SIGKILL)
Store(sys.argv[1])._file.write(killed)
"""


def test_a_killed_writer_leaves_what_was_there(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.sqlite")
    store.put(replace(ROW, signature=floats(k)) for k in range(100))
    killed = subprocess.run([sys.executable, "-c", KILLED, str(store.path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.counts() == {("a model", "2.21.0"): 100}
        store.put([ROW])
    assert store.counts() == {("a model", "2.21.0"): 101}


FULL = """
import resource, sys
from cost_models.store import Store, StoreError
from tests.cost_models.test_store import ROW, floats
from dataclasses import replace
store = Store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    store.put(replace(ROW, signature=floats(k)) for k in range(2_000))
except StoreError as error:
    print(error)
print(store.counts())
"""


@pytest.mark.parametrize("limit", [0, 5_000, 50_000])
@pytest.mark.parametrize("rows_before", [0, 100])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, limit: int, rows_before: int) -> None:
    store = Store(tmp_path / "a.sqlite")
    store.put(replace(ROW, signature=floats(k)) for k in range(rows_before))
    counts = store.counts()
    command = [sys.executable, "-W", "error", "-c", FULL, str(store.path), str(limit)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "cannot be written" in output[0]
    assert output[1] == str(counts)
    assert store.counts() == counts
    store.put([ROW])
    assert sum(store.counts().values()) == rows_before + 1


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    content = b"not a database, and longer than the header of one would have to be. " * 40
    store = Store(tmp_path / "a.sqlite")
    store.path.write_bytes(content)
    with pytest.warns(UserWarning, match="a.sqlite is no store"):
        assert store.table("a model", "") == {}
    assert (tmp_path / "a.sqlite.aside-1").read_bytes() == content
    store.put([ROW])
    assert list(store.rows()) == [ROW]


@pytest.mark.parametrize(
    ("statement", "why"), [("CREATE TABLE t (x)", "another program"), ("PRAGMA user_version = 7", "version 7")]
)
def test_a_database_of_another_program_or_version_is_set_aside(tmp_path: Path, statement: str, why: str) -> None:
    store = Store(tmp_path / "a.sqlite")
    if why == "version 7":
        store.put([ROW])
    for number in (1, 2):
        with sqlite3.connect(store.path) as connection:
            connection.execute(statement)
        connection.close()
        with pytest.warns(UserWarning, match=why):
            store.put([ROW])
        assert list(store.rows()) == [ROW]
        assert (tmp_path / f"a.sqlite.aside-{number}").exists()
        if why == "another program":
            store.path.unlink()


def floats(count: int) -> OpSignature:
    """An op on that many floats."""
    return OpSignature("Op", (TensorSpec("float32", (count,)),), (), (("k", count),))


@given(st.lists(st.tuples(st.one_of(st.integers(0, 2500), st.integers(0, 20_000)), st.integers(0, 255)), min_size=1))
@settings(max_examples=20)
def test_plans_are_made_whatever_bytes_of_a_store_changed(
    tmp_path_factory: pytest.TempPathFactory, bytes_at: list[tuple[int, int]]
) -> None:
    """The first pages of the file are its index; behind them are signatures and figures."""
    store = Store(tmp_path_factory.mktemp("stores") / "a.sqlite")
    store.put(Row("a model", "2.21.0", floats(k), Measurement(k, 0, k, 0.0)) for k in range(1, 101))
    content = bytearray(store.path.read_bytes())
    for position, byte in bytes_at:
        content[position % len(content)] = byte
    store.path.write_bytes(content)
    device = replace(load_machine("cpu2").devices[0], model="a model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert all(auto_model(store).op_cost(floats(count), device).time_ns >= 0 for count in (1, 7, 120))
        assert len(list(store.rows())) <= sum(store.counts().values()) <= 100
        assert len(store.measured_signatures("a model", "2.21.0")) <= 100


@given(st.floats(0, 1), st.binary(max_size=3000))
@settings(max_examples=20)
def test_a_damaged_store_never_stops_anyone(tmp_path_factory: pytest.TempPathFactory, kept_share: float, garbage: bytes) -> None:
    store = Store(tmp_path_factory.mktemp("stores") / "a.sqlite")
    store.put(Row("a model", "2.21.0", OpSignature("Op", (), (), (("k", k),)), Measurement(k, k, k, 0.0)) for k in range(100))
    whole = store.path.read_bytes()
    store.path.write_bytes(whole[: int(kept_share * len(whole))] + garbage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        store.table("a model", "")
        store.put([ROW])
        assert store.table("a model", "")["MatMul"] == {signature_text(ROW.signature): ROW.measured}


def test_errors_say_which_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match=r"taken.*PLACER_CACHE"):
        Store(tmp_path / "taken" / "a.sqlite").put([ROW])
    assert Store(tmp_path / "absent" / "a.sqlite").table("a model", "") == {}
    assert not (tmp_path / "absent").exists()
    for text in ("", "[]", "{}", '{"format": ', '{"format": "placer.measurements", "version": 3, "groups": []}'):
        (tmp_path / "import.json").write_text(text)
        with pytest.raises(StoreError, match=r"import\.json"):
            import_json(tmp_path / "import.json")
    with pytest.raises(StoreError, match=r"absent\.json"):
        import_json(tmp_path / "absent.json")


def altered(content: Any) -> Iterator[Any]:
    """Copies of JSON data, each with one value replaced."""
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, part in parts:
        for other in (*altered(part), None, True, -1, 1.5, 1e300, 2**55, 2**70, float("nan"), "x", "\ud800", [], {}):
            copy = content.copy()
            copy[key] = other
            yield copy


def test_an_altered_export_is_refused_before_it_reaches_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.sqlite")
    export_json([replace(ROW, signature=floats(8))], tmp_path / "export.json")
    refused = 0
    for content in altered(json.loads((tmp_path / "export.json").read_text())):
        (tmp_path / "altered.json").write_text(json.dumps(content))
        try:
            store.put(import_json(tmp_path / "altered.json"))
        except StoreError:
            refused += 1
    assert refused > 100
    accepted = list(store.rows())
    assert len(accepted) > 10
    assert all(
        type(figure) is int and 0 <= figure < MAX_FIGURE for row in accepted for figure in astuple(row.measured.typical())[:3]
    )
    export_json(accepted, tmp_path / "again.json")
    assert by_key(import_json(tmp_path / "again.json")).keys() == by_key(accepted).keys()


READER = """
import os, sys
from cost_models.store import Store, StoreError
store = Store(sys.argv[1])
if not os.getuid():
    os.setuid(65534)  # root may write everywhere, so become the user nobody
print(store.counts())
try:
    store.put([])
except StoreError as error:
    print(error)
"""

AGAIN = """
from cost_models.cache import listed
print(store.counts())
print(listed(store.path.parent, "*") + listed(store.path.parent, "*"))
"""


def test_a_folder_of_another_user_is_as_good_as_none() -> None:
    """HOME may be another user's, mode 700. It is told once."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "placer" / "a.sqlite")
        store.put([ROW])
        command = [sys.executable, "-c", READER + AGAIN, str(store.path)]
        output = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = output.stdout.splitlines()
    assert (lines[0], lines[2], lines[3]) == ("{}", "{}", "[]")
    assert "cannot be written" in lines[1]
    assert output.stderr.count("CacheWarning") == 2  # of the store and of the calibrations
    assert "Permission denied" in output.stderr


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_store_that_cannot_be_written_is_read(folder_mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "a.sqlite")
        store.put([ROW])
        store.path.chmod(0o444)
        os.chmod(folder, folder_mode)
        command = [sys.executable, "-W", "error", "-c", READER, str(store.path)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        os.chmod(folder, 0o755)
    assert output[0] == str({("a model", "2.21.0"): 1})
    assert "cannot be written" in output[1]


RELEASE = """
import sys
from dataclasses import replace
from cost_models import store as measurements
from cost_models.store import Store
from placer.plan import plan_store
from placer.plan.plan_store import PlanStore
from tests.cost_models.test_store import ROW, floats
from tests.plan.test_plan_store import entry

newer, first = int(sys.argv[1]), int(sys.argv[2])
for module in (measurements, plan_store):
    module.VERSION += newer
    schema = module._SCHEMA.replace(" TEXT", " BLOB") if newer else module._SCHEMA
    module._FORMAT = replace(module._FORMAT, version=module.VERSION, schema=schema)
for k in range(first, first + 20):
    Store().put([replace(ROW, signature=floats(k))])
    PlanStore().put(entry(k))
    assert PlanStore().get(entry(k).key) is not None
"""


def test_two_releases_share_a_folder_and_leave_each_other_alone(tmp_path: Path) -> None:
    """Each has its own file for a format that differs, also while both write at the same time."""
    environment = {**os.environ, "PLACER_CACHE": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", RELEASE]
    writers = [
        subprocess.Popen([*command, str(newer), str(first)], env=environment, stderr=subprocess.PIPE)
        for newer in (0, 1)
        for first in (0, 20)
    ]
    complaints = [writer.communicate()[1].decode() for writer in writers]
    assert complaints == [""] * len(writers)
    for table in ("measurements", "plans"):
        files = sorted(tmp_path.glob(f"{table}-*.sqlite"))
        assert len(files) == 2
        for file in files:
            with closing(sqlite3.connect(file)) as connection:
                assert connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone() == (40,)
    assert not list(tmp_path.glob("*aside*"))
