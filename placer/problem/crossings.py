"""Crossings: everything that can cost a copy, seen from the units that decide it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.problem.problem import PlacementProblem, once_per_problem


@dataclass(frozen=True, eq=False)
class Crossings:
    """Hyperedges from one producing unit to the units that use what it makes: X of them with E users in all.

    A crossing is a tensor that is not free, or the control edges out of one op, which are a tensor of no bytes between devices'
    own memories. What can never differ is left out: users of the producing unit that take it where it is made, and repetitions.
    """

    tensor: Ints
    """[X]; -1 for control edges."""
    unit: Ints
    """[X]: who makes it."""
    place: Ints
    """[X, D]: where, by the producing unit's device."""
    nbytes: Ints
    """[X]: as copies count them."""
    count: Floats
    """[X]: copies per step."""
    start: Ints
    """[X + 1]: users of crossing x are entries start[x]:start[x+1]."""
    user: Ints
    """[E]: unit."""
    user_place: Ints
    """[E, D]: where it takes it, by the user's device."""
    user_crossing: Ints
    """[E]"""

    @classmethod
    def of(cls, problem: PlacementProblem) -> Crossings:
        """Gathers them in the order of tensors, then of the ops whose control edges cross."""
        tensors = np.flatnonzero(~problem.tensors.free)
        sources, source = np.unique(problem.ops.control_src, return_inverse=True)
        number = np.full(problem.num_tensors, -1, np.int64)
        number[tensors] = np.arange(len(tensors))

        tensor = np.append(tensors, np.full(len(sources), -1))
        unit = problem.ops.unit[np.append(problem.tensors.op[tensors], sources)]
        own = np.arange(problem.num_devices)
        place = np.concatenate([problem.tensor_place[tensors], np.tile(own, (len(sources), 1))])
        nbytes = np.append(problem.tensors.copy_bytes[tensors], np.zeros(len(sources), np.int64))
        count = np.append(problem.tensors.count[tensors], problem.ops.control_count[sources])

        paid = ~problem.tensors.free[problem.consumers.tensor]
        crossing = np.append(number[problem.consumers.tensor[paid]], len(tensors) + source)
        user = problem.ops.unit[np.append(problem.consumers.op[paid], problem.ops.control_dst)]
        user_place = np.concatenate([problem.consumer_place[paid], np.tile(own, (len(source), 1))])

        inside = (user == unit[crossing]) & (user_place == place[crossing]).all(axis=1)
        kept = np.flatnonzero(~inside)
        code = (user_place[kept] >= problem.num_devices) @ (1 << np.arange(problem.num_devices))
        key = ((crossing[kept] * problem.num_units + user[kept]) << problem.num_devices) + code
        _, first = np.unique(key, return_index=True)
        kept = kept[first]
        live, user_crossing = np.unique(crossing[kept], return_inverse=True)
        start = np.searchsorted(user_crossing, np.arange(len(live) + 1)).astype(np.int64)
        return cls(
            tensor[live], unit[live], place[live], nbytes[live], count[live], start, user[kept], user_place[kept], user_crossing
        )


crossings_of = once_per_problem(Crossings.of)
