"""Files of problems with wrong arrays in them: such a file is refused by name, or its problem can be solved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.errors import PlanError
from placer.problem.validate import validate
from placer.research.formats.problem_file import load_problem, save_problem
from placer.research.instances.families import synthetic
from placer.solvers.base import Status
from placer.solvers.registry import solver
from tests.helpers.effort import EFFORT

VALUES = [-1, 0, 1, 7, 2**31, 2**62, -(2**63)]


def damaged(array: np.ndarray[Any, Any], data: st.DataObject) -> np.ndarray[Any, Any]:
    """The array with one value, its type or its shape changed."""
    how = data.draw(st.sampled_from(["value", "type", "shorter", "longer", "flat", "empty", "swapped"]), "how")
    if how == "value" and array.size:
        changed = array.copy()
        at = data.draw(st.integers(0, array.size - 1), "at")
        value = data.draw(st.sampled_from(VALUES + ([float("nan"), float("inf"), -0.5] if array.dtype.kind == "f" else [])))
        changed.flat[at] = str(value)[:1] if array.dtype.kind == "U" else np.array(value).astype(array.dtype)
        return changed
    if how == "type":
        return (
            array.astype(data.draw(st.sampled_from(["float64", "int8", "U4", "bool", "complex128"])))
            if array.dtype.kind != "U"
            else array == ""
        )
    if array.ndim and array.size:
        return {"shorter": array[:-1], "longer": np.concatenate([array, array[-1:]]), "flat": array.reshape(-1)[:, None]}.get(
            how, array[:0] if how == "empty" else array[::-1]
        )
    return array[None]


@settings(max_examples=60 * EFFORT, deadline=None)
@given(data=st.data())
def test_a_wrong_problem_is_refused_or_can_be_solved(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.mktemp("broken") / "problem.npz"
    save_problem(synthetic("layered", ops=12, gpus=2, memory=0.6), path)
    with np.load(path) as file:
        arrays = dict(file)
    for name in data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=2, unique=True), "arrays"):
        if data.draw(st.integers(0, 9), "without") == 0:
            del arrays[name]
        else:
            arrays[name] = damaged(arrays[name], data)
    np.savez(path, **arrays)
    _check(path)


def test_a_problem_with_a_huge_number_is_refused_or_can_be_solved(tmp_path: Path) -> None:
    path = tmp_path / "problem.npz"
    save_problem(synthetic("layered", ops=12, gpus=2, memory=0.6), path)
    with np.load(path) as file:
        arrays = dict(file)
    for name, array in arrays.items():
        if array.ndim and array.size and array.dtype.kind in "if":
            changed = array.copy()
            changed.flat[0] = 2**62
            np.savez(path, **(arrays | {name: changed}))
            _check(path)


def _check(path: Path) -> None:
    """The file is refused by name, or the plan of its problem is valid."""
    try:
        problem = load_problem(path)
    except PlanError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    found = solver("greedy").solve(problem, "total_cost")
    if found.assignment is not None and found.status is not Status.UNKNOWN:
        assert validate(problem, found.assignment, found.objective_ns).ok
