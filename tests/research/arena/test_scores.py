"""Gaps, ratios, statistics and profiles, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from placer.research.arena.comparison import Comparison
from placer.research.arena.records import Record
from placer.research.arena.scores import performance_profiles, scored
from placer.research.arena.table_styles import STYLES, TableStyle


def run(problem: str, solver: str, value: int | None, bound: int = 0, seed: int = 0, **changes: Any) -> Record:
    """A record with an answer of that value, or of a run that declined."""
    record: Record = {
        "problem": problem, "problem_hash": problem, "ops": 4, "units": 3, "devices": "CPU:0 GPU:0", "limit_bytes.GPU:0": 2048,
        "objective": "step_time", "solver": solver, "options": "", "code": "", "seed": seed, "time_limit_s": 1.0, "placer": "1",
    }  # fmt: skip
    if value is None:
        return record | {"outcome": "declined", "note": "it will not"}
    return record | {
        "outcome": "answered", "status": "FEASIBLE", "feasible": True, "objective_ns": value, "lower_bound_ns": bound,
        "total_cost_ns": 2 * value, "step_time_ns": value, "seconds": 0.5, "note": "", "peak_bytes.CPU:0": 0,
        "peak_bytes.GPU:0": 1024,
    } | changes  # fmt: skip


RUNS = [
    *(run("one", "search", value, seed=seed) for seed, value in enumerate((110, 100, 140, 130, 120))),
    run("one", "exact", 100, bound=90),
    run("two", "search", 50),
    run("two", "exact", 80, bound=40),
    run("three", "search", 30),
    run("three", "exact", None),
]
"""Medians: 120 and 50 and 30 of the search, 100 and 80 and none of the exact one."""


def test_gap_and_ratio_are_to_the_best_of_all_runs() -> None:
    one, two, three = scored(RUNS)
    exact, search = one.scores
    assert (exact.label, exact.median_ns, exact.gap, exact.ratio) == ("exact", 100, pytest.approx(0.1), 1.0)
    assert (search.median_ns, search.gap, search.ratio) == (120, pytest.approx(0.25), 1.2)
    assert [search.quantile_ns(share) for share in (0, 0.25, 0.75, 1)] == [100, 110, 130, 140]
    assert [score.label for score in two.scores] == ["search", "exact"]
    assert (two.scores[0].gap, two.scores[1].ratio) == (pytest.approx(0.2), 1.6)
    assert not three.scores[1].answered
    assert three.scores[1].ratio == np.inf
    assert not one.contradictions


def test_other_runs_of_a_problem_give_bounds_and_best_answers() -> None:
    others = [run("one", "older", 80, bound=70), run("elsewhere", "older", 1, bound=1)]
    exact, search = scored(RUNS[:6], others)[0].scores
    assert (exact.bound_ns, exact.best_ns, exact.ratio, search.ratio) == (90, 80, 1.25, 1.5)


def test_a_bound_above_an_answer_is_told() -> None:
    contradictions = scored([*RUNS[:6], run("one", "wrong", 200, bound=101)])[0].contradictions
    assert contradictions == ["wrong proves a bound of 101 ns, and search found 100 ns"]
    assert f"WRONG: {contradictions[0]}." in Comparison([*RUNS[:6], run("one", "wrong", 200, bound=101)]).table()
    nothing = run("one", "wrong", 0, status="INFEASIBLE", feasible=False)
    assert scored([*RUNS[:6], nothing])[0].contradictions == [
        "wrong says INFEASIBLE, and search found an answer that meets all limits"
    ]


def test_profiles_are_the_share_of_problems_within_a_factor() -> None:
    """Ratios: 1.2, 1, 1 of the search; 1, 1.6 and none of the exact one."""
    steps = performance_profiles(RUNS)
    third = pytest.approx(1 / 3)
    assert steps["search"] == [(1.0, third), (1.0, pytest.approx(2 / 3)), (1.2, 1.0)]
    assert steps["exact"] == [(1.0, third), (1.6, pytest.approx(2 / 3))]


def test_what_misses_a_limit_is_no_answer() -> None:
    over = run("one", "over", 1, feasible=False, status="UNKNOWN")
    scores = scored([*RUNS[:6], over])[0].scores
    assert scores[-1].label == "over"
    assert not scores[-1].answered
    assert scores[0].best_ns == 100


ROW = {"text": "{} ", "markdown": "| {} |", "latex": "{} &"}
"""How a row with the name of a solver begins, by style."""


@pytest.mark.parametrize("style", STYLES)
def test_tables_have_a_row_for_each_solver(style: TableStyle) -> None:
    several = [*RUNS, *(record | {"time_limit_s": 5.0} for record in RUNS)]
    for comparison, names in ((Comparison(RUNS), ("search", "exact")), (Comparison(several), ("search 1 s", "exact 5 s"))):
        table, summary = comparison.table(style), comparison.summary(style)
        for name in names:
            assert sum(line.startswith(ROW[style].format(name)) for line in table.splitlines()) == 3
            assert sum(line.startswith(ROW[style].format(name)) for line in summary.splitlines()) == 1
        cells = {line.count("|") for line in table.splitlines() if line.startswith("|")}
        assert (len(cells) <= 2 and min(cells) > 8) if style == "markdown" else not cells
    assert ("10.00\\%" if style == "latex" else "10.00%") in Comparison(RUNS).table(style)
    assert "it will not" in Comparison(RUNS).table(style)
    assert "1 declined" in Comparison(RUNS).summary(style)


@pytest.mark.parametrize("style", STYLES)
def test_what_a_solver_said_in_several_lines_stays_in_its_row(style: TableStyle) -> None:
    def lines(note: str) -> list[str]:
        return Comparison([*RUNS[:-1], RUNS[-1] | {"note": note}]).table(style).splitlines()

    assert lines("first\n\n  second | third\r\n") == lines("first second | third")


def test_pictures_show_every_solver() -> None:
    pytest.importorskip("matplotlib")
    comparison = Comparison([*RUNS, *(record | {"time_limit_s": 5.0} for record in RUNS)])
    for picture in (comparison.profiles().decode(), comparison.gaps().decode(), comparison.ranks().decode()):
        assert picture.lstrip().startswith("<?xml")
        assert "search" in picture
        assert "exact" in picture
    assert all(f">{problem}, step_time<" in comparison.gaps().decode() for problem in ("one", "two"))
    assert comparison.profiles("pdf") == comparison.profiles("pdf")
