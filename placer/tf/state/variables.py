"""Variables moved to other devices, and all that still holds their old storage.

A tf.Variable moves by taking another handle: it stays the same object to checkpoints, layers and optimizers. What was traced
before holds the old handle and would go on with what the old storage has, silently. So everything that holds it is found first:
functions take the new handle, and where anything else holds the old one, nothing moves. What TensorFlow's runtime alone knows of,
such as a queue, cannot be found; but then the old storage outlives the move, which is noticed.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import tensorflow as tf

from placer.common.device_spec import parse
from placer.common.garbage_collection import paused_collection
from placer.errors import MoveError
from placer.plan.placement import Placement
from placer.tf._private.func_graphs import FuncGraph, external_captures
from placer.tf._private.functions import ConcreteFunction
from placer.tf._private.gradients import watches
from placer.tf._private.handles import (
    ResourceVariable,
    has_value,
    held_specs,
    location,
    new_handle,
    printed_content,
    variable_of,
    weak_handle,
)
from placer.tf._private.holders import (
    DataIterator,
    Dataset,
    DatasetFunction,
    FunctionCaptures,
    capture_containers,
    captured_by_value,
    dataset_tensor,
    handle_arguments,
    replace_capture,
    replace_handle_argument,
    variables_of_dataset,
)
from placer.tf.devices import full_name
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.state.objects import living
from placer.tf.trace.tracing import Trace

Stale = Literal["repoint", "invalidate"]

UNSEEN = "what Python does not tell, such as a local variable of a running function, or objects after gc.freeze()"

_EAGER = tf.__internal__.EagerTensor
_HOLDERS = (
    FunctionCaptures,
    ConcreteFunction,
    FuncGraph,
    ResourceVariable,
    DatasetFunction,
    tf.GradientTape,
    tf.autodiff.ForwardAccumulator,
    _EAGER,
    DataIterator,
    Dataset,
)
"""What may hold a variable's storage, or tell of a tensor that does."""
_EMPTY = [0] * 8
"""A shape that takes no memory. Whatever is computed from it fails, or has a shape that was not meant either."""
_relying: weakref.WeakSet[Any] = weakref.WeakSet()
"""Placed functions whose plans decided where their variables are."""


@dataclass(frozen=True, slots=True)
class Move:
    """A variable, and the device it is to live on."""

    variable: Any
    device: str


@dataclass(frozen=True, slots=True)
class _Left:
    """Storage that a variable left and that something else still has."""

    variable: weakref.ref[Any]
    here: str
    """Where that is."""
    there: str
    """Where the variable went."""
    storage: Any
    """Its handle, which keeps nothing alive."""


_left: list[_Left] = []


def _name(variable: Any) -> str:
    return str(variable.name).removesuffix(":0")


def held(trace: Trace) -> dict[str, Any]:
    """By node of the trace's `OpGraph`: the handle of each captured resource that is somewhere already.

    A gradient that was taken since may have captured more.
    """
    names = trace.root.names
    captured = [(names.get(inner.op.name), outer) for outer, inner in external_captures(trace.root.graph)]
    return {name: outer for name, outer in captured if name and outer.dtype == tf.resource and location(outer)}


def decided() -> set[int]:
    """Ids of the handles of variables that a plan which runs has moved, or has chosen to leave where they are."""
    return {id(handle) for function in _relying for handle in function._captured_inputs}


def moves(trace: Trace, device_of: Mapping[str, str]) -> list[Move]:
    """What has to move for a plan: captured variables that are not where it has them.

    Raises:
        MoveError: one of them is known by its handle alone.
    """
    found = []
    for name, handle in held(trace).items():
        device = full_name(device_of[name])
        if held_specs(handle) and location(handle) != device:
            variable = variable_of(handle)
            if variable is None:
                raise MoveError(
                    f"{name!r} cannot be moved to {device_of[name]}: no tf.Variable has it. Way out: pin it to where it is."
                )
            found.append(Move(variable, device))
    return found


def elsewhere(trace: Trace, placement: Placement) -> bool:
    """Whether a variable is not where the plan has it, nor, free to go, where it was when the plan was made."""
    state, relied_on = placement.graph.resources, decided()
    found = ((handle, name, placement.graph.op(name).resource) for name, handle in held(trace).items())
    return any(
        (here := parse(location(handle)).short) != placement.ops[name].device
        and (here != state[key].device or id(handle) in relied_on)
        for handle, name, key in found
        if key in state
    )


def watched() -> frozenset[tuple[int, int]]:
    """Ids of the tapes that are recording, each with that of a variable it watches.

    Asked for before a function is traced: tapes around that will watch what it reads, though nothing is recorded.
    """
    tapes = [tape for tape in living(tf.GradientTape) if tape._recording]
    return frozenset((id(tape), id(variable)) for tape in tapes for variable in tape.watched_variables())


def move(
    wanted: Sequence[Move],
    function: TapedFunction | None = None,
    stale: Stale = "repoint",
    before: frozenset[tuple[int, int]] = frozenset(),
) -> None:
    """Moves variables, one copy at a time, `in_order`.

    Functions that were traced before go on with the new storage, or with "invalidate" fail at their next call; other placed
    functions plan anew. No other thread may be running one of them.

    Args:
        wanted: each variable once.
        function: the placed function whose plan it is, if that runs now: it goes on whatever `stale` says.
        before: what was `watched` before it was traced.

    Raises:
        MoveError: something holds a variable's storage that cannot be told of the move, and nothing has moved; or TensorFlow
            cannot make a copy, and those before it have moved; or all have moved, and what holds the old storage of one was
            found by that alone: as long as it is there, this is raised for every function with that variable.
    """
    with tf.init_scope():
        holders = _Holders.of([m.variable for m in wanted], before) if wanted else _Holders()
        try:
            for m in in_order(wanted):
                _move(m, holders, function and function.graph, stale)
        finally:  # some may have moved
            for placed in holders.functions:
                if isinstance(placed, TapedFunction) and not (function and placed.graph is function.graph):
                    placed.outdated()
        _none_left([m.variable for m in wanted], function)
    if function is not None:
        _relying.add(function)


def in_order(wanted: Sequence[Move]) -> list[Move]:
    """The moves to the host first, then always one that leaves most room where it goes, as far as the moves before it tell.

    So devices that exchange variables need room for one copy, not for all of what one of them receives.
    """
    ways: dict[tuple[str, str], list[tuple[int, Move]]] = {}
    for m in wanted:
        ways.setdefault((location(m.variable._handle), m.device), []).append((_nbytes(m.variable), m))
    for way in ways.values():
        way.sort(key=lambda sized: sized[0])
    order: list[Move] = []
    room: Counter[str] = Counter()
    while ways:
        here, there = max(ways, key=lambda way: (parse(way[1]).type == "CPU", room[way[1]] - ways[way][0][0]))
        nbytes, m = ways[here, there].pop(0)
        if not ways[here, there]:
            del ways[here, there]
        room.update({here: nbytes})
        room.subtract({there: nbytes})
        order.append(m)
    return order


def _nbytes(variable: Any) -> int:
    """What its value takes now, if it has one."""
    if not has_value(variable._handle):
        return 0
    shape = tf.raw_ops.VariableShape(input=variable._handle, out_type=tf.int64).numpy()
    return int(shape.prod()) * int(variable.dtype.size)


def _none_left(moved: Sequence[Any], function: TapedFunction | None) -> None:
    """Raises MoveError where something still has storage that one of the variables, or one of the function's, has left."""
    _left[:] = [left for left in _left if has_value(left.storage)]
    used = [variable_of(t) for t in function._captured_inputs if t.dtype == tf.resource] if function else []
    for left in _left:
        variable = left.variable()
        if variable is not None and any(v is variable for v in (*moved, *used)):
            name = _name(variable)
            raise MoveError(
                f"variable {name!r} was moved from {left.here} to {left.there}, and its old storage, which has no values now, is "
                "still held by what only TensorFlow's runtime knows of, such as a queue. Way out: drop that and make "
                f"it anew, or pin {name!r} to {left.here} before the first placed call."
            )


def _move(m: Move, holders: _Holders, graph: Any, stale: Stale) -> None:
    name, device, old = _name(m.variable), parse(m.device).short, m.variable._handle
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
            f"with less for {device}, or pin {name!r} to {parse(old.device).short}. What moved before it stays where it went."
        ) from error

    def moved() -> Any:
        raise MoveError(
            f"variable {name!r} was moved to {device} after this function was traced. Way out: make the function anew, or move "
            'with stale="repoint".'
        )

    for captures in holders.captures:
        replace_capture(captures, old, new)
    for traced in holders.functions:
        instead = moved if stale == "invalidate" and traced.graph is not graph else new
        traced.set_external_captures([instead if t is old else t for t in traced._captured_inputs])
    for traced in holders.graphs:
        replace_handle_argument(traced, old, new)
    for variable in holders.variables:
        if variable._handle is old:
            variable._handle = new
    if initialised:  # what holds it all the same gets no values, and no memory
        with tf.device(old.device):
            tf.raw_ops.AssignVariableOp(resource=old, value=tf.zeros(_EMPTY, m.variable.dtype), validate_shape=False)
        storage, here = weak_handle(old), parse(old.device).short
        del old
        if storage is not None and has_value(storage):
            _left.append(_Left(weakref.ref(m.variable), here, device, storage))


def free(function: TapedFunction) -> None:
    """Lets later plans decide where the variables of a function are that does not run any more."""
    _relying.discard(function)


@dataclass
class _Holders:
    """What holds the storage of some variables."""

    captures: list[Any] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    """That were traced with one as an argument, which they do not run with."""
    variables: list[Any] = field(default_factory=list)
    """Objects with the handle of one, such as what an assignment returned."""
    references: Counter[int] = field(default_factory=Counter)
    """By id of a handle: how many of the references to it these are."""
    others: dict[int, list[str]] = field(default_factory=dict)
    """By id of a handle, in words: what is known to hold it and cannot be told of a move."""

    @classmethod
    def of(cls, variables: Sequence[Any], before: frozenset[tuple[int, int]]) -> _Holders:
        """Finds them. Raises MoveError where something holds a handle that cannot be given another."""
        found = cls._search(variables, before)
        if any(found.unaccounted(v) or found.others[id(v._handle)] for v in variables):
            gc.collect()  # what only waits for that holds nothing
            found = cls._search(variables, before)
        for variable in variables:
            why = found.others[id(variable._handle)]
            if not why and found.unaccounted(variable):
                why = [*dict.fromkeys(found.strangers(variable))] or [UNSEEN]
            if why:
                name, here = _name(variable), parse(variable.device).short
                raise MoveError(
                    f"variable {name!r} cannot be moved from {here}: its storage is held by {', '.join(why)}, which would go on "
                    f"with stale values. Way out: drop that before the first placed call, or pin {name!r} to {here}."
                )
        return found

    @classmethod
    @paused_collection()
    def _search(cls, variables: Sequence[Any], before: frozenset[tuple[int, int]]) -> _Holders:
        found = cls(others={id(v._handle): [] for v in variables})
        lists: set[int] = set()
        tensors: list[Any] = []
        known: set[int] = set()  # datasets and iterators whose functions are among these objects
        for thing in living(*_HOLDERS):
            kind = type(thing)
            if issubclass(kind, FunctionCaptures):
                if found._count(captured_by_value(thing)):
                    found.captures.append(thing)
            elif issubclass(kind, ConcreteFunction):
                inputs = vars(thing).get("_captured_inputs", ())
                if id(inputs) in lists or found._count(inputs):
                    found.functions.append(thing)
                    lists.add(id(inputs))
            elif issubclass(kind, FuncGraph):
                if found._count(wrapper.unwrapped for wrapper in handle_arguments(thing)):
                    found.graphs.append(thing)
            elif issubclass(kind, ResourceVariable):
                if found._count([vars(thing).get("_handle")]):
                    found.variables.append(thing)
            elif issubclass(kind, DatasetFunction):
                for handle in found._among(getattr(vars(thing).get("_function"), "_captured_inputs", ())):
                    found.others[handle].append("a dataset that was made with it")
            elif issubclass(kind, (tf.GradientTape, tf.autodiff.ForwardAccumulator)):
                for variable in variables:
                    traced = kind is tf.GradientTape and thing._recording and (id(thing), id(variable)) not in before
                    if not traced and watches(thing, variable):
                        found.others[id(variable._handle)].append(f"a {kind.__name__} that watches it")
            elif kind is _EAGER:
                if thing.dtype in (tf.resource, tf.variant) and id(thing) not in found.others:
                    tensors.append(thing)
            elif (tensor := dataset_tensor(thing)) is not None:
                known.add(id(tensor))
        found._look_into(tensors, known, variables)
        return found

    def _look_into(self, tensors: Sequence[Any], known: set[int], variables: Sequence[Any]) -> None:
        """Finds copies of the handles, and datasets and iterators whose functions no Python object holds."""
        handles = {printed_content(v._handle): v for v in variables}
        perhaps: dict[int, set[str]] = {key: set() for key in self.others}
        for tensor in tensors:
            contents = printed_content(tensor)
            for handle, variable in handles.items():
                if handle in contents:
                    self.others[id(variable._handle)].append("a copy of its handle")
            hidden, inside = "", None
            if tensor.dtype == tf.resource and tensor.shape.rank:
                hidden = "a tensor of handles"
            elif "::IteratorResource" in contents and id(tensor) not in known:
                hidden = "an iterator that a function made or whose Python object is gone"
            elif "::Dataset" in contents and id(tensor) not in known:
                hidden = "a dataset that a function made or whose Python object is gone"
                inside = variables_of_dataset(tensor)
            for v in variables if hidden else ():
                if inside is None or any(spec.dtype == v.dtype and v.shape.is_compatible_with(spec.shape) for spec in inside):
                    perhaps[id(v._handle)].add(f"perhaps {hidden}")
        for key, guesses in perhaps.items():
            self.others[key] = self.others[key] or sorted(guesses)

    def _among(self, tensors: Iterable[Any]) -> list[int]:
        return [id(t) for t in tensors if id(t) in self.others]

    def _count(self, tensors: Iterable[Any]) -> bool:
        held = self._among(tensors)
        self.references.update(held)
        return bool(held)

    def unaccounted(self, variable: Any) -> bool:
        """Whether there are references to the variable's handle that were not found."""
        return sys.getrefcount(variable._handle) - 1 > self.references[id(variable._handle)]

    def strangers(self, variable: Any) -> Iterator[str]:
        """In words, what holds its handle and is none of these."""
        known = {id(vars(v)) for v in self.variables} | set(map(id, self.variables))
        known |= {id(function._captured_inputs) for function in self.functions}
        known |= {id(part) for captures in self.captures for part in capture_containers(captures)}
        known |= {id(wrapper) for graph in self.graphs for wrapper in handle_arguments(graph)}
        for holder in gc.get_referrers(variable._handle):
            if id(holder) not in known:
                names = [str(k) for k, v in holder.items() if v is variable._handle] if isinstance(holder, dict) else []
                yield f"{names[0]!r} of a dict" if names else f"a {type(holder).__name__}"
