"""The HTML report: what is in it is the plan, whole; and a person with a mouse or a keyboard finds it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from placer.common.units import format_bytes, format_ns
from placer.graph.shipped import shipped_graph
from placer.plan.placement import Placement
from placer.plan.verdict import TimedCandidate, Verdict
from placer.plan.why import decisive_op
from placer.verbs.solve import solve
from placer.views.html import LIBRARIES, payload
from placer.views.shared.colours import colour, for_dark_page
from placer.views.shared.facts import op_facts
from placer.views.shared.scopes import Part, first, scopes
from placer.views.shared.words import headline, predicted_step, source_words
from tests.helpers.browser import chromium, open_report, wait
from tests.helpers.graphs import GraphBuilder, floats, loop_then_wide, stacked, towers

PLANS = {
    "towers": solve(towers(), "2xh100", pins={"left/*": "GPU:1", "front/embed3": "CPU:0"}),
    "loop": solve(loop_then_wide(), "h100"),
    "stacked": solve(stacked(60), "h100", pins={"block7/*": "CPU:0"}),
}

# -- what is in it -----------------------------------------------------------------------------------------------------


def leaves(part: Part) -> list[int]:
    return [part] if isinstance(part, int) else [op for inner in part.parts for op in leaves(inner)]


names = st.lists(st.text("ab_1/", min_size=1, max_size=12).filter(lambda s: s.strip("/") == s and "//" not in s), unique=True)


@given(names, st.integers(2, 6))
def test_every_op_is_in_the_tree_once_and_no_scope_holds_too_many(found: list[str], most: int) -> None:
    tree = scopes(dict(enumerate(found)), limit=most)
    assert sorted(leaves(tree)) == list(range(len(found)))

    def check(part: Part) -> None:
        if not isinstance(part, int):
            assert len(part.parts) <= most
            assert [first(inner) for inner in part.parts] == sorted(first(inner) for inner in part.parts)
            assert len(part.parts) > 1 or part is tree
            for inner in part.parts:
                check(inner)

    check(tree)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_page_holds_what_the_plan_says(plan: Placement) -> None:
    page = str(plan.view("html"))
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', page)
    assert packed
    told = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert told == json.loads(json.dumps(payload(plan)))
    ops, strings = told["ops"], told["strings"]
    for i, row in enumerate(plan.records()):
        assert ops["name"][i] == row["name"]
        assert plan.devices[ops["device"][i]] == row["device"]
        assert (strings[ops["type"][i]], strings[ops["reason"][i]], strings[ops["why"][i]]) == (
            row["op_type"],
            row["reason_kind"],
            row["reason"],
        )
        assert (ops["start"][i], ops["start"][i] + ops["length"][i]) == (row["start_ns"], row["end_ns"])
        times = {device: ns for device, ns in zip(plan.devices, ops["time"][i], strict=True) if ns >= 0}
        assert times == plan.ops[row["name"]].time_ns
    edges = list(zip(*[iter(told["edges"])] * 4, strict=True))
    assert {(ops["name"][a], ops["name"][b]) for a, b, *_ in edges} == set(plan.graph.graph.edges)
    crossing = {(a, output, ops["device"][b]) for a, b, output, does in edges if does}
    assert sum(does == 1 for *_, does in edges) == len(crossing)  # a tensor crosses once to each device
    assert {(row[0], row[3]) for row in told["transfers"] if row[2] != row[3]} == {(a, device) for a, _, device in crossing}


def test_the_page_needs_nothing_but_itself() -> None:
    page = str(PLANS["towers"].view("html"))
    head = page[: page.index("<script")]
    assert "default-src 'none'" in head
    assert not re.search(r"<(?:link|img|iframe|object)\b|\bsrc=|@import|url\(", head)
    for tag in re.findall(r"<script[^>]*>", page):
        assert "src" not in tag


def test_the_libraries_are_those_that_were_taken_up() -> None:
    """vendor/fetch.py checks where they come from."""
    vendor = Path(placer.__file__).parent / "views" / "page" / "vendor"
    found = {name: hashlib.sha256((vendor / name).read_bytes()).hexdigest() for name in LIBRARIES}
    assert found == {
        "cytoscape.min.js": "081591ab735b2b6a3b31a3c60f8f3a3e2fee8c92939e0c7820ad1208571b6cd8",
        "dagre.min.js": "54a503e346f93ca0bb10abe7999587e037262935687aca45eb4e4b0f64bbb578",
    }
    assert all((vendor / f"{name.partition('.')[0]}.LICENSE").read_text() for name in LIBRARIES)


# -- as a person sees it -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module", params=["resnet50_training", "encoder_training"])
def large(request: pytest.FixtureRequest, browser: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Placement, Path]:
    """A training step of thousands of ops, some of them pinned so that something crosses."""
    plan = solve(shipped_graph(request.param), "h100", pins={"*/Cast*": "CPU:0"}, objective="total_cost")
    assert len(plan.ops) > 8_000
    path = tmp_path_factory.mktemp("report") / "report.html"
    plan.write("html", path)
    return plan, path


def hexed(colour_text: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour_text)[:3])


def texts(browser: Any, selector: str) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )
    return found


def search(browser: Any, words: str) -> None:
    from selenium.webdriver.common.keys import Keys

    box = browser.find_element("id", "search")
    box.clear()
    box.send_keys(words)
    wait(lambda: browser.find_elements("css selector", "#found [role=option]"))
    box.send_keys(Keys.ENTER)


def complaints(browser: Any) -> list[Any]:
    return [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"]


def test_a_large_plan_is_opened_expanded_searched_and_read(browser: Any, large: tuple[Placement, Path]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    plan, path = large
    open_report(browser, path)
    assert texts(browser, "#headline") == [headline(plan)]
    constants = len(plan.ops) - sum(total.ops for total in plan.totals.values())
    assert f"{len(plan.ops)}, {constants} of them constants" in texts(browser, "#figures dd")
    assert predicted_step(plan) in texts(browser, "#figures dd")
    assert len(texts(browser, "#baselines tbody tr")) == 1 + len(plan.baselines)

    boxes = "return app.graph.cy.nodes().length"
    drawn = browser.execute_script(boxes)
    assert 3 < drawn < 80
    item = browser.find_element("css selector", "#outline [role=treeitem][aria-expanded=false]")
    node = item.get_attribute("data-node")
    browser.execute_script("arguments[0].focus()", item)
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
    reopened = browser.find_element("css selector", f'#outline [data-node="{node}"]')
    assert reopened.get_attribute("aria-expanded") == "true"
    assert browser.execute_script(boxes) > drawn
    assert browser.switch_to.active_element.get_attribute("data-node") == node

    name = next(transfer.producer for transfer in plan.transfers if transfer.nbytes)
    search(browser, name)
    assert texts(browser, "#details h2") == [name]
    assert plan.why(name).text in texts(browser, "#why")[0]
    costs = texts(browser, "#costs tr")
    for device, ns in plan.ops[name].time_ns.items():
        told = (device, format_ns(ns), source_words(plan.ops[name].cost_sources[device]))
        assert any(all(each in row for each in told) for row in costs)
    assert any("copied to" in text for text in texts(browser, "#details .copy"))

    other = next(op for op in plan.graph.graph.successors(name) if plan.device_of(op) != plan.device_of(name))
    search(browser, other)
    for op in (name, other):
        browser.execute_script("app.reveal(app.plan.nodes[app.plan.leafOf[app.plan.ops.name.indexOf(arguments[0])]])", op)
        box = f"app.graph.cy.getElementById('n' + app.plan.leafOf[app.plan.ops.name.indexOf({json.dumps(op)})])"
        for theme, (fill, line) in (("light", colour(plan.device_of(op))), ("dark", for_dark_page(colour(plan.device_of(op))))):
            browser.execute_script("app.theme(arguments[0])", theme)
            assert hexed(browser.execute_script(f"return {box}.style('background-gradient-stop-colors')")) == fill
            browser.execute_script("app.selected = null; app.graph.markSelected()")
            assert hexed(browser.execute_script(f"return {box}.style('border-color')")) == line
        browser.execute_script(f"app.graph.cy.stop(); app.graph.cy.center({box})")
        x, y = browser.execute_script(f"const p = {box}.renderedPosition(); return [p.x, p.y]")
        canvas = browser.find_element("id", "canvas")
        browser.execute_script("arguments[0].scrollIntoView({block: 'end'})", canvas)
        ActionChains(browser).move_to_element_with_offset(
            canvas, round(x - canvas.size["width"] / 2), round(y - canvas.size["height"] / 2)
        ).click().perform()
        assert texts(browser, "#details h2") == [op]
    assert complaints(browser) == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("width", [400, 1500])
def test_it_opens_with_all_in_sight_and_the_decisive_op_and_notes(browser: Any, tmp_path: Path, name: str, width: int) -> None:
    notes = tuple(f"note {k}" for k in range(6))
    plan = replace(PLANS[name], notes=notes)
    plan.write("html", tmp_path / "report.html")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_report(browser, tmp_path / "report.html")
        seen = "const v = app.graph.cy.extent(), b = app.graph.cy.elements().boundingBox(); return [v.x1 <= b.x1 && b.x2 <= v.x2"
        assert browser.execute_script(f"{seen}, v.y1 <= b.y1 && b.y2 <= v.y2]") == [True, True]
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert texts(browser, "#details h2") == [decisive_op(plan)]
        marked = browser.execute_script("return app.graph.cy.$('.selected').map(node => node.data('node'))")
        around = "for (let n = app.selected, all = []; ; n = n.parent) { if (!n) return all; all.push(n.id); }"
        assert len(marked) == 1
        assert marked[0] in browser.execute_script(around)
        open_notes = [item.text for item in browser.find_elements("css selector", "#notes > ul > li") if item.is_displayed()]
        assert open_notes == [*notes[:4], "2 more"]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_decisive_op_is_the_one_whose_time_its_device_changes_most() -> None:
    plan = PLANS["loop"]
    moved = [name for name, op in plan.ops.items() if op.device != op.default and op.default in op.time_ns]
    changes = {name: abs(op.time_ns[op.default] - op.time_ns[op.device]) for name in moved if (op := plan.ops[name])}
    assert changes[decisive_op(plan)] == max(changes.values())


def test_control_edges_that_cross_are_explained_and_both_directions_are_drawn_alike(browser: Any, tmp_path: Path) -> None:
    b = GraphBuilder("control")
    b.argument("x", floats(4))
    for k in range(5):  # five copies there at once, one back
        b.op(f"cpu{k}", "Sin", ["x"])
        b.op(f"gpu{k}", "Tanh", [f"cpu{k}:0"])
    b.op("sum", "AddN", [f"gpu{k}:0" for k in range(5)])
    b.op("last", "Sin", ["cpu0:0", "^sum"])
    plan = solve(b.build("last"), "h100", pins={"x": "CPU:0", "cpu*": "CPU:0", "gpu*": "GPU:0", "sum": "GPU:0", "last": "CPU:0"})
    assert any(transfer.output < 0 for transfer in plan.transfers)
    plan.write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")
    browser.execute_script("app.selectOp(app.plan.ops.name.indexOf('last'))")
    assert any("control edge to CPU:0" in text and "waits for the signal" in text for text in texts(browser, "#details .copy"))
    browser.find_element("id", "tab-transfers").click()
    assert "control edges" in texts(browser, "#transfers .filters")[0]
    browser.find_element("id", "tab-timeline").click()
    heights = browser.execute_script(
        "return app.made['tab-timeline'].tracks.filter(t => t.kind === 'transfer').map(t => [t.title, t.height])"
    )
    assert {title for title, _ in heights if title} == {"CPU:0 → GPU:0", "GPU:0 → CPU:0"}
    assert len({height for _, height in heights}) == 1


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_each_op_has_its_whole_story(browser: Any, tmp_path: Path, plan: Placement) -> None:
    plan.write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")
    stories = browser.execute_script(
        "return app.plan.ops.name.map((_, op) => { app.details.op(op); return document.getElementById('details').textContent; })"
    )
    for name, shown in zip(plan.ops, stories, strict=True):
        told = op_facts(plan, name)
        assert not re.search(r"\[object|undefined|NaN|null", shown)
        refused = [why for why in told["refusals"].values() if why]
        producers = [tensor["name"].rpartition(":")[0] for tensor in told["inputs"][:12]]
        words = (told["reason"]["text"], told["op_type"], told["device"], *refused, *producers, *told["together_with"][:12])
        assert [word for word in words if word not in shown] == []
        for tensor in told["inputs"][:12]:
            assert all(f"copied to {copy['dst']}" in shown for copy in tensor["copies"])


@pytest.mark.parametrize("name", ["detector", "towers", "loop"])
def test_arrows_pass_no_box_and_what_crossings_say_hides_none_and_no_name(browser: Any, tmp_path: Path, name: str) -> None:
    plan = PLANS.get(name) or solve(shipped_graph(name), "h100")
    plan.write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")
    covered = """
        const words = {includeNodes: false, includeEdges: false, includeLabels: true, includeOverlays: false};
        const all = {includeLabels: false, includeOverlays: false};
        const meet = (a, b) => Math.min(a.x2, b.x2) - Math.max(a.x1, b.x1) > 3 && Math.min(a.y2, b.y2) - Math.max(a.y1, b.y1) > 3;
        const within = (p, box) => box.x1 + 2 < p.x && p.x < box.x2 - 2 && box.y1 + 2 < p.y && p.y < box.y2 - 2;
        const found = [], seen = app.graph.cy.edges().filter((edge) => edge.style('display') !== 'none');
        const said = seen.filter((edge) => edge.data('label'));
        for (const edge of seen) {
            const [a, b] = [edge.sourceEndpoint(), edge.targetEndpoint()], points = [];
            const [c] = edge.controlPoints() ?? [{x: (a.x + b.x) / 2, y: (a.y + b.y) / 2}];
            for (let t = 0; t <= 1; t += 0.02) {
                const at = (axis) => (1 - t) ** 2 * a[axis] + 2 * t * (1 - t) * c[axis] + t * t * b[axis];
                points.push({x: at('x'), y: at('y')});
            }
            for (const node of app.graph.cy.nodes().filter((node) => node.isChildless()).difference(edge.connectedNodes())) {
                if (points.some((point) => within(point, node.boundingBox(all)))) found.push([edge.id(), node.data('label')]);
            }
        }
        for (const edge of said) {
            for (const node of app.graph.cy.nodes()) {
                const box = node.boundingBox(node.isParent() ? words : all);
                if (meet(edge.boundingBox(words), box)) found.push([edge.id(), node.data('label')]);
            }
        }
        return [said.length, found]"""
    labels, found = browser.execute_script(covered)
    assert labels
    assert found == []


def test_all_can_be_done_with_the_keyboard(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    plan = PLANS["towers"]
    plan.write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")

    def tab_to(selector: str) -> Any:
        for _ in range(60):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            if browser.execute_script("return document.activeElement.matches(arguments[0])", selector):
                return browser.switch_to.active_element
        raise AssertionError(f"Tab does not lead to {selector}")

    def press(*keys: str) -> Any:
        for key in keys:
            browser.switch_to.active_element.send_keys(key)
        return browser.switch_to.active_element

    tab_to("#theme")
    press(Keys.ENTER)
    tab_to("#search")
    press("scores", Keys.ARROW_DOWN, Keys.ENTER)
    assert texts(browser, "#details h2") == ["head/scores"]
    tab_to("[role=treeitem]")
    item = press(Keys.HOME, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert item.get_attribute("aria-expanded") == "true"
    item = press(Keys.ARROW_LEFT)
    assert item.get_attribute("aria-expanded") == "false"
    press(Keys.ENTER)
    assert texts(browser, "#details h2") == ["front"]
    tab_to("#fit")
    browser.execute_script("document.body.focus(); document.activeElement.blur()")
    tab_to("[role=tab]")
    assert press(Keys.ARROW_RIGHT).get_attribute("id") == "tab-timeline"
    tab_to("canvas")
    press("+")
    assert browser.execute_script("const t = app.made['tab-timeline']; return t.right - t.left < t.end")
    browser.execute_script("document.activeElement.blur()")
    tab_to("[role=tab]")
    assert press(Keys.ARROW_RIGHT).get_attribute("id") == "tab-ops"
    tab_to("#ops [role=table]")
    press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    longest = sorted(plan.records(), key=lambda row: -row["time_ns"])
    assert texts(browser, "#details h2") == [longest[1]["name"]]


def test_an_accessibility_checker_finds_nothing_to_mend(browser: Any, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_core_python.selenium").Axe()
    PLANS["towers"].write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")
    for theme in ("light", "dark"):
        for tab in ("graph", "timeline", "ops", "transfers"):
            browser.execute_script("app.theme(arguments[0]); app.tab(`tab-${arguments[1]}`); app.selectOp(3)", theme, tab)
            found = axe.run(browser)["violations"]
            assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found] == []


def test_the_tables_and_the_timeline_tell_the_same(browser: Any, large: tuple[Placement, Path]) -> None:
    plan, path = large
    open_report(browser, path)
    browser.find_element("id", "tab-ops").click()
    table = browser.find_element("css selector", "#ops [role=table]")
    assert table.get_attribute("aria-rowcount") == str(1 + len(plan.ops))
    assert len(texts(browser, "#ops .body .row")) < 100
    longest = max(plan.records(), key=lambda row: row["time_ns"])
    row = browser.find_element("css selector", "#ops .body .row")
    assert longest["op_type"] in row.text
    row.click()
    assert texts(browser, "#details h2") == [longest["name"]]

    browser.find_element("id", "tab-transfers").click()
    table = browser.find_element("css selector", "#transfers [role=table]")
    assert table.get_attribute("aria-rowcount") == str(1 + len(plan.transfers))
    assert format_bytes(plan.copied_bytes) in texts(browser, "#transfers .filters")[0]

    browser.find_element("id", "tab-timeline").click()
    paint = """
        const c = document.querySelector('#timeline canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
        return [...seen]"""
    seen = set(browser.execute_script(paint))
    for device, total in plan.totals.items():
        if total.time_ns:
            assert seen & {int(part[1:], 16) for pair in (colour(device), for_dark_page(colour(device))) for part in pair}
    assert complaints(browser) == []


def test_the_page_shows_the_verdict_of_a_race(browser: Any, tmp_path: Path) -> None:
    rows = (TimedCandidate("all on CPU", 0, 1_500_000, 7, ""), TimedCandidate("the <plan>", 2_000_000, 3_000_000, 6, "slower"))
    verdict = Verdict(rows, "all on CPU", "all others are slower", 0.25)
    for raced in (True, False):
        replace(PLANS["towers"], verdict=verdict if raced else None).write("html", tmp_path / "report.html")
        open_report(browser, tmp_path / "report.html")
        shown = browser.find_element("id", "verdict")
        assert shown.is_displayed() == raced
        if raced:
            cells = [cell.text for cell in shown.find_elements("css selector", "tbody td")]
            assert cells == [cell for row in verdict.rows for cell in row]
            assert "the race ended after 13 calls: all others are slower; it cost 0.25 s" in shown.text


def test_the_page_writes_times_and_sizes_as_the_command_line_does(browser: Any, tmp_path: Path) -> None:
    PLANS["towers"].write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")
    numbers = [
        n + d
        for scale in (1, 1_000, 1_024, 10**6, 2**20, 10**9, 2**30)
        for n in (0, scale, 9 * scale)
        for d in range(0, 9_000, 125)
    ]
    for function, written in (("formatNs", format_ns), ("formatBytes", format_bytes)):
        assert browser.execute_script(f"return arguments[0].map({function})", numbers) == [written(n) for n in numbers]


def test_a_graph_of_which_nothing_is_drawn_opens_too(browser: Any, tmp_path: Path) -> None:
    b = GraphBuilder("constant")
    b.constant("c", floats(4))
    solve(b.build("c"), "cpu2").write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")
    search(browser, "c")
    assert texts(browser, "#details h2") == ["c"]
    browser.find_element("id", "tab-timeline").click()
    assert complaints(browser) == []


def test_names_that_look_like_markup_stay_names(browser: Any, tmp_path: Path) -> None:
    b = GraphBuilder("</script><b>graph</b>")
    b.argument("x", floats(4))
    b.op("<img src=x onerror=alert(1)>", "Relu", ["x"])
    plan = solve(b.build("<img src=x onerror=alert(1)>"), "h100")
    plan.write("html", tmp_path / "report.html")
    open_report(browser, tmp_path / "report.html")
    search(browser, "<img")
    assert texts(browser, "#details h2") == ["<img src=x onerror=alert(1)>"]
    assert not browser.find_elements("tag name", "img")
    assert complaints(browser) == []
