"""The pages say what is there, and their examples run."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import placer
from cost_models.ops import table as ops_table
from placer.command.main import main
from placer.placed.race import sequential_test
from placer.placed.race.calls import Watch
from placer.plan.views import views
from placer.research.choices import FEATURES
from placer.research.instances.iopddl import load_pairwise
from placer.solvers.base import MIN_GAIN
from placer.solvers.registry import solvers
from placer.views.shared import glossary
from tests.helpers.graphs import layers
from tests.helpers.pairwise import optimum
from tests.helpers.splits import least_latency_ns, least_max_load_ns
from tests.solvers.test_grid import KNOW_LIMITS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
INDEX = (ROOT / "docs" / "index.md").read_text()
SUMMARY = (ROOT / "docs" / "summary.md").read_text()
SOLVERS = (ROOT / "docs" / "solvers.md").read_text()
VIEWS = (ROOT / "docs" / "views.md").read_text()
ARENA = (ROOT / "docs" / "arena.md").read_text()
COSTS = (ROOT / "docs" / "costs.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_architecture_page_names_every_room_and_no_other() -> None:
    named: set[str] = set()
    folders: dict[int, str] = {}
    for indent, name in re.findall(r"^( *)(\w+/)(?= |$)", code(ARCHITECTURE, "", containing="cost_models/"), re.MULTILINE):
        folders[len(indent)] = folders.get(len(indent) - 2, "") + name
        named.add(folders[len(indent)])
    folders_of = [path for package in ("placer", "cost_models") for path in (ROOT / package, *(ROOT / package).rglob("*"))]
    rooms = {str(path.relative_to(ROOT)) + "/" for path in folders_of if path.is_dir() and path.name != "__pycache__"}
    assert named == rooms


def test_the_summary_on_its_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "shipped:detector"]) == 0
    printed, shown = capsys.readouterr().out, code(SUMMARY, "", containing="TensorFlow's default:")
    assert "`placer solve shipped:detector` prints" in SUMMARY
    seconds = re.compile(r"\d+\.\d\d s;")
    assert seconds.sub("", printed).strip() == seconds.sub("", shown).strip()


def test_the_examples_for_contributors_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heuristic = run(textwrap.dedent(code(CONTRIBUTING, "python", containing="def least_time")), tmp_path)["solver"]
    plan = placer.solve(layers(), "h100", solver=heuristic())
    assert plan.solver == "mine"
    assert run(code(CONTRIBUTING, "python", containing="def mine(placement"), tmp_path)["mine"](plan).count("\n") == 9
    monkeypatch.setattr(ops_table, "_ENTRIES", dict(ops_table._ENTRIES))
    run(code(CONTRIBUTING, "python", containing="register("), tmp_path)
    assert {"MySquash", "MyReshape"} <= ops_table.types_where()


def test_the_solver_on_the_architecture_page_solves(tmp_path: Path) -> None:
    names = run(code(ARCHITECTURE, "python"), tmp_path)
    placement = placer.solve(layers(), "h100", solver=names["Cheapest"]())
    assert placement.solver == "cheapest"


def test_the_heuristic_on_the_solvers_page_is_a_solver_by_itself_and_by_entry_point(tmp_path: Path) -> None:
    names = run(code(SOLVERS, "python", containing="def two_passes"), tmp_path)
    graph = layers()
    placement = placer.solve(graph, "h100", solver=names["two_passes"])
    assert placement.solver == "two_passes"
    assert placer.solve(graph, "h100", solver=names["solver"]()).ops == placement.ops


def test_the_programs_on_the_solvers_page_solve_what_files_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [{"id": k, "cpuLatency": 9.0, "fpgaLatency": 2.0, "size": 1.0, "supportedOnFpga": 1} for k in range(4)]
    edges = [{"sourceId": k, "destId": k + 1, "cost": 0.5} for k in range(3)]
    workload = {"maxSizePerFPGA": 2.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}
    (tmp_path / "workload.json").write_text(json.dumps(workload))
    choices = {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3, 1]], "usages": [[2, 1], [1, 2]]}
    stated = {"name": "two", "nodes": choices, "edges": {"nodes": [[0, 1]], "costs": [[0, 9, 5, 0]]}, "usage_limit": 3}
    (tmp_path / "instance.json").write_text(json.dumps({"problem": stated}))

    names = run(code(SOLVERS, "python", containing="load_split"), tmp_path)
    assert names["busiest"].objective_ns == least_max_load_ns(names["split"])
    assert names["quickest"].objective_ns == least_latency_ns(names["split"])
    chosen = run(code(SOLVERS, "python", containing="load_pairwise"), tmp_path)["chosen"]
    assert chosen.cost == optimum(load_pairwise("instance.json"))


def test_the_solvers_page_lists_every_solver_and_says_which_know_limits() -> None:
    """The grid test holds those to it."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| (\w+) \|", SOLVERS, re.MULTILINE)
    assert [name for name, _ in rows] == list(solvers())
    assert {name for name, limits in rows if limits == "yes"} == KNOW_LIMITS


def test_the_page_of_serving_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "serving.md").read_text()
    function = tf.function(lambda x: {"y": tf.tanh(x)}, input_signature=[tf.TensorSpec([None, 64], name="x")])
    tf.saved_model.save(tf.Module(), "model", signatures=function)
    names = run("\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)), tmp_path)
    assert names["results"]["y"].shape == (17, 64)
    assert f"at most {1 / (1 - MIN_GAIN) - 1:.0%} longer" in page
    assert main(["place", "model", "by_command", "--devices", "h100", "--sizes", "x=32"]) == 0
    assert "placer place model placed --devices h100 --sizes x=32" in page


def test_the_readme_shows_the_programs_of_the_start_page_and_what_they_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The programs of the start page run in test_site.py."""
    assert len(README.splitlines()) < 120
    programs = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert programs == re.findall(r"^```python\n(.*?)^```$", INDEX, re.MULTILINE | re.DOTALL)
    run(programs[0], tmp_path)
    assert capsys.readouterr().out.startswith(code(README, "", containing="TensorFlow's default:"))


def test_figures_of_ones_own_are_given_as_the_page_of_costs_says(tmp_path: Path) -> None:
    given = "import placer\nfrom tests.helpers.graphs import layers\n\ngraph = layers()\n"
    placement = run(given + code(COSTS, "python", containing="OverrideModel"), tmp_path)["placement"]
    product = placement.ops["layer0/MatMul"]
    assert (product.time_ns["CPU:0"], product.cost_sources["CPU:0"]) == (50_000, "user")
    assert product.cost_sources["GPU:0"] != "user"


def test_the_page_of_races_shows_a_verdict_as_it_is_printed_and_states_the_limits() -> None:
    page = (ROOT / "docs" / "race.md").read_text()
    printed = (ROOT / "tests" / "data" / "text" / "summary-raced.txt").read_text().splitlines()
    assert {line for line in code(page, "", containing="candidate").splitlines() if line} <= set(printed)
    text = " ".join(page.split())
    assert f"after {sequential_test.MAX_CALLS} calls" in text
    assert f"{sequential_test.MAX_EXCESS_S} s more than the fastest" in text
    assert f"at most {sequential_test.ERROR:.0%} of races" in text
    assert f"at least {sequential_test.MIN_GAIN:.0%} less time" in text
    assert f"One call in {Watch.WATCH_EVERY} is timed" in text
    assert f"more than {Watch.SLOWER} times the time of the verdict" in text


def test_the_step_that_the_page_of_costs_simulates_has_its_ops_where_the_page_says() -> None:
    import tensorflow as tf

    def step(images: Any, labels: Any) -> Any:
        with tf.name_scope("dense"):
            return tf.matmul(images, labels, name="MatMul")

    names = {"placer": placer, "step": step, "images": tf.ones([8, 8]), "labels": tf.ones([8, 8])}
    for line in re.findall(r"^ *(\w+ = placer\.(?:build_graph|simulate)\(.*)$", COSTS, re.MULTILINE):
        exec(line, names)
    (plan,) = (value for value in names.values() if isinstance(value, placer.Placement))
    assert plan.assigned == {"dense/MatMul": "CPU:0"}


def test_the_program_on_the_arena_page_compares_and_its_records_have_the_fields_listed(tmp_path: Path) -> None:
    patient = "from placer.research.arena import arena\n\narena.MIN_GRACE_S = 600.0  # a busy machine is no fault of a solver\n"
    (tmp_path / "page.py").write_text(patient + code(ARENA, "python"))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    assert done.returncode == 0
    records = placer.Comparison.load(tmp_path / "results.jsonl").records
    assert {record["outcome"] for record in records} == {"answered"}
    assert {record["solver"] for record in records} == {"least_time", "heft", "annealing", "auto"}
    rows = re.findall(r"^\| (`[^|]*`) \|", ARENA[ARENA.index("## Records") : ARENA.index("## Real graphs")], re.MULTILINE)
    listed = {name.removesuffix(".DEVICE") for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert {name.partition(".")[0] for record in records for name in record} == listed


def test_the_page_of_learning_trains_a_policy_and_writes_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "learning.md").read_text()
    (record,) = (r for r in run(code(page, "python"), tmp_path)["comparison"].records if r["solver"] == "trained")
    assert record["outcome"] == "answered"
    run(code(page, "python", containing="graph_features"), tmp_path)
    assert (tmp_path / "graph.npz").exists()
    assert tuple(re.findall(r"^\| `(\w+)` \|", page[page.index("| feature |") :], re.MULTILINE)) == FEATURES


def test_the_study_on_the_page_of_papers_makes_its_files(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "paper.md").read_text()
    (tmp_path / "noisy_finish.py").write_text(code(page, "python", containing="def noisy_finish"))
    study = code(page, "python", containing="placer.arena(")
    for whole, part in (("range(5)", "range(1)"), (', "series_parallel", "towers")', ")"), ("[5_000]", "[500]")):
        assert whole in study
        study = study.replace(whole, part)
    (tmp_path / "study.py").write_text(study)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "study.py"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    records = placer.Comparison.load(tmp_path / "results.jsonl").records
    assert {record["outcome"] for record in records if record["solver"] == "noisy_finish"} == {"answered"}
    names = [line.split("  ")[0] for line in code(page, "", containing="Mean ranks").splitlines()]
    assert {line.split("  ")[0] for line in ran.stdout.splitlines() if not line.startswith(("Mean", "Friedman"))} <= {*names}
    written = {path.name for path in (tmp_path / "paper").iterdir()}
    assert written >= {f"{name}.tex" for name in re.findall(r"input\{paper/(\w+)\}", page)} | {"schedule.svg"}
    section = ARENA[ARENA.index("## Files for a paper") : ARENA.index("## Records")]
    listed = re.findall(r"^\| ([`\w, .]+) \|", section, re.MULTILINE)
    assert len(written) == 1 + sum(len(re.findall(r"[`.]\w+`", row)) for row in listed)


def test_the_page_of_what_is_supported_names_every_test_of_it_and_no_other() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs" / "supported.md").read_text()))
    existing = {path.name for path in (ROOT / "tests" / "semantics").glob("test_*.py")}
    assert named == existing - {"test_handed_cases.py"}


def test_the_page_of_views_lists_every_view_and_every_attribute() -> None:
    def named(first: str) -> set[str]:
        """What the first column of the table with this head names."""
        lines = VIEWS[VIEWS.index(first) :].partition("\n\n")[0].splitlines()[2:]
        return {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}

    assert named("| view |") == set(views())
    plan = placer.solve(layers(), "h100")
    assert named("| column, node attribute") == set(plan.records()[0])
    nodes, edges = plan.to_networkx().nodes(data=True), plan.to_networkx().edges(data=True)
    assert {key for _, data in nodes for key in data} == named("| column, node attribute") - {"name"}
    assert {key for *_, data in edges for key in data} == named("| edge attribute")


def test_the_program_on_the_page_of_keras_trains_a_model_by_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "keras.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = run("".join(blocks), tmp_path)
    assert "sizes [32,20] of 'x'" in names["plan"].summary()
    assert names["pinned"].placement.train.device_of("classifier/embed/GatherV2") == "CPU:0"
    assert (tmp_path / "report.html").exists()


def test_the_glossary_is_as_the_table_of_terms_says_and_linked() -> None:
    assert (ROOT / "docs" / "glossary.md").read_text() == glossary.markdown()
    assert "/docs/glossary.md)" in README
    assert "(glossary.md)" in VIEWS


def code(page: str, language: str, containing: str = "") -> str:
    """The first code block of a page in that language that contains the text."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    return next(block for kind, block in blocks if kind == language and containing in block)


def run(source: str, folder: Path) -> dict[str, Any]:
    """The names that a page's code defines."""
    (folder / "page.py").write_text(source)
    return runpy.run_path(str(folder / "page.py"))
