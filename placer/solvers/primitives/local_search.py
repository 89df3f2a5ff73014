"""Better assignments within the memory limits: single moves, and moves that another unit makes room for."""

from __future__ import annotations

import math
import time

import numpy as np

from placer.problem.price import move_costs_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.incremental_cost import Ledger
from placer.solvers.primitives.incremental_memory import Room

PARTNERS = 8
"""How many units are asked to make room for one."""


def exchange(problem: PlacementProblem, assignment: Assignment, *, passes: int, time_limit_s: float = math.inf) -> Assignment:
    """Moves units, in order, where that lowers the total cost, until no move does.

    One that would not fit is tried once more with some of those that could leave its device at a lower cost than it saves, as
    costs were before the pass. `assignment` must fit.
    """
    ends = time.perf_counter() + time_limit_s
    ledger, room = Ledger(problem, assignment), Room(problem)
    for unit, device in enumerate(ledger.device):
        room.move(unit, device)
    choices = [(unit, np.flatnonzero(row).tolist()) for unit, row in enumerate(problem.units.allowed) if row.sum() > 1]
    for _ in range(passes):
        moved, leaving = False, _leaving(problem, ledger.assignment)
        for unit, devices in choices:
            for device in devices:
                here = ledger.device[unit]
                if device == here:
                    continue
                added = ledger.move(unit, device)
                if added < 0 and (room.take(unit, device) or _made_room(ledger, room, unit, here, -added, leaving[device])):
                    moved = True
                else:
                    ledger.move(unit, here)
            if time.perf_counter() > ends:
                return ledger.assignment
        if not moved:
            break
    return ledger.assignment


def _leaving(problem: PlacementProblem, assignment: Assignment) -> list[list[tuple[int, int, int]]]:
    """For each device the units on it, each with where it could go and what that adds to the total cost, the cheapest first."""
    every = np.arange(problem.num_units)
    there = problem.unit_time_ns + move_costs_ns(problem, assignment)
    added = there - there[every, assignment.device][:, None]
    unit, to = np.nonzero(problem.units.allowed & (np.arange(problem.num_devices) != assignment.device[:, None]))
    order = np.argsort(added[unit, to], kind="stable")
    moves = list(zip(unit[order].tolist(), to[order].tolist(), added[unit, to][order].tolist(), strict=True))
    device = assignment.device.tolist()
    return [[move for move in moves if device[move[0]] == d] for d in range(problem.num_devices)]


def _made_room(ledger: Ledger, room: Room, unit: int, here: int, saved: int, leaving: list[tuple[int, int, int]]) -> bool:
    """Whether another unit left the device that `unit` moved to, so that it fits there and something is saved."""
    device, asked = ledger.device[unit], 0
    room.move(unit, device)
    for other, elsewhere, about in leaving:
        if about >= saved or asked == PARTNERS:
            break
        if other == unit or ledger.device[other] != device:
            continue
        asked += 1
        if room.take(other, elsewhere):
            if ledger.move(other, elsewhere) < saved:
                return True
            ledger.move(other, device)
            room.move(other, device)
    room.move(unit, here)
    return False
