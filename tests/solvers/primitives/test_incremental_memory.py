"""Memory kept up to date move by move, against what is computed whole."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.problem.memory import peaks
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.incremental_memory import NOWHERE, IncrementalMemory
from tests.helpers.changed import changed
from tests.helpers.random_problems import problems, random_assignment


@settings(deadline=None, max_examples=200)
@given(
    problems(limits=True),
    st.lists(st.tuples(st.integers(0, 7), st.integers(NOWHERE, 2)), max_size=20),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2),
)
def test_room_fits_exactly_where_the_whole_assignment_does(
    problem: PlacementProblem, moves: list[tuple[int, int]], seed: int, tight: int
) -> None:
    """Whatever was moved before: a limit at the peak holds, one byte less does not."""
    assignment = random_assignment(problem, seed)
    most = peaks(problem, assignment)
    for limits, fits in ((most, True), (most - (np.arange(problem.num_devices) == tight % problem.num_devices), False)):
        if (limits < 0).any():  # nothing is held there, and -1 would be no limit
            continue
        room = IncrementalMemory(changed(problem, devices_memory_limit_bytes=limits))
        for unit, device in moves:
            room.move(unit % problem.num_units, min(device, problem.num_devices - 1))
        for unit, device in enumerate(assignment.device.tolist()):
            room.move(unit, device)
        assert room.fits() == fits


@settings(deadline=None, max_examples=100)
@given(problems(limits=True), st.integers(0, 2**32 - 1))
def test_a_unit_is_taken_where_it_fits_and_stays_where_it_was_where_not(problem: PlacementProblem, seed: int) -> None:
    device = random_assignment(problem, seed).device
    room, moved = IncrementalMemory(problem), random_assignment(problem, seed + 1).device
    for unit, d in enumerate(device.tolist()):
        room.move(unit, d)
    for unit, d in enumerate(moved.tolist()):
        there = device.copy()
        there[unit] = d
        held = peaks(problem, Assignment(there))
        assert room.move_if_fits(unit, d) == bool((held <= problem.devices.memory_limit_bytes).all())
        device = there if room.move_if_fits(unit, d) else device
