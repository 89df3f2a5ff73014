"""Races whose outcome chance decides: every call is given to another random candidate, without a clock."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from placer.placed.race import begin, calls, move_trial
from placer.placed.race.candidates import Candidate
from placer.placed.race.sequential_test import SequentialTest
from placer.plan.verdict import DEFAULT, PLAN
from placer.solvers.registry import solver
from placer.tf.run import timing
from placer.verbs.solve import Solved
from tests.helpers.harness import RandomLegal

MAX_RACED_CALLS = 6
"""The most calls of a race, so that programs also make calls after one."""


@contextmanager
def random_races(seed: int) -> Iterator[None]:
    """Races of `random_candidates`, each decided by a `RandomTest`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(begin, "candidates", lambda solved: random_candidates(solved, seed))
        patch.setattr(calls, "SequentialTest", lambda names: RandomTest(names, seed))
        yield


@contextmanager
def random_trials(seed: int) -> Iterator[None]:
    """`random_races`, each followed by a trial with the variables in other places, decided by a `RandomTest`."""
    with random_races(seed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "SequentialTest", lambda names: RandomTest(names, seed, max_calls=1))
        patch.setattr(move_trial, "SequentialTest", lambda names: RandomTest(names, seed))
        patch.setattr(move_trial, "FIXED_CALLS", 1)
        yield


def random_candidates(solved: Solved, seed: int) -> list[Candidate]:
    """The plan, TensorFlow's default, and two random placements."""
    default = solver("tf_default").solve(solved.problem, "step_time")
    draws = {f"random {k}": RandomLegal(seed + k).solve(solved.problem, "step_time") for k in (1, 2)}
    return [
        Candidate(PLAN, solved, solved.solution),
        Candidate(DEFAULT, solved, default),
        *(Candidate(name, solved, solution) for name, solution in draws.items()),
    ]


@contextmanager
def random_clock(seed: int) -> Iterator[None]:
    """Calls of one candidate take the same random time, so that each candidate of a tuning may be the fastest."""
    seconds: dict[int, float] = {}
    draw = random.Random(seed)

    def timed_call(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        return run(*args, **kwargs), seconds.setdefault(id(run), draw.uniform(0.01, 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "timed_call", timed_call)
        yield


class RandomTest(SequentialTest):
    """Gives no candidate two calls in a row; after a random number of calls, a random candidate is the fastest."""

    def __init__(self, names: list[str], seed: int, max_calls: int = MAX_RACED_CALLS) -> None:
        super().__init__(names)
        self._draw = random.Random(seed)
        self._calls = self._draw.randint(1, max_calls)
        self._latest = self._winner = ""

    def next(self) -> str:
        if self.end:
            return self.fastest
        self._latest = self._draw.choice([name for name in self.racing() if name != self._latest] or self.racing())
        return self._latest

    def add(self, name: str, seconds: float) -> None:
        self.entrants[name].seconds.append(seconds)
        if sum(len(entrant.seconds) for entrant in self.entrants.values()) >= self._calls:
            self.end = "enough calls were made"

    @property
    def fastest(self) -> str:
        if self._winner not in self.racing():
            self._winner = self._draw.choice([name for name in self.racing() if self.entrants[name].seconds] or self.racing())
        return self._winner

    def winner(self, baseline: str, min_gain: float = 0.0) -> str:
        return self.fastest
