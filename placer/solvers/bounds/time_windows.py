"""When each op can be issued and end on each device in a step of at most a given length, and the devices that this leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Bools, Ints
from placer.problem.schedule import Simulator
from placer.solvers.bounds.longest_chains import LongestChains

MAX_ROUNDS = 10
"""Limit of the rounds in which devices are ruled out; devices that are left after it are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class TimeWindows:
    """The allowed devices of each unit, and the times of each op there. Times of N ops on D devices, in ns."""

    allowed: Bools
    """[U, D]: all False for a unit that can be on no device, so that no step is so short."""
    issued: Ints
    """[N, D]: the earliest time at which an op is issued."""
    done: Ints
    """[N, D]: the earliest end of an op."""
    after_issue: Ints
    """[N, D]: the least time from when an op is issued to the end of the step."""
    after_end: Ints
    """[N, D]: the least time from the end of an op to the end of the step."""

    @classmethod
    def of(cls, simulator: Simulator, ops_ns: int) -> TimeWindows:
        """Windows in a step whose ops take at most `ops_ns`; devices on which an op would exceed it are ruled out in rounds.

        As in the longest chain, no two ops share a resource, and each edge chooses the device at its other end freely.
        """
        chains, unit, allowed = LongestChains(simulator), simulator.problem.ops.unit, simulator.problem.units.allowed.copy()
        for _ in range(MAX_ROUNDS):
            spend(2 * simulator.problem.num_ops)
            may = allowed[unit]
            issued, done = chains.heads(allowed)
            after_issue, after_end = chains.tails(allowed)
            late = may & (np.maximum(issued + after_issue, done + after_end) > ops_ns)
            windows = cls(allowed.copy(), issued, done, after_issue, after_end)
            if not late.any() or not allowed.any(axis=1).all():
                break
            np.logical_and.at(allowed, unit, ~late)
        return windows
