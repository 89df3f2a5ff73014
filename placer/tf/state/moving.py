"""Moves variables to other devices, and gives every object that holds the old storage the new one.

A tf.Variable moves by taking another handle: for checkpoints, layers and optimizers it stays the same object. Functions that
were traced before hold the old handle and would silently go on with the values of the old storage. So all objects that hold it
are found first: functions get the new handle, and if anything else holds the old one, nothing moves. Objects that only
TensorFlow's runtime knows, such as a queue, cannot be found. They keep the old storage alive after the move, which is
detected.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import tensorflow as tf

from placer.common.device_spec import parse
from placer.errors import MoveError
from placer.tf._private.handles import has_value, new_handle, variable_of, weak_handle
from placer.tf._private.holders import replace_captures, replace_handle_arguments
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.state.handle_holders import HandleHolders, Watched
from placer.tf.state.variables import Move, in_order, name_of, rely_on_variables

Stale = Literal["repoint", "invalidate"]

_EMPTY = [0] * 8
"""A shape without elements. An op that reads a value of this shape fails, or gives a shape that shows the mistake."""


@dataclass(frozen=True, slots=True)
class _OldStorage:
    """Storage that a variable left and that something else may still hold."""

    variable: weakref.ref[Any]
    device: str
    """The device that the variable left."""
    new_device: str
    handle: Any
    """A handle that does not keep the storage alive."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """A variable whose value is in new storage, and the handles of both storages."""

    variable: Any
    old: Any
    new: Any


_old_storages: list[_OldStorage] = []


def move(
    moves: Sequence[Move],
    function: TapedFunction | None = None,
    stale: Stale = "repoint",
    watched_before: Watched = frozenset(),
) -> None:
    """Moves variables, one copy at a time, see `in_order`.

    Functions that were traced before go on with the new storage or, with "invalidate", fail at their next call. Placed functions
    of other traces are planned again. No other thread may be running one of them.

    Args:
        moves: each variable once.
        function: the placed function whose plan it is, if it runs from now on: `stale` has no effect on it.
        stale: what happens to functions that were traced before.
        watched_before: see `watched_variables`, called before the function was traced.

    Raises:
        MoveError: something holds a variable's storage and cannot be given the new one (nothing has moved); TensorFlow cannot
            make a copy (the variables before it have moved); or the old storage of a variable is still
            alive: as long as it is, this is raised for every function with that variable.
    """
    with tf.init_scope():
        holders = HandleHolders.of([m.variable for m in moves], watched_before) if moves else HandleHolders()
        moved: list[_Moved] = []
        try:
            for each in in_order(moves):
                _copy(each, moved)
        finally:  # some may have moved
            _replace_handles(moved, holders, function and function.graph, stale)
            _old_storages.extend(_held_storages(moved))
            for placed in holders.functions:
                if isinstance(placed, TapedFunction) and not (function and placed.trace is function.trace):
                    placed.outdated()
        _check_old_storage([m.variable for m in moves], function)
    if function is not None:
        rely_on_variables(function)


def _check_old_storage(moved: Sequence[Any], function: TapedFunction | None) -> None:
    """Raises MoveError if something still holds the old storage of a moved variable or of a variable that the function uses."""
    _old_storages[:] = [storage for storage in _old_storages if has_value(storage.handle)]
    used = [variable_of(t) for t in function._captured_inputs if t.dtype == tf.resource] if function else []
    for storage in _old_storages:
        variable = storage.variable()
        if variable is not None and any(v is variable for v in (*moved, *used)):
            name = name_of(variable)
            raise MoveError(
                f"variable {name!r} was moved from {storage.device} to {storage.new_device}, and its old storage, which has no "
                "values now, is still held by something that only TensorFlow's runtime knows of, such as a queue. Way out: drop "
                f"that and make it anew, or pin {name!r} to {storage.device} before the first placed call."
            )


def _copy(m: Move, moved: list[_Moved]) -> None:
    """Copies a variable's value to new storage, appends it to `moved`, and empties the old storage."""
    name, device, old = name_of(m.variable), parse(m.device).short, m.variable._handle
    try:
        new = new_handle(m.variable, m.device)
        if initialised := has_value(old):
            with tf.device(old.device):
                value = tf.raw_ops.ReadVariableOp(resource=old, dtype=m.variable.dtype)
            with tf.device(m.device):
                tf.raw_ops.AssignVariableOp(resource=new, value=tf.identity(value))
    except tf.errors.OpError as error:
        why = error.message.strip().splitlines()[0]
        raise MoveError(
            f"variable {name!r} cannot be moved to {device}, where TensorFlow refuses to make it: {why}\nWay out: memory_limits "
            f"with less for {device}, or pin {name!r} to {parse(old.device).short}. Variables that moved before it stay moved."
        ) from error
    moved.append(_Moved(m.variable, old, new))
    if initialised:  # whatever still holds the old storage gets no values from it, and it takes no memory
        with tf.device(old.device):
            tf.raw_ops.AssignVariableOp(resource=old, value=tf.zeros(_EMPTY, m.variable.dtype), validate_shape=False)


def _replace_handles(moved: Sequence[_Moved], holders: HandleHolders, graph: Any, stale: Stale) -> None:
    """Gives the holders the new handles; functions whose graph is `graph` are not invalidated."""
    new_of = {id(each.old): each.new for each in moved}
    failing = {id(each.old): partial(_fail, name_of(each.variable), parse(each.new.device).short) for each in moved}
    for captures in holders.captures:
        replace_captures(captures, new_of)
    for traced in holders.functions:
        replacements = failing if stale == "invalidate" and traced.graph is not graph else new_of
        traced.set_external_captures([replacements.get(id(t), t) for t in traced._captured_inputs])
    for traced in holders.graphs:
        replace_handle_arguments(traced, new_of)
    for variable in holders.variables:
        variable._handle = new_of.get(id(variable._handle), variable._handle)


def _fail(name: str, device: str) -> Any:
    raise MoveError(
        f"variable {name!r} was moved to {device} after this function was traced. Way out: make the function anew, or move "
        'with stale="repoint".'
    )


def _held_storages(moved: list[_Moved]) -> list[_OldStorage]:
    """The old storages that something still holds. Clears `moved`, which holds them."""
    storages = [
        _OldStorage(weakref.ref(each.variable), parse(each.old.device).short, parse(each.new.device).short, weak)
        for each in moved
        if (weak := weak_handle(each.old)) is not None
    ]
    moved.clear()
    return [storage for storage in storages if has_value(storage.handle)]
