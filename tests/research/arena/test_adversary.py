"""Problems on which one solver loses to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer.errors import OptionError
from placer.research.arena.adversary import adversarial
from placer.research.arena.problems import problem_of
from placer.research.formats.problem_file import fingerprint, load_problem, save_problem
from placer.solvers.registry import solver

STEPS = 100


@pytest.mark.parametrize(("loser", "winner"), [("heft", "peft"), ("peft", "heft"), ("greedy", "min_cut")])
def test_each_solver_loses_somewhere(loser: str, winner: str, tmp_path: Path) -> None:
    objective = "total_cost" if winner == "min_cut" else "step_time"
    harder = adversarial(loser, winner, objective=objective, seed=1, steps=STEPS)  # type: ignore[arg-type]
    assert harder.ratio > max(1.0, harder.first_ratio)
    values = [solver(name).solve(harder.problem, objective).objective_ns for name in (loser, winner)]  # type: ignore[arg-type]
    assert harder.ratio == values[0] / values[1]
    save_problem(harder.problem, tmp_path / "harder.npz")
    target = problem_of(f"adversarial:{loser},{winner},seed=1,steps={STEPS}", {"objective": objective})
    assert fingerprint(load_problem(tmp_path / "harder.npz")) == fingerprint(target) == fingerprint(harder.problem)


def test_limits_hold_and_more_steps_never_make_it_less() -> None:
    few, many = (adversarial("m_topo", "m_etf", memory=0.5, ops=20, gpus=2, steps=steps) for steps in (0, STEPS))
    assert few.ratio == few.first_ratio == many.first_ratio < many.ratio
    assert (many.problem.devices.memory_limit_bytes == few.problem.devices.memory_limit_bytes).all()


def test_a_solver_that_cannot_begin_is_told() -> None:
    with pytest.raises(OptionError, match="min_cut"):
        adversarial("min_cut", "heft")
