"""Joins a unit with a neighbour whose device is always as good for it as any other."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.crossings import crossings_of
from placer.problem.problem import PlacementProblem
from placer.solvers.reductions.moves import Moves
from placer.solvers.reductions.reduced import Reduced, holds_anything, lends_memory


def followers(reduced: Reduced) -> Reduced:
    """Joins each unit with a neighbour whose device is as good for it as any other, wherever all other units are.

    Examples are a unit of a chain whose copies cost more than it gains elsewhere, a constant, and a node without cost. If the
    neighbour's device may be one that does not hold anything (see `holds_anything`), the unit must add no memory there; a unit
    that lends memory must not leave such a device. In each set of joined units one leads; the others can move to its device in
    turn, and no move raises the cost.
    """
    problem, unlimited = reduced.problem, holds_anything(reduced.problem)
    allowed, work, crossings = problem.units.allowed, problem.unit_time_ns, crossings_of(problem)
    moves = Moves(problem)
    entry = np.flatnonzero(~moves.own)
    x = crossings.user_crossing[entry]
    maker, user = crossings.unit[x], crossings.user[entry]
    pairs, pair = np.unique(np.append(user * problem.num_units + maker, maker * problem.num_units + user), return_inverse=True)
    user_pair, maker_pair = pair[: len(entry)], pair[len(entry) :]  # the pairs in which an entry's user and its producer follow
    follower, leader = np.divmod(pairs, problem.num_units)

    good = (allowed[follower].sum(axis=1) > 1) & ~(allowed[leader] & ~allowed[follower]).any(axis=1)
    limited = (allowed & ~unlimited).sum(axis=1) > 0
    good &= _adds_no_memory(problem, follower, leader) | ~(limited[leader] | (lends_memory(problem) & limited)[follower])
    for old, new in permutations(range(problem.num_devices), 2):
        change = (work[:, new] - work[:, old] + moves.copies_ns(old, new))[follower]
        # With the leader on the new device, its outputs come from there, and its inputs are certainly taken there.
        known = moves.use_moves_ns(old, new)[entry] - moves.use_moves_by_producer_ns(old, new)[entry, new]
        np.subtract.at(change, user_pair, known)
        more, worst = moves.producer_moves_ns(old, new)
        copied, first = np.unique(np.stack([maker_pair, x, crossings.user_place[entry, new]]), axis=1, return_index=True)
        place = copied[2]
        np.subtract.at(change, copied[0], worst[x[first], place] - more[x[first], place])
        good &= ~(allowed[follower, old] & allowed[leader, new] & (change > 0))

    leads = np.arange(problem.num_units)
    chosen = np.flatnonzero(good)[::-1]
    leads[follower[chosen]] = leader[chosen]
    return reduced.joined(_roots(leads), allowed)


def _adds_no_memory(problem: PlacementProblem, follower: Ints, leader: Ints) -> Bools:
    """Whether the follower, on the leader's device, adds no memory on any device.

    True if it has no variables and no workspace, if its inputs are outputs of the leader and made at the places where it takes
    them, and if only the leader uses its outputs, at the places where they are made.
    """
    none = -1
    units, sized = problem.num_units, problem.tensors.nbytes > 0
    maker = problem.ops.unit[problem.tensors.op]
    user, t = problem.ops.unit[problem.consumers.op], problem.consumers.tensor
    in_place = (problem.consumer_place == problem.tensor_place[t]).all(axis=1)

    low, high = np.full(units, units), np.full(units, none - 1)  # the lowest and highest unit whose device a unit must share

    def demand(unit: Ints, beside: Ints) -> None:
        np.minimum.at(low, unit, beside)
        np.maximum.at(high, unit, beside)

    demand(maker[t[sized[t]]], np.where(in_place, user, none)[sized[t]])
    across = sized[t] & (user != maker[t])
    demand(user[across], np.where(in_place, maker[t], none)[across])
    unused = sized & ((np.bincount(t, minlength=len(sized)) == 0) | (problem.tensors.is_result & ~problem.tensors.free))
    heavy = np.append(np.flatnonzero(problem.units.persistent_bytes), problem.ops.unit[problem.ops.workspace_bytes.any(axis=1)])
    alone = np.append(maker[unused], heavy)
    demand(alone, np.full(len(alone), none))
    result: Bools = (low[follower] >= leader) & (high[follower] <= leader)
    return result


def _roots(leads: Ints) -> Ints:
    """[U]: the representative of the set that each unit belongs to, if each unit is joined with the one it names."""
    least, ahead = np.arange(len(leads)), leads
    for _ in range(len(leads).bit_length()):
        least = np.minimum(least, least[ahead])
        ahead = ahead[ahead]
    return least[ahead]  # `ahead` is on the cycle that the unit's path ends in, `least` is the lowest unit of that cycle
