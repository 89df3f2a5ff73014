"""Finds every object that holds a variable's handle, before the variable moves.

Holders that can be given another handle are listed; any other holder would go on with stale values, so it forbids the move.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import tensorflow as tf

from placer.common.device_spec import parse
from placer.common.garbage_collection import paused_collection
from placer.errors import MoveError
from placer.tf._private.func_graphs import FuncGraph
from placer.tf._private.functions import ConcreteFunction
from placer.tf._private.gradients import watched_of
from placer.tf._private.handles import LostTensorError, ResourceVariable, printed_content
from placer.tf._private.holders import (
    DataIterator,
    Dataset,
    DatasetFunction,
    FunctionCaptures,
    capture_containers,
    captured_by_value,
    dataset_tensor,
    handle_arguments,
    variables_of_dataset,
)
from placer.tf._private.left_handles import unreadable
from placer.tf._private.live_objects import live_objects
from placer.tf.state.variables import name_of

UNLISTED = "objects that Python does not list, such as a local variable of a running function, or objects after gc.freeze()"

Watched: TypeAlias = frozenset[tuple[int, int]]
"""Ids of recording tapes, each with the id of a variable that it watches."""

_EAGER = tf.__internal__.EagerTensor
_HOLDER_TYPES = (
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
"""Types whose objects may hold a variable's handle, or show that a tensor does."""


def watched_variables() -> Watched:
    """The variables that recording tapes watch at this moment.

    While a function is traced, tapes around it start to watch the variables that it reads, although nothing is recorded. So this
    is called before tracing.
    """
    tapes = [tape for tape in live_objects(tf.GradientTape) if tape._recording]
    return frozenset((id(tape), id(variable)) for tape in tapes for variable in tape.watched_variables())


@dataclass
class HandleHolders:
    """The objects that hold the handles of some variables and can be given others."""

    captures: list[Any] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    """FuncGraphs that were first traced with a handle as an argument. They do not run with it."""
    variables: list[Any] = field(default_factory=list)
    """The variables themselves, and other objects with the handle of one, such as the result of an assignment."""
    references: Counter[int] = field(default_factory=Counter)
    """By id of a handle: how many of the references to it are from these objects."""
    others: dict[int, list[str]] = field(default_factory=dict)
    """By id of a handle: descriptions of holders that cannot be given another handle."""

    @classmethod
    def of(cls, variables: Sequence[Any], watched_before: Watched) -> HandleHolders:
        """Finds the holders.

        Args:
            variables: the variables that will move.
            watched_before: see `watched_variables`; tapes that watch only since then do not forbid a move.

        Raises:
            MoveError: something holds a handle and cannot be given another.
        """
        holders = cls.found(variables, watched_before)
        for variable in variables:
            if holding := holders.hindrance(variable):
                name, device = name_of(variable), parse(variable.device).short
                raise MoveError(
                    f"variable {name!r} cannot be moved from {device}: its storage is held by {holding}, which would go on with "
                    f"stale values. Way out: drop that before the first placed call, or pin {name!r} to {device}."
                )
        return holders

    @classmethod
    def found(cls, variables: Sequence[Any], watched_before: Watched) -> HandleHolders:
        """Finds the holders, also those that cannot be given another handle; for the arguments see `of`."""
        holders = cls._search(variables, watched_before)
        if any(holders._has_unknown_holder(v) or holders.others[id(v._handle)] for v in variables):
            gc.collect()  # objects that only wait for a collection hold nothing
            holders = cls._search(variables, watched_before)
        return holders

    def hindrance(self, variable: Any) -> str:
        """The holders of the variable's handle that cannot be given another, in words; "" if there are none."""
        descriptions = self.others[id(variable._handle)]
        if not descriptions and self._has_unknown_holder(variable):
            descriptions = [*dict.fromkeys(self._unknown_holders(variable))] or [UNLISTED]
        return ", ".join(descriptions)

    @classmethod
    @paused_collection()
    def _search(cls, variables: Sequence[Any], watched_before: Watched) -> HandleHolders:
        holders = cls(others={id(v._handle): [] for v in variables})
        input_lists: set[int] = set()
        tensors: list[Any] = []
        tensors_of_objects: set[int] = set()  # of datasets and iterators whose functions are among the objects
        for thing in live_objects(*_HOLDER_TYPES):
            kind = type(thing)
            if issubclass(kind, FunctionCaptures):
                if holders._count(captured_by_value(thing)):
                    holders.captures.append(thing)
            elif issubclass(kind, ConcreteFunction):
                inputs = vars(thing).get("_captured_inputs", ())
                if id(inputs) in input_lists or holders._count(inputs):
                    holders.functions.append(thing)
                    input_lists.add(id(inputs))
            elif issubclass(kind, FuncGraph):
                if holders._count(wrapper.unwrapped for wrapper in handle_arguments(thing)):
                    holders.graphs.append(thing)
            elif issubclass(kind, ResourceVariable):
                if holders._count([vars(thing).get("_handle")]):
                    holders.variables.append(thing)
            elif issubclass(kind, DatasetFunction):
                for handle in holders._moving(getattr(vars(thing).get("_function"), "_captured_inputs", ())):
                    holders.others[handle].append("a dataset that was made with it")
            elif issubclass(kind, (tf.GradientTape, tf.autodiff.ForwardAccumulator)):
                for variable in watched_of(thing, variables):
                    while_tracing = (
                        kind is tf.GradientTape and thing._recording and (id(thing), id(variable)) not in watched_before
                    )
                    if not while_tracing:
                        holders.others[id(variable._handle)].append(f"a {kind.__name__} that watches it")
            elif kind is _EAGER:
                if id(thing) not in unreadable and thing.dtype in (tf.resource, tf.variant) and id(thing) not in holders.others:
                    tensors.append(thing)
            elif (tensor := dataset_tensor(thing)) is not None:
                tensors_of_objects.add(id(tensor))
        holders._examine(tensors, tensors_of_objects, variables)
        return holders

    def _examine(self, tensors: Sequence[Any], tensors_of_objects: set[int], variables: Sequence[Any]) -> None:
        """Finds, among tensors, copies of the handles, and datasets and iterators whose functions are no Python objects."""
        variable_of_content = {printed_content(v._handle): v for v in variables}
        possible: dict[int, set[str]] = {key: set() for key in self.others}
        for tensor in tensors:
            try:
                content = printed_content(tensor)
            except LostTensorError:
                continue
            if tensor.dtype == tf.resource and not tensor.shape.rank:
                copied = [content] if content in variable_of_content else []
            else:
                copied = [handle for handle in variable_of_content if handle in content]
            for handle in copied:
                self.others[id(variable_of_content[handle]._handle)].append("a copy of its handle")
            description, captured = "", None
            if tensor.dtype == tf.resource and tensor.shape.rank:
                description = "a tensor of handles"
            elif "::IteratorResource" in content and id(tensor) not in tensors_of_objects:
                description = "an iterator that a function made or whose Python object is gone"
            elif "::Dataset" in content and id(tensor) not in tensors_of_objects:
                description = "a dataset that a function made or whose Python object is gone"
                captured = variables_of_dataset(tensor)
            for v in variables if description else ():
                if captured is None or any(spec.dtype == v.dtype and v.shape.is_compatible_with(spec.shape) for spec in captured):
                    possible[id(v._handle)].add(f"perhaps {description}")
        for key, descriptions in possible.items():
            self.others[key] = self.others[key] or sorted(descriptions)

    def _moving(self, tensors: Iterable[Any]) -> list[int]:
        """The ids of those tensors that are handles of the variables."""
        return [id(t) for t in tensors if id(t) in self.others]

    def _count(self, tensors: Iterable[Any]) -> bool:
        """Counts references to handles among these tensors; whether there are any."""
        moving = self._moving(tensors)
        self.references.update(moving)
        return bool(moving)

    def _has_unknown_holder(self, variable: Any) -> bool:
        """Whether there are more references to the variable's handle than the holders have."""
        return sys.getrefcount(variable._handle) - 1 > self.references[id(variable._handle)]

    def _unknown_holders(self, variable: Any) -> Iterator[str]:
        """Descriptions of the other objects that refer to the variable's handle."""
        known = {id(vars(v)) for v in self.variables} | set(map(id, self.variables))
        known |= {id(function._captured_inputs) for function in self.functions}
        known |= {id(container) for captures in self.captures for container in capture_containers(captures)}
        known |= {id(wrapper) for graph in self.graphs for wrapper in handle_arguments(graph)}
        for holder in gc.get_referrers(variable._handle):
            if id(holder) not in known:
                names = [str(k) for k, v in holder.items() if v is variable._handle] if isinstance(holder, dict) else []
                yield f"{names[0]!r} of a dict" if names else f"a {type(holder).__name__}"
