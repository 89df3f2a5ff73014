"""How much memory an assignment holds on each device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem


def usage(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """Bytes held on each device at each moment of the step, shape [D, N]; op i runs at moment ``ops.moment[i]``.

    - A tensor is held where it is produced from its producer to its last consumer, wherever that is, or to the end of the
      step where the caller has it; each copy is held at its place from the producer to the last consumer there. What a
      consumer's result takes the place of is given back just before; what it is a view of is held as long as the view.
    - A view, and a variable's value, read, is in memory that something else is counted for: only its copies count.
    - A free tensor (a constant) is held all the time at each place that makes or takes it.
    - Persistent bytes are held all the time on their unit's device, workspace while its op runs.
    - A device pays for its own place; the first CPU pays for all views of host memory.
    """
    device = assignment.device
    op_device = device[problem.ops.unit]
    ops, tensors = problem.num_ops, problem.num_tensors
    every = np.arange(tensors)
    src = problem.tensor_place[every, op_device[problem.tensors.op]]
    dst = problem.consumer_place[np.arange(len(problem.consumers)), op_device[problem.consumers.op]]

    until = np.full((tensors, 2 * problem.num_devices), -1, np.int64)
    np.maximum.at(until, (problem.consumers.tensor, dst), problem.consumer_last)
    until[every, src] = problem.tensor_last
    tensor, place = np.nonzero(until >= 0)

    nbytes = np.where(problem.tensors.shared[tensor] & (place == src[tensor]), 0, problem.tensors.held_bytes[tensor])
    change = np.zeros((problem.num_devices, ops + 1), np.int64)
    np.add.at(change, (problem.devices.place_device[place], problem.tensor_begin[tensor]), nbytes)
    np.subtract.at(change, (problem.devices.place_device[place], until[tensor, place] + 1), nbytes)
    np.add.at(change[:, 0], device, problem.units.persistent_bytes)
    held = np.cumsum(change[:, :-1], axis=1)
    held[op_device, problem.ops.moment] += problem.ops.workspace_bytes[np.arange(ops), op_device]
    return held


def peaks(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """The most bytes each device holds at once, shape [D]; see `usage`."""
    most: Ints = usage(problem, assignment).max(axis=1, initial=0)
    return most


def excess(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """By how many bytes each device's limit is missed, shape [D]; 0 where it holds."""
    over = peaks(problem, assignment) - problem.devices.memory_limit_bytes
    return np.where(problem.devices.memory_limit_bytes < 0, 0, np.maximum(over, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Everything that could take a device's memory at one moment: H holdings, each there if any of its holders is.

    A holder is a unit being on a device; holding h has the entries start[h]:start[h+1].
    """

    nbytes: Ints
    """[H]; negative for a shared tensor where it is made: that takes back what is counted for its being there."""
    start: Ints
    """[H + 1]"""
    unit: Ints
    on_device: Ints


def holdings(problem: PlacementProblem, device: int, moment: int) -> Holdings:
    """What `usage` of `device` at a moment depends on: the bytes whose holders are true sum up to it."""
    live = (problem.tensor_begin <= moment) & (problem.tensor_last >= moment)
    waiting = live[problem.consumers.tensor] & (problem.consumer_last >= moment)
    now = problem.ops.at_moment[moment]

    kept = np.flatnonzero(problem.units.persistent_bytes)
    keys = [np.arange(-1, len(kept))]
    units = [np.append(problem.ops.unit[now], kept)]
    devices = [np.full(len(kept) + 1, device)]
    nbytes = [np.append(problem.ops.workspace_bytes[now, device], problem.units.persistent_bytes[kept])]
    for q in np.flatnonzero(problem.devices.place_device == device).tolist():
        e = q % problem.num_devices
        made = np.flatnonzero(live & (problem.tensor_place[:, e] == q))
        taken = np.flatnonzero(waiting & (problem.consumer_place[:, e] == q))
        back = made[problem.tensors.shared[made]]
        tensor = np.concatenate([made, problem.consumers.tensor[taken], back])
        sign = np.repeat([1, -1], [len(made) + len(taken), len(back)])
        keys.append((tensor + np.where(sign < 0, len(live), 0)) * 2 * problem.num_devices + q + len(kept))
        holder = np.concatenate([problem.tensors.op[made], problem.consumers.op[taken], problem.tensors.op[back]])
        units.append(problem.ops.unit[holder])
        devices.append(np.full(len(holder), e))
        nbytes.append(sign * problem.tensors.held_bytes[tensor])
    key, unit, on_device, size = (np.concatenate(parts) for parts in (keys, units, devices, nbytes))
    order = np.lexsort((on_device, unit, key))
    order = order[size[order] != 0]
    key, unit, on_device = key[order], unit[order], on_device[order]
    again = np.zeros(len(key), np.bool_)
    again[1:] = (key[1:] == key[:-1]) & (unit[1:] == unit[:-1]) & (on_device[1:] == on_device[:-1])
    order, key, unit, on_device = order[~again], key[~again], unit[~again], on_device[~again]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
    return Holdings(size[order[first]], np.append(first, len(key)), unit, on_device)
