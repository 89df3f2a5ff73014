"""The contest's files are read as what they state, and broken ones are named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from placer.errors import PlanError
from placer.research.instances.iopddl import load_pairwise
from placer.research.pairwise.problem import FORBIDDEN, pairwise_cost, peak_usage
from tests.helpers import published

EXAMPLE = {
    "name": "example",
    "nodes": {
        "intervals": [[30, 70], [40, 70], [50, 120]],
        "costs": [[15], [55, 65], [25, 45, 35]],
        "usages": [[10], [25, 20], [15, 20, 10]],
    },
    "edges": {"nodes": [[0, 1], [2, 1]], "costs": [[30, 40], [50, 10, 1000000000000000000, 80, 90, 20]]},
    "usage_limit": 50,
}


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_file_is_read_plain_and_packed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"example{suffix}"
    text = json.dumps({"problem": EXAMPLE}).encode()
    path.write_bytes(gzip.compress(text) if suffix == ".json.gz" else text)
    problem = load_pairwise(path)
    assert (problem.name, problem.usage_limit, problem.nodes) == ("example", 50, 3)
    assert problem.table(1).tolist() == [[50, 10], [FORBIDDEN, 80], [90, 20]]
    assert pairwise_cost(problem, np.array([0, 1, 2])) == 15 + 65 + 35 + 40 + 20
    assert pairwise_cost(problem, np.array([0, 0, 1])) == FORBIDDEN
    assert peak_usage(problem, np.array([0, 0, 1])) == 10 + 25 + 20


@pytest.mark.parametrize("text", ["", "{}", '{"problem": {"nodes": 3}}', json.dumps({"problem": {**EXAMPLE, "edges": {}}})])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"broken\.json.*usage_limit"):
        load_pairwise(path)


@pytest.mark.parametrize("path", published.INTRA_OPERATOR, ids=lambda path: path.name)
def test_published_instances_cost_and_hold_what_their_files_say(path: Path) -> None:
    problem = load_pairwise(path)
    choice = np.random.default_rng(0).integers(0, problem.choices)
    cost, peak, limit = published.pairwise(path, choice.tolist())
    assert pairwise_cost(problem, choice) == min(cost, FORBIDDEN)
    assert (peak_usage(problem, choice), problem.usage_limit) == (peak, limit)
