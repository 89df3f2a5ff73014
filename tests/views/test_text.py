"""What a placement says in words: as reviewed, word for word; and tables that hold what was asked for.

`python -m tests.views.test_text` writes the reviewed texts anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from cost_models.base import OpCost, OpSignature
from cost_models.machine_files import load_machine
from cost_models.machines import Device, Machine
from placer.command.main import main
from placer.common.units import format_ns
from placer.errors import OptionError
from placer.placed.race.sequential_test import SequentialTest
from placer.plan.placement import Placement
from placer.plan.verdict import DEFAULT, TimedCandidate, Verdict
from placer.plan.verdict import PLAN as PLAN_NAME
from placer.verbs.solve import solve
from placer.views.ops import rows
from placer.views.shared.machine import describe
from placer.views.shared.words import headline
from tests.helpers.graphs import GraphBuilder, floats, layers, loop_then_wide, towers
from tests.helpers.machines import Simple, cpus, made_up

GOLDEN = Path(__file__).parents[1] / "data" / "text"


def planned(**options: Any) -> Placement:
    plan = solve(towers(), made_up(), cost_model=Simple(), objective="total_cost", **options)
    return replace(plan, solver_seconds=0.25)


def verdict() -> Verdict:
    """The verdict of a race with made-up times: each first call of a candidate takes ten times as long as later ones."""
    predicted = {PLAN_NAME: 886_000, DEFAULT: 1_240_000, "all on GPU": 1_310_000, "a plan with fewer copies": 942_000}
    seconds = {PLAN_NAME: 1.31e-3, DEFAULT: 1.87e-3, "all on GPU": 2.02e-3, "a plan with fewer copies": 1.12e-3}
    test = SequentialTest(list(seconds))
    while not test.end:
        name = test.next()
        test.add(name, seconds[name] * (1 if test.entrants[name].seconds else 10))
    rows = [
        TimedCandidate(name, predicted[name], round(entrant.median_s * 1e9), len(entrant.seconds), entrant.outcome)
        for name, entrant in test.entrants.items()
    ]
    rows.sort(key=lambda row: row.median_ns)
    return Verdict(tuple(rows), test.winner(DEFAULT), test.end, test.excess_s)


PLAN, PINNED = planned(), planned(pins={"left/*": "CPU:0"}, memory_limits={"GPU:0": "256MiB"})
RACED = replace(PLAN, verdict=verdict())
TEXTS: dict[str, Callable[[], str]] = {
    "summary": PLAN.summary,
    "summary-limited": PINNED.summary,
    "summary-raced": RACED.summary,
    "explain-op": lambda: PLAN.explain("left/dense0/MatMul"),
    "explain-variable": lambda: PLAN.explain("front/table3"),
    "explain-cpu-only": lambda: PLAN.explain("front/hash0"),
    "explain-pinned": lambda: PINNED.explain("left/dense0/MatMul"),
    "ops-by-time": lambda: str(PLAN.view("ops", sort="time", limit=8)),
    "ops-crossing": lambda: str(PLAN.view("ops", crossing=True)),
    "diff": lambda: str(PLAN.diff(PINNED)),
    "diff-raced": lambda: str(PLAN.diff(RACED)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_as_reviewed(name: str) -> None:
    assert TEXTS[name]() + "\n" == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("plan", [PLAN, PINNED, solve(layers(), "h100")])
def test_the_counts_of_costs_add_up_to_the_ops(plan: Placement) -> None:
    line = next(line for line in plan.summary().splitlines() if line.startswith("costs  "))
    assert sum(int(part.split()[0]) for part in line.removeprefix("costs").split(", ")) == len(plan.ops)


def headline_of(plan: Placement, **changed: Any) -> str:
    default = replace(plan.baselines["tf_default"], **changed)
    return headline(replace(plan, baselines={"tf_default": default}))


def test_the_first_line_says_how_much_faster_than_tensorflows_default() -> None:
    step_ns = PLAN.step_time_ns
    assert PLAN.summary().startswith(f"towers: {headline(PLAN)}\n")
    assert headline_of(PLAN, step_time_ns=3 * step_ns).startswith("predicted 3.00x faster than TensorFlow's default: 941 us")
    assert headline_of(PLAN, step_time_ns=step_ns // 2).startswith("predicted 2.00x slower than TensorFlow's default: 941 us")
    assert headline_of(PLAN, step_time_ns=step_ns + 1) == "predicted as fast as TensorFlow's default: 941 us per step"
    assert headline_of(PLAN, feasible=False, note="why") == (
        "predicted 941 us per step; TensorFlow's default is not possible: why"
    )
    assert headline(replace(PLAN, baselines={})) == "predicted 941 us per step"


class PerKind(Simple):
    """What it knows of a kind of device comes from where nothing else does."""

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        return replace(super().op_cost(signature, device), source=f"of a {device.kind}")


def test_each_price_says_where_it_comes_from() -> None:
    plan = solve(towers(), made_up(), cost_model=PerKind())
    assert {source for op in plan.ops.values() for source in op.cost_sources.values()} == {"of a CPU", "of a GPU"}
    for name, op in plan.ops.items():
        assert op.cost_sources.keys() in (op.time_ns.keys(), set())
        for device, source in op.cost_sources.items():
            assert source == f"of a {device[:3]}"
            words = f"{format_ns(op.time_ns[device])} on {device} ({source})"
            assert words in plan.explain(name)


def test_what_the_first_op_of_its_type_takes_more_is_told_and_kept() -> None:
    """And all that is not so is the price that stands beside its source."""
    warm = made_up()
    cold = replace(warm, devices=tuple(replace(d, cold_ns=4_000 + d.dispatch_ns) for d in warm.devices))
    without_cold, plan = (solve(layers(), machine, cost_model="analytic") for machine in (warm, cold))
    first_ops: dict[str, set[str]] = {}
    for name, op in plan.ops.items():
        assert {d: ns - op.cold_ns.get(d, 0) for d, ns in op.time_ns.items()} == without_cold.ops[name].time_ns
        for device, ns in op.cold_ns.items():
            first = f"{format_ns(ns)} of it as the first {plan.graph.op(name).op_type} of a step"
            assert f"{format_ns(op.time_ns[device])} on {device} (from a formula, {first})" in plan.explain(name)
            first_ops.setdefault(plan.graph.op(name).op_type, set()).add(name)
        assert op.cold_ns or "of it as the first" not in plan.explain(name)
    assert len(first_ops) > 1
    assert all(len(names) == 1 for names in first_ops.values())
    assert Placement.from_json(json.loads(str(plan.view("json")))) == plan


@pytest.mark.parametrize("machine", [load_machine("2xh100"), cpus(2)], ids=lambda machine: machine.name)
def test_a_machine_in_words_tells_each_constant(machine: Machine) -> None:
    def another(row: Any, untold: str) -> Iterator[Any]:
        for field in fields(row):
            value = getattr(row, field.name)
            if type(value) in (int, float) and field.name not in untold:
                yield replace(row, **{field.name: 2 * value + (7 if type(value) is int else 1e9)})

    changed = list(another(machine, ""))
    for name in ("devices", "links"):
        rows = getattr(machine, name)
        changed += [replace(machine, **{name: (row, *rows[1:])}) for row in (another(rows[0], "cores") if rows else ())]
    assert len(changed) >= 15
    texts = [describe(each) for each in (machine, *changed)]
    assert len({*texts}) == len(texts)


@pytest.mark.parametrize(("threads", "ending"), [(1, "on one core"), (2, "on one core of 2 threads")])
def test_a_machine_in_words_tells_of_threads_that_share_a_core(threads: int, ending: str) -> None:
    machine = cpus(1)
    lines = describe(replace(machine, devices=(replace(machine.devices[0], threads_per_core=threads),))).splitlines()
    assert [line.endswith(ending) for line in lines if "matrix products" in line] == [True]


def noisy() -> Placement:
    b = GraphBuilder()
    b.argument("x", floats(8))
    b.op("noise/draw", "RandomUniform", [], (floats(8),), flags=("random", "stateful"))
    b.op("sum", "AddV2", ["x", "noise/draw"], (floats(8),))
    return solve(b.build("sum"), made_up(), cost_model=Simple())


def test_each_filter_lets_through_what_it_says_and_nothing_else() -> None:
    everything = PLAN.records()
    crossing = {end for a, b, data in PLAN.to_networkx().edges(data=True) if data["crosses"] for end in (a, b)}
    for filters, fits in [
        ({"device": "GPU"}, lambda row: row["device"] == "GPU:0"),
        ({"op_type": "Mat*"}, lambda row: row["op_type"] == "MatMul"),
        ({"scope": "left/dense1"}, lambda row: row["name"].startswith("left/dense1/")),
        ({"scope": "*/dense1/*"}, lambda row: "/dense1/" in row["name"]),
        ({"crossing": True}, lambda row: row["name"] in crossing),
        ({"crossing": True, "device": "CPU:0"}, lambda row: row["name"] in crossing and row["device"] == "CPU:0"),
    ]:
        passing = rows(PLAN, **filters)
        assert passing == [row for row in everything if fits(row)]
        assert 0 < len(passing) < len(everything)
    assert [row["name"] for row in rows(noisy(), flagged=True)] == ["noise/draw"]
    usual = solve(towers(), made_up(), cost_model=Simple(), objective="total_cost", solver="tf_default")
    assert {row["name"] for row in rows(PINNED, moved=True)} == set(usual.diff(PINNED).moved) != set()
    assert rows(usual, moved=True) == []


def test_each_order_is_one() -> None:
    for sort, key in (("time", lambda row: -row["time_ns"]), ("bytes", lambda row: -row["output_bytes"])):
        keys = [key(row) for row in rows(PLAN, sort=sort)]
        assert keys == sorted(keys)
    names = [row["name"] for row in rows(PLAN, sort="name")]
    assert names == sorted(PLAN.ops)
    for filters in ({"sort": "size"}, {"device": "GPU:1"}, {"device": "nowhere"}):
        with pytest.raises(OptionError, match=next(iter(filters.values()))):
            rows(PLAN, **filters)


def test_a_difference_is_that_of_the_figures() -> None:
    difference = PLAN.diff(PINNED)
    assert set(difference.moved) == {name for name in PLAN.ops if PLAN.device_of(name) != PINNED.device_of(name)}
    longest = [max(plan.ops[name].time_ns[plan.device_of(name)] for plan in (PLAN, PINNED)) for name in difference.moved]
    assert longest == sorted(longest, reverse=True)
    for pair, figure in [
        (difference.step_time_ns, lambda plan: plan.step_time_ns),
        (difference.transfers, lambda plan: len(plan.transfers)),
        (difference.copied_bytes, lambda plan: sum(t.nbytes * t.count for t in plan.transfers)),
        (difference.transfer_ns, lambda plan: sum(t.time_ns for t in plan.transfers)),
        (difference.peak_bytes["GPU:0"], lambda plan: plan.totals["GPU:0"].peak_bytes),
    ]:
        assert pair == (figure(PLAN), figure(PINNED))
    elsewhere = PLAN.diff(solve(towers(), "cpu2"))
    assert elsewhere.peak_bytes["GPU:0"][1] == 0
    assert "-100.0%" in str(elsewhere)


def test_a_difference_of_different_functions_says_so() -> None:
    other = solve(layers(), made_up(), cost_model=Simple(), objective="total_cost")
    assert "different functions, 'towers' and 'mlp'" in str(PLAN.diff(other)).splitlines()[0]
    renamed = replace(other, graph=replace(other.graph, name="towers"))
    assert "different graphs of 'towers'" in str(PLAN.diff(renamed)).splitlines()[0]


def test_the_predicate_of_a_loop_is_explained() -> None:
    plan = solve(loop_then_wide(), "h100")
    for name in ("while/body/tanh0", "while/out0"):
        (line,) = [line for line in plan.explain(name).splitlines() if "while:0 " in line]
        assert line.startswith("  if    another round runs: ")
    assert "while:0 bool[], 1 B, made on CPU:0; says whether another round runs" in plan.explain("while")
    assert "another round" not in plan.explain("while/in0")


@pytest.mark.parametrize(
    ("ops", "head"),
    [
        (0, "0 ops move, 0 are only in the first, 0 only in the second"),
        (1, "1 op moves, 1 is only in the first, 1 only in the second"),
        (2, "2 ops move, 2 are only in the first, 2 only in the second"),
    ],
)
def test_a_difference_counts_its_ops_in_words(ops: int, head: str) -> None:
    difference = PLAN.diff(PINNED)
    names = tuple(difference.moved)[:ops]
    few = replace(difference, moved={name: difference.moved[name] for name in names}, only_first=names, only_second=names)
    assert str(few).splitlines()[0] == head


def test_the_command_shows_tables_and_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    for plan, path in zip((PLAN, PINNED), paths, strict=True):
        plan.save(path)
    flags = ["--device", "GPU", "--type", "MatMul", "--scope", "left", "--sort", "bytes", "--limit", "2"]
    assert main(["show", paths[0], *flags]) == 0
    filters: dict[str, Any] = {"device": "GPU", "op_type": "MatMul", "scope": "left", "sort": "bytes"}
    assert capsys.readouterr().out == f"{PLAN.view('ops', limit=2, **filters)}\n"
    assert main(["show", paths[0], *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows(PLAN, **filters)[:2]
    assert main(["show", paths[0], "--view", "graphml", "--out", str(tmp_path / "plan.graphml")]) == 0
    assert (tmp_path / "plan.graphml").read_text() == PLAN.view("graphml")
    for wrong in (["--out", paths[0]], ["--view", "dot", "--crossing"], ["--view", "dot", "--out", str(tmp_path)]):
        assert main(["show", paths[0], *wrong]) != 0
    capsys.readouterr()
    assert main(["diff", *paths]) == 0
    assert capsys.readouterr().out == f"{PLAN.diff(PINNED)}\n"
    assert main(["diff", *paths, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_ns"] == [PLAN.step_time_ns, PINNED.step_time_ns]


def test_a_terminal_shows_the_same_words_in_colours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    from rich.text import Text

    from placer.views.shared.terminal import print_text

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_text(PLAN.summary())
    shown = Text.from_ansi(capsys.readouterr().out)
    assert shown.plain.rstrip() == PLAN.summary()
    styles = {shown.plain[span.start : span.end]: str(span.style) for span in shown.spans}
    assert styles["CPU:0"] != styles["GPU:0"]
    assert Text.from_markup(PLAN.__rich__()).plain == PLAN.summary()
    odd = GraphBuilder("[bold]odd[/]")
    odd.argument("[red]x", floats(4))
    plan = solve(odd.build("[red]x"), made_up(), cost_model=Simple())
    assert Text.from_markup(plan.__rich__()).plain == plan.summary()


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for title, text in TEXTS.items():
        (GOLDEN / f"{title}.txt").write_text(text() + "\n")
