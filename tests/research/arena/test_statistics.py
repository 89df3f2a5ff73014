"""Tests of whether solvers differ, by published examples and by hand."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import OptionError
from placer.research.arena.comparison import Comparison
from placer.research.arena.plots import COLOURS, LINES, MARKERS, groups, styles
from placer.research.arena.statistics import Blocks, holm, paired_tests, rank_test
from tests.research.arena.test_scores import run

pytest.importorskip("scipy")

DEMSAR = """
763 768 771 798 599 591 590 569 954 971 968 967 628 661 654 657 882 888 886 898 936 931 916 931 661 668 609 685 583 583 563 625
775 838 866 875 1000 1000 1000 1000 940 962 965 962 619 666 614 669 972 981 975.4 974.6 957 978 946 970
"""
"""Table 6 of Demšar 2006: the AUC of four classifiers on 14 data sets, times 1000. By the printed ranks, 975.4 is above 974.6."""


def demsar() -> Blocks:
    """The classifiers as solvers whose values are the lower the better."""
    scores = np.array(DEMSAR.split(), float).reshape(-1, 4)
    return Blocks(("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"), 2000 - scores, "problems")


def test_the_example_of_demsar_has_the_published_ranks_and_critical_difference() -> None:
    test = rank_test(demsar())
    published = {"C4.5": 3.143, "C4.5+m": 2.000, "C4.5+cf": 2.893, "C4.5+m+cf": 1.964}
    assert test.mean_rank == pytest.approx(published, abs=5e-4)
    assert list(test.mean_rank) == sorted(published, key=lambda name: published[name])
    assert test.critical_difference == pytest.approx(1.25, abs=5e-3)
    assert test.p < 0.05
    assert groups(list(test.mean_rank.values()), test.critical_difference) == [
        (pytest.approx(1.964, abs=5e-4), pytest.approx(3.143, abs=5e-4))
    ]


def test_of_five_blocks_that_all_agree_the_exact_test_gives_one_in_sixteen() -> None:
    """Two of the 2^5 equally likely signs are as extreme. The value of one solver is half of the other's."""
    blocks = Blocks(("half", "whole"), np.array([[k * k, 2.0 * k * k + k] for k in range(1, 6)]), "problems")
    (test,) = paired_tests(blocks)
    assert (test.wins, test.ties, test.losses, test.p) == (5, 0, 0, 0.0625)
    assert test.low < test.ratio < test.high < 1
    (turned,) = paired_tests(blocks, reference="whole")
    assert (turned.other, turned.losses, turned.p, turned.ratio) == ("half", 5, test.p, pytest.approx(1 / test.ratio))


def test_a_missing_answer_loses_to_any_and_a_run_for_all_seeds_counts_with_each() -> None:
    records = [
        *(run("one", "search", value, seed=seed) for seed, value in enumerate((90, 110, 130))),
        run("one", "rule", 100),
        *(run("two", "search", value, seed=seed) for seed, value in enumerate((5, None, 7))),
        run("two", "rule", None),
        run("three", "search", 1),
        run("four", "search", None), run("four", "rule", None),
    ]  # fmt: skip
    inf = math.inf
    assert Blocks.of(records, "problems").values_ns.tolist() == [[110, 100], [6, inf]]
    assert Blocks.of(records, "seeds").values_ns.tolist() == [[90, 100], [110, 100], [130, 100], [5, inf], [7, inf]]
    (test,) = paired_tests(Blocks.of(records, "seeds"))
    assert (test.wins, test.losses, test.ratio) == (3, 2, pytest.approx((0.9 * 1.1 * 1.3) ** (1 / 3)))


def test_runs_before_and_after_a_change_of_a_solver_are_two_solvers() -> None:
    records = [run(problem, "mine", k, code=code) for problem in "ab" for k, code in enumerate(("old", "new"), 1)]
    assert Blocks.of(records).labels == ("mine [old, 1]", "mine [new, 1]")
    assert Blocks.of(records).values_ns.tolist() == [[1, 2], [1, 2]]


def test_solvers_that_are_equal_everywhere_do_not_differ() -> None:
    records = [run(problem, solver, 7) for problem in "abc" for solver in ("x", "y", "z")]
    tests = Comparison(records).pairs()
    assert [(test.p_holm, test.ratio, test.low, test.high) for test in tests] == [(1, 1, 1, 1)] * 3
    assert rank_test(Blocks.of(records)).p == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_as_its_steps_say(p: list[float]) -> None:
    """By steps: the least is compared with level / m, the next with level / (m - 1), until one is not below."""
    corrected, level = holm(p), 0.05
    rejected: set[int] = set()
    for k, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[index] * (len(p) - k) >= level:
            break
        rejected.add(index)
    assert {k for k, value in enumerate(corrected) if value < level} == rejected


@given(st.lists(st.integers(0, 12), min_size=2, max_size=7), st.integers(1, 6))
def test_a_bar_covers_each_two_ranks_that_do_not_differ_and_no_others(ranks: list[int], distance: int) -> None:
    ranks = sorted(ranks)
    bars = groups(ranks, distance)
    for k, low in enumerate(ranks):
        for high in ranks[k + 1 :]:
            assert any(first <= low and high <= last for first, last in bars) == (high - low < distance)


def test_twenty_solvers_differ_without_colours() -> None:
    drawn = styles(map(str, range(len(LINES) * len(MARKERS))))
    assert len({(style["ls"], style["marker"]) for style in drawn.values()}) == len(drawn)
    assert len({tuple(map(str, style.values())) for style in styles(map(str, range(len(COLOURS) * 20))).values()}) == 140


def test_what_is_written_for_a_paper_has_every_record_and_solver(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = [run(f"p_{k}", solver, k + 3 * len(solver), bound=1) for k in range(6) for solver in ("a", "b_b", "ccc")]
    Comparison(records).write(tmp_path / "new" / "paper", reference="a")
    written = {path.name: path.read_bytes() for path in (tmp_path / "new" / "paper").iterdir()}
    rows = list(csv.DictReader(written["records.csv"].decode().splitlines()))
    assert rows == [{name: str(value) for name, value in record.items()} for record in records]
    pairs = list(csv.DictReader(written["pairs.csv"].decode().splitlines()))
    assert [(pair["solver"], pair["other"], pair["wins"]) for pair in pairs] == [("a", "b_b", "6"), ("a", "ccc", "6")]
    for name in ("problems", "summary", "tests"):
        assert rb"b\_b" in written[f"{name}.tex"]
    for name in ("profiles", "gaps", "ranks"):
        assert written[f"{name}.pdf"].startswith(b"%PDF")
        assert b"b_b" in written[f"{name}.svg"]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "no runs"),
        ([run(problem, "x", 1) for problem in "abc"], "one solver"),
        ([run(problem, solver, None) for problem in "abc" for solver in "xy"], "no problem has"),
        ([run("a", "x", 1), run("b", "y", 2)], "no problem has"),
    ],
)
def test_where_nothing_can_be_tested_that_is_said(records: list[dict[str, Any]], said: str) -> None:
    pytest.importorskip("matplotlib")
    comparison = Comparison(records)
    text = comparison.tests()
    assert text.startswith("There is nothing to test: ")
    assert said in text
    assert "rank" not in text
    assert b"nothing to test" in comparison.ranks()


def test_problems_that_do_not_count_are_counted() -> None:
    records = [run(problem, solver, None if problem == "a" else 5) for problem in "abc" for solver in "xyz"]
    text = Comparison([*records, run("d", "x", 1)]).tests()
    assert "Mean ranks over 2 problems" in text
    assert "Without 2 problems: " in text


def test_what_cannot_be_tested_is_said() -> None:
    comparison = Comparison([run("one", "search", 1), run("one", "rule", 2)])
    with pytest.raises(OptionError, match="no solver 'rul'"):
        comparison.pairs(reference="rul")
    with pytest.raises(OptionError, match="over="):
        comparison.pairs(over="runs")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="style="):
        comparison.table("html")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="picture="):
        comparison.profiles("png")  # type: ignore[arg-type]
    assert "needs three solvers" in comparison.tests()
