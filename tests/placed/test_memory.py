"""Plans that are remembered: a later start uses them and solves nothing; whatever happens to the file, calls are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import placer
from cost_models.base import OpSignature
from cost_models.cache import CacheWarning
from cost_models.measurements import Measurement, Row
from cost_models.store import Store
from placer.placed import memory
from placer.plan import plan_store
from placer.plan.plan_store import PlanStore, packed
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.base import Objective, Solution
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.run import timing
from tests.helpers import forked
from tests.helpers.harness import (
    DEVICES,
    Program,
    RandomLegal,
    behaviour,
    compare,
    observes_as_planned,
    outcome,
    soft_placement,
    traceable,
    with_tape_inside,
)
from tests.helpers.machines import cpus, two_cpus
from tests.helpers.programs import Source, programs

solved: list[str] = []
"""The solvers that solved something."""


@dataclass(frozen=True)
class Noted(RandomLegal):
    """Notes its calls."""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        solved.append(self.name)
        return super().solve(problem, objective, time_limit_s=time_limit_s, seed=seed)


@contextmanager
def cache_in(folder: Path) -> Iterator[Path]:
    """The cache is in this folder, and what was solved before is forgotten."""
    solved.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLACER_CACHE", str(folder))
        yield folder / f"plans-{plan_store.VERSION}.sqlite"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    with cache_in(tmp_path) as path:
        yield path


X = tf.constant(np.random.default_rng(0).standard_normal((16, 16)).astype("f"))


def step(x: Any) -> Any:
    return tf.reduce_sum(tf.matmul(tf.tanh(x), x), axis=0)


def place(fn: Any = step, *args: Any, **options: Any) -> Any:
    """As a new start of a script would place it."""
    return placer.place(fn, *(args or (X,)), **{"devices": two_cpus(), "solver": Noted(0), **options})


@settings(max_examples=10)
@given(programs(), st.integers(0, 99), st.booleans())
def test_a_second_start_runs_by_the_same_plan_and_solves_nothing(
    tmp_path_factory: pytest.TempPathFactory, source: Source, seed: int, inside: bool
) -> None:
    def build() -> Program:
        return with_tape_inside(source.build()) if inside else source.build()

    plain = build()
    try:
        expected = behaviour(plain, traceable(plain.fn))
    except placer.TraceError:
        assume(not inside)
        raise
    assume(inside or not isinstance(expected.get("gradient"), Exception))
    raises = isinstance(outcome(plain, traceable(plain.fn)), Exception)
    with cache_in(tmp_path_factory.mktemp("cache")), soft_placement(False):
        placements = []
        for start in range(2):
            solved.clear()
            program = build()
            placed = placer.place(program.fn, devices=DEVICES, solver=Noted(seed))
            compare(f"start {start}", expected, behaviour(program, placed), program)
            assert bool(solved) == (start == 0)
            observes_as_planned(f"start {start}", program, placed, raises)
            placements.append(dict(placed.placements))
        assert bool(solved) == (start == 0)
        first, second = placements
        assert first.keys() == second.keys()
        for name, plan in first.items():
            assert plan.to_json() == second[name].to_json()


def bend(x: Any) -> Any:
    return tf.sin(x)


def other_step(x: Any) -> Any:
    return tf.reduce_sum(tf.matmul(bend(x), x), axis=0)


CHANGES = {
    "graph": lambda: place(other_step),
    "a constant": lambda: place(lambda x: step(x) + 1.0),
    "sizes": lambda: place(step, X[:8, :8]),
    "pins": lambda: place(pins={"Tanh": "CPU:1"}),
    "limits": lambda: place(memory_limits={"CPU:1": "1GiB"}),
    "seed": lambda: place(seed=3),
    "the solver's state": lambda: place(solver=Noted(1)),
    "machine": lambda: place(devices=two_cpus(link_latency_ns=2_000)),
    "an argument's device": lambda: place(step, on("CPU:1", X)),
    "a device scope": lambda: place(lambda x: scoped(step, x)),
}


def on(device: str, value: Any) -> Any:
    with tf.device(device):
        return tf.identity(value)


def scoped(fn: Any, *args: Any) -> Any:
    with tf.device("CPU:1"):
        return fn(*args)


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_plan_is_planned_anew(store: Path, change: str) -> None:
    place()
    place()
    assert len(solved) == 1
    for _ in range(2):
        CHANGES[change]()
        assert len(solved) == 2


@pytest.mark.parametrize("of", ["__version__", "installed_tensorflow", "PLAN_VERSION"])
def test_another_release_plans_anew(store: Path, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    place()
    monkeypatch.setattr(memory, of, (lambda: "9.9") if of == "installed_tensorflow" else "9.9")
    place()
    assert len(solved) == 2


def test_new_measurements_make_a_new_plan(store: Path) -> None:
    place()
    Store().put([Row("a model", "2.21.0", OpSignature("MatMul", (), ()), Measurement(3, 1, 2, 0.1))])
    place()
    assert len(solved) == 2
    place(cost_model="analytic")
    Store().put([Row("a model", "2.21.0", OpSignature("Tanh", (), ()), Measurement(3, 1, 2, 0.1))])
    place(cost_model="analytic")
    assert len(solved) == 3


def test_a_plan_is_made_anew_where_the_free_memory_is_another(store: Path) -> None:
    """What other programs hold of a device's memory is no part of the key: it changes by a little from start to start."""
    machine = two_cpus()
    whole = machine.device("CPU:1").memory_bytes
    peak = place().placement.totals["CPU:1"].peak_bytes

    def with_free(nbytes: int) -> Any:
        return place(devices=replace(machine, reserve_bytes={"CPU:1": whole - nbytes}))

    with_free(whole - whole // 100)
    assert len(solved) == 1
    with_free(2 * peak)  # it fits, and was made with more
    assert len(solved) == 1
    with pytest.raises(placer.PlacerError):
        with_free(peak // 2)  # the solver takes no limits into account
    with_free(2 * peak)
    assert len(solved) == 2


def test_what_a_tuning_chose_is_remembered(store: Path) -> None:
    first = placer.place(step, devices=two_cpus())
    first.tune(X, budget_s=2)
    second = placer.place(step, devices=two_cpus())
    np.testing.assert_allclose(second(X), step(X), rtol=1e-5)
    assert second.placement.verdict == first.placement.verdict
    assert second.placement.verdict is not None


def test_what_a_first_call_learnt_is_remembered_with_the_plan(store: Path) -> None:
    def masked(x: Any) -> Any:
        return tf.boolean_mask(x, x[:, 0] > 0.0) @ tf.ones([16, 4])

    expected, kept = masked(X), int((X[:, 0] > 0).numpy().sum())
    graphs = []
    for _ in range(2):
        placed = placer.place(masked, devices=two_cpus(), solver=Noted(0))
        np.testing.assert_allclose(placed(X), expected, rtol=1e-5)
        graphs.append(placed.placement.graph)
    assert len(solved) == 1
    assert graphs[0] == graphs[1]
    assert {size.source for sizes in graphs[1].sizes.values() for size in sizes if size} == {"seen"}
    assert graphs[1].op("matmul").signature.outputs[0].shape == (kept, 4)


def raced(taped: bool) -> Any:
    """A new start, whose calls race until they have decided."""
    placed = placer.place(step, devices=two_cpus(), solver=Noted(0), race="force")
    for _ in range(60):
        with tf.GradientTape() if taped else nullcontext() as tape:
            if taped:
                tape.watch(X)
            result = placed(X)
        np.testing.assert_allclose(result, step(X), rtol=1e-5)
        if taped:
            tape.gradient(result, X)
        if placed.placement.verdict is not None:
            return placed
    raise AssertionError("the race does not end")


@pytest.mark.parametrize("taped", [False, True])
@pytest.mark.parametrize("plan_wins", [False, True])
def test_a_second_start_does_not_race_again(store: Path, monkeypatch: pytest.MonkeyPatch, taped: bool, plan_wins: bool) -> None:
    timed: list[Any] = []

    def timed_call(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        timed.append(run)
        return run(*args, **kwargs), 1e-3 if isinstance(run, TapedFunction) == plan_wins else 2e-3

    monkeypatch.setattr(timing, "timed_call", timed_call)
    first = raced(taped)
    assert timed
    timed.clear()
    solved.clear()
    second = raced(taped)
    assert not solved
    assert not timed
    assert second.placement.to_json() == first.placement.to_json()
    Store().put([Row("a model", "2.21.0", OpSignature("MatMul", (), ()), Measurement(3, 1, 2, 0.1))])
    assert raced(taped).placement.verdict == first.placement.verdict
    assert not timed  # what calls took stays true when other measurements change
    assert taped or not solved
    if not taped:
        ran = set(second.observe(X).ran.values())
        assert ran == ({"CPU:0", "CPU:1"} if plan_wins else {"CPU:0"})
        second.signatures.plan_again(second.signatures.latest)
        raced(taped)
        assert solved


def test_a_start_that_ended_before_its_race_races_anew(store: Path) -> None:
    for _ in range(2):
        solved.clear()
        placed = placer.place(step, devices=two_cpus(), solver=Noted(0), race="force")
        placed(X)
        assert solved
        assert placed.placement.verdict is None
    for start in range(2):
        solved.clear()
        placed = placer.place(step, devices=two_cpus(), solver=Noted(0), race="force")
        np.testing.assert_allclose(tf.function(lambda x, placed=placed: placed(x) + 1.0)(X), step(X) + 1.0, rtol=1e-5)
        assert bool(solved) == (start == 0)  # calls in a graph do not race
    placed(X)
    assert solved


SCRIPT = """
import os, sys, warnings
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
sys.path.insert(0, os.getcwd())
import tensorflow as tf
import placer
from placer.problem.problem import Assignment
from tests.helpers.machines import cpus, two_cpus

def counted(problem):
    if sys.argv[1]:
        with open(sys.argv[1], "a") as file:
            file.write("x")
    return Assignment(problem.units.allowed.argmax(axis=1))

for _ in range(int(sys.argv[2])):
    tf.function(lambda: tf.constant(1.0))()  # TensorFlow numbers functions
inner = tf.function(lambda x, w: tf.nn.softmax(x @ w))
weights = [tf.Variable(tf.ones([8, 8]) * k, name=f"w{k}") for k in range(4)]

@tf.function
def step(x):
    for w in weights:
        x = inner(x, w) + tf.numpy_function(lambda v: v, [x], tf.float32)
        w.assign_add(tf.eye(8))
    while tf.reduce_sum(x) > 1.0:
        x = 0.5 * x
    return x

step.get_concrete_function(tf.eye(8))  # AutoGraph writes a file
limit = int(sys.argv[3])
if limit >= 0:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

def run(step, *variables):
    placed = placer.place(step, devices=two_cpus(), solver=counted)
    with tf.GradientTape() as tape:
        result = tf.reduce_sum(placed(tf.eye(8)))
    return float(result), [float(tf.reduce_sum(g)) for g in tape.gradient(result, variables)]

if len(sys.argv) > 4:
    cache = os.environ["PLACER_CACHE"]
    os.environ["PLACER_CACHE"] = f"{cache}-2"
    run(lambda x: x * weights[0], weights[0])  # imports all modules, which nobody may not read
    os.environ["PLACER_CACHE"] = cache
    os.setuid(65534)  # root may read everything, so become the user nobody
print(run(step, weights[0]), flush=True)
"""


def start(folder: Path, numbers: int = 0, limit: int = -1, *more: str) -> subprocess.CompletedProcess[str]:
    """A start of the script. One with other numbers of functions has another order of sets, too."""
    (folder / "script.py").write_text(SCRIPT)
    solved = str(folder / "solved") if limit < 0 and not more else ""  # these starts can write no file
    arguments = (str(folder / "script.py"), solved, str(numbers), str(limit), *more)
    environment = os.environ | {"PLACER_CACHE": str(folder / "cache"), "PYTHONHASHSEED": str(numbers)}
    if numbers:
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    else:
        done = forked.run(*arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def first_start(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a first start of the script, and what it prints."""
    folder = tmp_path_factory.mktemp("start")
    return folder, start(folder).stdout


def test_a_second_process_solves_nothing(first_start: tuple[Path, str]) -> None:
    folder, printed = first_start
    solved_before = (folder / "solved").read_text()
    assert start(folder, 7).stdout == printed
    assert solved_before == (folder / "solved").read_text() != ""


def test_a_full_disk_stops_no_call(tmp_path: Path, first_start: tuple[Path, str]) -> None:
    full = start(tmp_path, 0, 20_000)
    assert full.stdout == first_start[1]
    assert full.stderr.count("CacheWarning") == 1


def test_a_folder_of_another_user_stops_no_call(first_start: tuple[Path, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "cache").mkdir(mode=0o700)
        other = start(folder, 0, -1, "as nobody")
    assert other.stdout == first_start[1]
    assert "CacheWarning" in other.stderr


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 255)), min_size=1, max_size=200))
def test_calls_are_right_whatever_bytes_of_the_file_changed(
    tmp_path_factory: pytest.TempPathFactory, bytes_at: list[tuple[int, int]]
) -> None:
    with cache_in(tmp_path_factory.mktemp("cache")) as path:
        place()
        content = bytearray(path.read_bytes())
        for position, byte in bytes_at:
            content[position % len(content)] = byte
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            placed = place()
            np.testing.assert_allclose(placed(X), step(X), rtol=1e-5)
            assert placed.placement.fingerprint == placer.build_graph(step, X).fingerprint
            assert place().placement.ops == placed.placement.ops


@pytest.mark.parametrize("what", ["another plan's", "no plan's", "too few ops'"])
def test_an_entry_of_another_plan_is_not_used_or_replaced(store: Path, what: str) -> None:
    """It is whole, but under the wrong key, as a collision of keys would leave it."""
    place()
    place(other_step)
    other, mine = (PlanStore().get(e.key) for e in PlanStore().listed())
    assert mine is not None
    assert other is not None
    calls = plan_store.unpacked(mine.call_plan)
    false = {
        "another plan's": replace(mine, call_plan=other.call_plan, plan=other.plan),
        "no plan's": replace(mine, call_plan=packed(["x"]), plan=b"y"),
        "too few ops'": replace(
            mine, call_plan=packed({**calls, "ops": calls["ops"][:-1], "device_of": calls["device_of"][:-1]})
        ),
    }[what]
    PlanStore().put(false)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        placed = place()
        np.testing.assert_allclose(placed(X), step(X), rtol=1e-5)
    assert len(solved) == 3
    assert placed.placement.fingerprint == placer.build_graph(step, X).fingerprint


def test_a_plan_that_turns_out_to_be_of_another_graph_is_made_anew(store: Path) -> None:
    """The devices fit, the graph does not: that shows when the whole plan is asked for."""
    place()
    place(step, X[:8, :8])
    entries = {e.signature: PlanStore().get(e.key) for e in PlanStore().listed()}
    mine, other = entries["float32[16,16]"], entries["float32[8,8]"]
    assert mine is not None
    assert other is not None
    PlanStore().put(replace(mine, plan=other.plan))
    placed = place()
    np.testing.assert_allclose(placed(X), step(X), rtol=1e-5)
    assert len(solved) == 2
    assert placed.placement.fingerprint == placer.build_graph(step, X).fingerprint
    assert len(solved) == 3
    np.testing.assert_allclose(placed(X), step(X), rtol=1e-5)
    assert place().placement.ops == placed.placement.ops
    assert len(solved) == 3


@pytest.mark.parametrize("devices", [cpus(1), None])
def test_calls_that_have_nothing_to_race_about_run_by_the_remembered_plan(store: Path, devices: Any) -> None:
    for start in range(2):
        solved.clear()
        placed = placer.place(step, devices=devices, solver=Noted(0), race="force" if devices else "off")
        np.testing.assert_allclose(placed(X), step(X), rtol=1e-5)
        assert bool(solved) == (start == 0)


def test_what_cannot_be_recognised_is_not_remembered(store: Path) -> None:
    """The solver's closure has something that cannot be pickled, so no later start could tell that it is the same."""
    lock = open(os.devnull)  # noqa: SIM115

    def mine(problem: PlacementProblem) -> Assignment:
        solved.append("mine")
        return Assignment(problem.units.allowed.argmax(axis=1) * (not lock.closed))

    place(solver=mine)
    place(solver=mine)
    assert solved == ["mine", "mine"]
    lock.close()


def test_disabled_functions_run_plain(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_DISABLE", "1")
    placed = (
        placer.optimized_placement(step, devices=two_cpus(), solver=Noted(0)) if False else placer.place(step, devices=two_cpus())
    )
    assert (placed(X) == tf.function(step)(X)).numpy().all()
    with pytest.raises(placer.PlanError, match="PLACER_DISABLE"):
        _ = placed.placement
    with pytest.warns(placer.PlacementWarning, match="PLACER_DISABLE"):
        placed = place()
    np.testing.assert_allclose(placed.get_concrete_function(X)(X), step(X), rtol=1e-5)
    assert not solved
    monkeypatch.setenv("PLACER_DISABLE", "0")
    assert place().placement.ops


def test_the_command_lists_shows_and_clears(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from placer.command.main import main

    assert main(["cache"]) == 0
    assert "no plan" in capsys.readouterr().out
    first = place().placement
    place(other_step)
    assert main(["cache", "--json"]) == 0
    other, mine = json.loads(capsys.readouterr().out)["plans"]
    assert (mine["function"], other["function"]) == ("step", "other_step")
    assert main(["cache"]) == 0
    assert mine["key"][:12] in capsys.readouterr().out
    assert main(["cache", "show", mine["key"][:12], "--save", str(tmp_path / "plan.json")]) == 0
    assert first.summary() in capsys.readouterr().out
    assert placer.Placement.load(tmp_path / "plan.json").ops == first.ops
    assert main(["cache", "show"]) == main(["cache", "show", "no such key"]) == 2
    assert main(["cache", "clear", mine["key"]]) == 0
    capsys.readouterr()
    assert main(["cache", "--json"]) == 0
    assert [plan["key"] for plan in json.loads(capsys.readouterr().out)["plans"]] == [other["key"]]
    assert main(["cache", "clear"]) == 0
    place(other_step)
    assert len(solved) == 3
