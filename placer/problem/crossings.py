"""Crossings: messages that may need a copy, by the units whose devices decide it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.problem.edges import edges_of
from placer.problem.problem import PlacementProblem, once_per_problem


@dataclass(frozen=True, eq=False)
class Crossings:
    """Hyperedges, each from one producing unit to the units that use its message: X crossings with E users in all.

    A crossing is a message (see `placer.problem.edges.Edges`) that is not free. Left out are users in the producing unit that
    take the message where it is made, and repetitions of a user and place.
    """

    tensor: Ints
    """[X]; -1 for control edges."""
    unit: Ints
    """[X]: the producing unit."""
    place: Ints
    """[X, D]: where it is made, by the producing unit's device."""
    nbytes: Ints
    """[X]: as copies count them."""
    count: Floats
    """[X]: copies per step."""
    start: Ints
    """[X + 1]: users of crossing x are entries start[x]:start[x+1]."""
    user: Ints
    """[E]: unit."""
    user_place: Ints
    """[E, D]: where the user takes it, by the user's device."""
    user_crossing: Ints
    """[E]"""

    @classmethod
    def of(cls, problem: PlacementProblem) -> Crossings:
        """Gathers the crossings in the order of messages."""
        edges = edges_of(problem)
        paid = np.flatnonzero(~edges.free)
        number = np.full(len(edges.free), -1, np.int64)
        number[paid] = np.arange(len(paid))
        unit, place = problem.ops.unit[edges.op[paid]], edges.place[paid]

        used = np.flatnonzero(~edges.free[edges.message])
        crossing = number[edges.message[used]]
        user, user_place = problem.ops.unit[edges.consumer[used]], edges.consumer_place[used]

        inside = (user == unit[crossing]) & (user_place == place[crossing]).all(axis=1)
        crossing_entries = np.flatnonzero(~inside)
        on_host = np.packbits(user_place[crossing_entries, ::-1] >= problem.num_devices, axis=1)
        patterns, pattern = np.unique(on_host, axis=0, return_inverse=True)
        key = (crossing[crossing_entries] * problem.num_units + user[crossing_entries]) * len(patterns) + pattern.reshape(-1)
        _, first = np.unique(key, return_index=True)
        crossing_entries = crossing_entries[first]
        live, user_crossing = np.unique(crossing[crossing_entries], return_inverse=True)
        start = np.searchsorted(user_crossing, np.arange(len(live) + 1)).astype(np.int64)
        message = paid[live]
        return cls(
            tensor=np.where(message < problem.num_tensors, message, -1),
            unit=unit[live],
            place=place[live],
            nbytes=edges.nbytes[message],
            count=edges.count[message],
            start=start,
            user=user[crossing_entries],
            user_place=user_place[crossing_entries],
            user_crossing=user_crossing,
        )


crossings_of = once_per_problem(Crossings.of)
