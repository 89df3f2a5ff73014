"""`bench_choice` on one small step, without a GPU."""

from __future__ import annotations

from examples.workloads import mlp_inference
from tests.benchmarks.bench_choice import measure
from tests.benchmarks.choice_table import OTHERS, markdown, ratios, summary
from tests.helpers.machines import two_cpus


def test_every_variant_is_timed_or_refused_and_the_table_has_them() -> None:
    record = {**measure(lambda: mlp_inference("small"), two_cpus(), budget_s=1.0, within_s=0.0), "set": "own"}
    assert {"default", "all CPU", "plan", "raced"} <= set(record["ms"])
    assert {*record["ms"], *record["refused"]} >= {*OTHERS, "raced"} - {"compiled on GPU"}
    assert record["race"]["seconds"]
    head, _, row = markdown({"mlp": record}).splitlines()
    assert head.count("|") == row.count("|")
    assert row.count("**") == 2, "the fastest of the others is in bold"
    assert "geometric mean" in summary({"mlp": record})


def test_ratios_are_to_the_best_of_what_was_measured() -> None:
    ms = {"default": 4.0, "plan": 2.0, "compiled on CPU": 1.0, "raced": 3.0, "tuned": 1.5}
    assert ratios({"ms": ms}) == {"raced / default": 0.75, "raced / best uncompiled": 1.5, "tuned / best": 1.5}
    assert ratios({"ms": {"default": 4.0, "raced": 4.0}})["tuned / best"] is None
