"""The store of plans: several processes lose nothing, the oldest plans go, and a damaged entry counts as none."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.cache import CacheWarning
from placer.plan import plan_store
from placer.plan.plan_store import Entry, PlanStore, packed, unpacked


def entry(number: int, size: int = 100) -> Entry:
    content = np.random.default_rng(number).bytes(size)
    return Entry(f"{number:064}", "", False, "step", "float32[]", "two-cpus", 3, "1 ms", packed({"number": number}), content)


def test_the_oldest_plans_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_store, "MAX_BYTES", 10_000)
    store = PlanStore(tmp_path / "plans.sqlite")
    for number in (1, 2, 3, 1, 4):
        store.put(entry(number, 3_000))
    assert [int(kept.key) for kept in store.listed()] == [4, 1, 3]
    assert store.get(entry(1).key) is not None
    assert store.get(entry(2).key) is None
    assert store.path.stat().st_size < 100_000


WRITER = """
import sys
from pathlib import Path
from placer.plan.plan_store import Entry, PlanStore, packed
store, writer = PlanStore(Path(sys.argv[1])), int(sys.argv[2])
for number in range(5):
    made = Entry(f"{writer}-{number}", "", False, "step", "", "", 3, "", packed({"number": number}), bytes(50_000))
    store.put(made)
    assert store.get(made.key) == made
    store.put(Entry("shared", "", False, "step", "", "", writer, "", packed({"number": writer}), bytes(1_000 * writer)))
    shared = store.get("shared")
    assert shared is not None and len(shared.plan) == 1_000 * shared.ops
"""


@pytest.mark.parametrize("content", [b"", b"not a database. " * 100])
def test_ten_processes_at_once_lose_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plans.sqlite"
    path.write_bytes(content)
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, str(writer)], stderr=subprocess.PIPE) for writer in range(10)]
    complaints = [writer.communicate()[1].decode() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 10, complaints
    assert len(PlanStore(path).listed()) == 51
    assert sum("aside-1" in complaint for complaint in complaints) == (content != b"")


@given(st.sampled_from(["key", "prices", "function", "call_plan", "plan", "measured"]), st.binary(max_size=20))
def test_a_changed_entry_counts_as_none(tmp_path_factory: pytest.TempPathFactory, column: str, value: bytes) -> None:
    store = PlanStore(tmp_path_factory.mktemp("plans") / "plans.sqlite")
    store.put(entry(1))
    before = entry(1) if column == "key" else store.get(entry(1).key)
    assert before is not None
    changed = replace(
        before, **{column: value if "plan" in column else value.hex() if column != "measured" else not before.measured}
    )
    with closing(sqlite3.connect(store.path)) as connection, connection:  # as another program might
        connection.execute(f"UPDATE plans SET {column} = ?", (getattr(changed, column),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert store.get(changed.key) is None or changed == before
        assert store.get(changed.key) is None or changed == before


@given(st.binary(max_size=100))
def test_content_that_is_none_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (any message)
        unpacked(content)
