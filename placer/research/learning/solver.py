"""Learning as a solver: it trains a policy on the problem itself, and gives the best assignment of all episodes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from placer.errors import OptionError
from placer.problem.problem import Assignment, PlacementProblem
from placer.research.env import PlacementEnv
from placer.research.learning import cross_entropy as by_cross_entropy
from placer.research.learning import reinforce as by_reinforce
from placer.research.learning.training import EPISODES, Trainer, train
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status, StopReason

TRAINERS: dict[str, tuple[Trainer, str]] = {
    "reinforce": (by_reinforce.reinforce, by_reinforce.SOURCE),
    "cross_entropy": (by_cross_entropy.cross_entropy, by_cross_entropy.SOURCE),
}
"""By name: an algorithm and its source."""


@dataclass(frozen=True, slots=True)
class Learner:
    """Plays episodes on the problem and keeps the best assignment. It learns from step times only."""

    name: Literal["reinforce", "cross_entropy"]
    episodes: int = EPISODES

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that it does not minimise the total cost."""
        return "" if objective == "step_time" else "it learns from step times only"

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Trains until there were enough episodes or the time limit is reached."""
        started = time.perf_counter()
        trainer, _ = TRAINERS[self.name]
        try:
            training = train(trainer, PlacementEnv(problem), episodes=self.episodes, seed=seed, time_limit_s=time_limit_s)
        except OptionError:  # there is nothing to decide
            only = Assignment(problem.units.allowed.argmax(axis=1))
            return answer(problem, objective, only, solver=self.name, started=started)
        played = len(training.scores)
        if training.best is None:
            seconds, detail = time.perf_counter() - started, "no episode ended within the time limit"
            return Solution(None, Status.UNKNOWN, objective, 0, 0, self.name, seconds, StopReason.NOT_FOUND, detail)
        return answer(
            problem,
            objective,
            training.best.assignment,
            solver=self.name,
            started=started,
            stop_reason=StopReason.COMPLETED if played == self.episodes else StopReason.TIME_LIMIT,
            stop_detail=f"{played} episodes",
        )

    def cite(self) -> str:
        """The source of the algorithm."""
        return TRAINERS[self.name][1]


reinforce, cross_entropy = Learner("reinforce"), Learner("cross_entropy")
