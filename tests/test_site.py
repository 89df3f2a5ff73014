"""The pages of docs/ for users: their programs run, and the messages that they explain are messages of the package."""

from __future__ import annotations

import inspect
import json
import re
import runpy
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import tensorflow as tf

import placer
from placer import Options, Placement, optimized_placement, place
from placer.command.main import main
from placer.problem.reasons import ReasonKind

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN_ELSEWHERE = {"architecture", "arena", "costs", "keras", "learning", "paper", "problems", "serving"}
"""Pages whose programs run in test_docs.py and test_evaluate.py, which look at their results."""
BEFORE = {
    "cluster": f"""
import re, placer
from pathlib import Path
from tests.helpers.graphs import layers

layers().save("graph.json")
Path("other-host.toml").write_text(placer.load_machine("h100").to_toml())
Path("cluster.toml").write_text(re.search("```toml\\n(.*?)```", Path({str(DOCS / "cluster.md")!r}).read_text(), re.DOTALL)[1])
""",
    "files": "from placer.command.main import main; main(['convert', 'family:montage,ops=30', 'montage.dax'])",
    "scaling": """
from placer.graph.shipped import shipped_graph

shipped_graph("attention_training").save("graph.json")
""",
    "solvers": """
import json
from tests.helpers.graphs import layers

layers().save("graph.json")
node = {"cpuLatency": 9.0, "fpgaLatency": 2.0, "size": 1.0, "supportedOnFpga": 1}
split = {"maxSizePerFPGA": 2.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [{"id": k, **node} for k in range(2)]}
json.dump(split | {"edges": [{"sourceId": 0, "destId": 1, "cost": 0.5}]}, open("workload.json", "w"))
pairs = {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3, 1]], "usages": [[2, 1], [1, 2]]}
stated = {"name": "two", "nodes": pairs, "edges": {"nodes": [[0, 1]], "costs": [[0, 9, 5, 0]]}, "usage_limit": 3}
json.dump({"problem": stated}, open("instance.json", "w"))
""",
    "under-a-strategy": """
import tensorflow as tf

tf.distribute.MirroredStrategy._collective_key_base += 100_000  # strategies of other tests have the first keys
""",
    "views": """
import placer
from tests.helpers.graphs import layers

placer.solve(layers(), "h100").save("plan.json")
""",
}
"""Of a page: a program that writes the files that its own programs read. It gives them no names: who copies them has none."""
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "```python" in page.read_text() and page.stem not in RUN_ELSEWHERE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
    program = re.sub(r"placer\.cluster\(.*?\)", '"cluster.toml"', program)  # its workers are not there
    # TensorFlow has started already, so devices cannot be divided any more.
    program = re.sub(r"^tf\.config\.set_logical_device_configuration\(.*\n", "", program, flags=re.MULTILINE)
    for name, source in (("before.py", BEFORE.get(page.stem, "")), ("page.py", program)):
        Path(name).write_text(source)
        runpy.run_path(name)


def test_messages_that_the_page_of_questions_explains_are_raised_by_the_package_in_a_test() -> None:
    fragments = re.findall(r'^\| "([^"]+)"', (DOCS / "faq.md").read_text(), re.MULTILINE)
    assert len(fragments) > 5
    for folder in ("placer", "tests"):
        source = "".join(path.read_text() for path in (ROOT / folder).rglob("*.py"))
        joined = re.sub(r'"\s+f?r?"', "", source)  # strings that are split over lines
        assert [fragment for fragment in fragments if fragment not in joined] == [], folder


def test_messages_about_plans_and_loops_are_those_that_the_page_of_questions_explains(tmp_path: Path) -> None:
    @tf.function
    def loop(n: Any) -> Any:
        x = tf.ones([4])
        while tf.reduce_sum(x) < tf.cast(n, tf.float32):
            x *= 2.0
        return x

    plan = placer.solve(placer.build_graph(loop, tf.TensorSpec([], tf.int32), devices="h100"), "h100")
    assert any("how often it runs cannot be read from the graph" in note for note in plan.notes)
    on_gpu = placer.simulate(plan.graph, {"while/*": "GPU:0"}, "h100")
    with pytest.raises(placer.DeviceError, match="cannot run here: the plan uses"):
        placer.apply(loop, on_gpu)(tf.constant(64))
    plan.save(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace("CPU:0", "GPU:0"))
    with pytest.raises(placer.PlanError, match="was changed after it was saved"):
        Placement.load(tmp_path / "plan.json")


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


def test_check_does_not_compare_plans_for_different_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, machine = str(tmp_path / "plan.json"), tmp_path / "mine.toml"
    machine.write_text(placer.load_machine("h100").to_toml().replace('"h100"', '"mine"', 1))
    assert main(["solve", "shipped:detector", "--devices", str(machine), "--out", saved]) == 0
    assert main(["check", saved, "shipped:detector"]) == 2
    assert "is for the machine 'mine'" in capsys.readouterr().err
    assert main(["check", saved, "shipped:detector", "--devices", str(machine)]) == 0


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


def test_the_page_on_why_an_op_is_on_the_cpu_lists_every_kind_of_reason() -> None:
    page = (DOCS / "how-to" / "why-on-the-cpu.md").read_text()
    kinds = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert kinds == set(get_args(ReasonKind))
