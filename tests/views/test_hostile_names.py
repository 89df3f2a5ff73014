"""Names with any character: every view of such a plan is well formed, and shows no character that a terminal or a page obeys."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from placer.command.main import main
from placer.graph.op_graph import OpGraph
from placer.plan.placement import Placement
from placer.plan.views import views
from placer.verbs.solve import solve
from tests.helpers.browser import ALL, chromium, open_in_netron, open_report, tensorboard, wait
from tests.helpers.effort import EFFORT
from tests.helpers.graphs import GraphBuilder, floats

HOSTILE = [
    "red\x1b[31m",
    "title\x1b]0;owned\x07",
    "nul\x00",
    "c1\x9b31m",
    "del\x7f",
    "surrogate\ud800",
    "reversed\u202etxt",
    "separator\u2028",
    "line\nnote: all is well",
    "carriage\rreturn",
    "\\x1b",
    "\x1b",
    '"quoted"\\',
    "<script>document.title='owned'</script>",
    "]]>--><img src=x onerror=document.title='owned'>",
    "$\\frac{1}{0}$",
    "[bold red]markup[/]",
    "&amp;",
    "👍",
]


def plan_of(names: list[str]) -> Placement:
    """A chain of ops of these names, with crossings, in a function, on a machine and by a solver of such names too."""
    graph = GraphBuilder(names[0])
    graph.argument("x", floats(4))
    before = "x"
    for k, name in enumerate(names):
        before = graph.op(f"{name}/{k}", "Relu", [f"{before}:0"])
    ends = {f"{name}/{k}": f"{('CPU', 'GPU')[k % 2]}:0" for k, name in enumerate(names) if not set(name) & set("*?[")}
    return solve(graph.build(before), "h100", pins=ends)


PLAN = plan_of(HOSTILE)
TEXTS = [name for name in views() if name not in {"html", "json", "timeline", "netron", "tensorboard", "explain"}]
OPTIONAL = {"svg": "matplotlib", "notebook": "matplotlib", "rich": "rich", "netron": "tensorboard", "tensorboard": "tensorboard"}


def view(plan: Placement, name: str) -> str | bytes | dict[str, bytes]:
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    return plan.view(name, **({"op": plan.graph.find(list(plan.ops)[-1]).name} if name == "explain" else {}))


def only_shows(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", TEXTS)
def test_text_has_no_character_that_is_obeyed(name: str) -> None:
    text = str(view(PLAN, name))
    assert only_shows(text)
    assert "note: all is well" not in text.split("\n")


def test_every_op_is_explained() -> None:
    for name in PLAN.ops:
        text = PLAN.explain(name)
        assert only_shows(text)
        assert not any(line.startswith("note") for line in text.split("\n"))


def test_a_table_has_a_row_for_each_op() -> None:
    assert len(str(PLAN.view("ops")).split("\n")) == len(PLAN.ops) + 2


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", ["svg", "graphml"])
def test_xml_is_well_formed(name: str) -> None:
    root = ElementTree.fromstring(str(view(PLAN, name)).encode())
    if name == "graphml":
        nodes = [node.get("id") for node in root.iter("{http://graphml.graphdrawing.org/xmlns}node")]
        assert len(set(nodes)) == len(PLAN.ops)


def test_dot_has_only_the_strings_that_it_means() -> None:
    """A string of DOT ends at a quote without a backslash before it."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", str(PLAN.view("dot")))
    assert not re.search(r'["\\<&$]', outside)


@pytest.mark.parametrize("name", ["json", "timeline"])
def test_json_has_the_names_as_they_are(name: str) -> None:
    assert str(view(PLAN, name)).isascii()
    assert all(json.dumps(op)[1:-1] in str(view(PLAN, name)) for op in PLAN.ops if PLAN.ops[op].end_ns > PLAN.ops[op].start_ns)


def test_graph_defs_have_a_node_for_each_op_and_its_inputs() -> None:
    graph = tf.compat.v1.GraphDef.FromString(view(PLAN, "netron"))
    names = {node.name for node in graph.node}
    assert len(names) == len(graph.node) == len(PLAN.ops)
    assert all(text in names for node in graph.node for text in node.input)
    view(PLAN, "tensorboard")


def test_a_plan_with_such_names_is_saved_and_read(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.json")
    assert Placement.load(tmp_path / "plan.json") == PLAN
    PLAN.graph.save(tmp_path / "graph.json")
    assert OpGraph.load(tmp_path / "graph.json") == PLAN.graph


@pytest.mark.parametrize(
    "flags", ["", "--explain nul\x00/2", "--explain no_such_\x1b[31m", "--limit 99", "--view dot", "--view html"]
)
def test_the_command_line_prints_no_character_that_is_obeyed(
    flags: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    PLAN.save(tmp_path / "plan\x1b[31m.json")
    main(["show", str(tmp_path / "plan\x1b[31m.json"), *flags.split()])
    printed = capfd.readouterr()
    assert only_shows(printed.err)
    assert "\x1b" not in printed.out
    assert printed.out or printed.err


@pytest.mark.filterwarnings("ignore:Glyph")
@settings(max_examples=20 * EFFORT, deadline=None)
@example([":"])
@given(
    st.lists(
        st.text(st.characters(), min_size=1, max_size=8).filter(lambda name: name.strip("/") and name[0] != "^"),
        min_size=1,
        max_size=4,
    )
)
def test_any_name_can_be_shown(names: list[str]) -> None:
    plan = plan_of(names)
    for name in TEXTS:
        assert only_shows(str(view(plan, name)))
    for name in ("svg", "graphml"):
        ElementTree.fromstring(str(view(plan, name)).encode())
    for name in ("html", "json", "timeline"):
        str(view(plan, name)).encode()
    view(plan, "netron")
    view(plan, "tensorboard")


def test_the_report_shows_names_and_obeys_none(tmp_path: Path) -> None:
    PLAN.write("html", tmp_path / "report.html")
    with chromium() as browser:
        open_report(browser, tmp_path / "report.html")
        assert "owned" not in browser.title
        browser.find_element("id", "tab-ops").click()
        shown = "return document.getElementById('ops').textContent.includes(arguments[0])"
        assert all(browser.execute_script(shown, name) for name in ("<script>", "onerror=", "&amp;", "$"))
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_netron_and_tensorboard_show_the_graph_and_obey_no_name(tmp_path: Path) -> None:
    PLAN.write("netron", tmp_path / "plan.pb")
    PLAN.to_tensorboard(tmp_path / "runs")
    with chromium() as browser:
        with open_in_netron(browser, tmp_path / "plan.pb"):
            assert browser.execute_script("return document.querySelectorAll('.node-item-type').length") >= len(HOSTILE)
            assert "owned" not in browser.title
        with tensorboard(tmp_path / "runs") as served:
            browser.get(f"{served}#graphs")
            script = f"{ALL} return [...all(document)].filter(e => e.matches('g.node')).length"
            wait(lambda: browser.execute_script(script) > 1)
            assert "owned" not in browser.title
