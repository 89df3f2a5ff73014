"""A unit that may as well be where a neighbour is goes with it: links of chains, constants, nodes without cost."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.crossings import crossings_of
from placer.problem.problem import PlacementProblem
from placer.solvers.reductions.moves import Moves
from placer.solvers.reductions.reduced import Reduced, lends, roomy


def followers(reduced: Reduced) -> Reduced:
    """Joins each unit with a neighbour whose device is as good for it as any other, wherever the rest is.

    Such is a unit in a chain whose copies outweigh what it gains elsewhere. Where the neighbour's device is not roomy, the
    unit must hold nothing there that is not held anyway; one that lends memory must not leave a device that is not. One unit
    of those joined leads, and the others come to it in turn, none of them at a loss.
    """
    problem, has_room = reduced.problem, roomy(reduced.problem)
    allowed, work, crossings = problem.units.allowed, problem.unit_time_ns, crossings_of(problem)
    moves = Moves(problem)
    entry = np.flatnonzero(~moves.own)
    x = crossings.user_crossing[entry]
    maker, user = crossings.unit[x], crossings.user[entry]
    pairs, pair = np.unique(np.append(user * problem.num_units + maker, maker * problem.num_units + user), return_inverse=True)
    as_user, as_maker = pair[: len(entry)], pair[len(entry) :]  # the pair in which an entry's user follows, its maker does
    follower, leader = np.divmod(pairs, problem.num_units)

    good = (allowed[follower].sum(axis=1) > 1) & ~(allowed[leader] & ~allowed[follower]).any(axis=1)
    crowded = (allowed & ~has_room).sum(axis=1) > 0
    good &= _weightless(problem, follower, leader) | ~(crowded[leader] | (lends(problem) & crowded)[follower])
    for here, there in permutations(range(problem.num_devices), 2):
        change = (work[:, there] - work[:, here] + moves.copies_ns(here, there))[follower]
        # With the leader there, what it makes comes from there, and what it takes is surely taken there.
        known = moves.of_users(here, there)[entry] - moves.by_origin(here, there)[entry, there]
        np.subtract.at(change, as_user, known)
        more, worst = moves.of_makers(here, there)
        taken, first = np.unique(np.stack([as_maker, x, crossings.user_place[entry, there]]), axis=1, return_index=True)
        place = taken[2]
        np.subtract.at(change, taken[0], worst[x[first], place] - more[x[first], place])
        good &= ~(allowed[follower, here] & allowed[leader, there] & (change > 0))

    leads = np.arange(problem.num_units)
    chosen = np.flatnonzero(good)[::-1]
    leads[follower[chosen]] = leader[chosen]
    return reduced.then("followers", _roots(leads), allowed)


def _weightless(problem: PlacementProblem, follower: Ints, leader: Ints) -> Bools:
    """Whether the follower, beside the leader, holds nothing that is not held without it, on any device.

    It keeps nothing and needs no workspace, what it takes is made by the leader where it is taken, and what it makes is used
    by the leader alone, where it is made.
    """
    none = -1
    units, sized = problem.num_units, problem.tensors.nbytes > 0
    maker = problem.ops.unit[problem.tensors.op]
    user, t = problem.ops.unit[problem.consumers.op], problem.consumers.tensor
    in_place = (problem.consumer_place == problem.tensor_place[t]).all(axis=1)

    low, high = np.full(units, units), np.full(units, none - 1)  # the units that a unit must be beside

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
    """For each unit the one that all it is joined with are called after, where each unit joins the one it names."""
    least, ahead = np.arange(len(leads)), leads
    for _ in range(len(leads).bit_length()):
        least = np.minimum(least, least[ahead])
        ahead = ahead[ahead]
    return least[ahead]  # `ahead` is on the ring that the unit comes to, `least` the first of that ring
