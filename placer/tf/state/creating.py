"""Variables that take memory only once it is decided where: until then they have a handle and no value."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from placer.errors import TraceError
from placer.tf._private.func_graphs import living_variables
from placer.tf._private.functions import ConcreteFunction, UnliftableError, deferred_initialisers, run_initialisers
from placer.tf._private.handles import PlainVariable, UninitializedVariable
from placer.tf._private.runtime import eager_scopes
from placer.tf._private.scratch import Scratch, in_scratch_graph
from placer.tf.devices import full_name, process_devices
from placer.tf.state import variables
from placer.tf.state.objects import living
from placer.tf.trace.tracing import Trace

_planning: ContextVar[int | None] = ContextVar("_planning", default=None)
"""While a function is traced that will not run before its variables are created: the `eager_scopes` around that."""


def host() -> Any:
    """The scope in which initial values are computed, whatever device they are for: there the variable may be all that fits."""
    return tf.device(full_name("CPU:0"))


@dataclass
class Deferred:
    """Variables whose initial values wait until they are created."""

    waiting: list[Any] = field(default_factory=list)
    lifted: list[tuple[Any, list[Any]]] = field(default_factory=list)
    """tf.functions, each with what TensorFlow found to initialise when it first traced them."""

    @contextmanager
    def building(self) -> Iterator[None]:
        """Variables that are made inside wait, and what is computed there is in the host's memory.

        Raises:
            TraceError: a function is being traced, which may run often.
        """
        if not tf.executing_eagerly():
            raise TraceError(
                "a function that is being traced calls plan_then_create: call it outside, and what it returns inside."
            )
        with self.making(), host():
            yield

    @contextmanager
    def making(self) -> Iterator[None]:
        """Variables that are made inside wait, save those that a tf.function makes."""
        with tf.variable_creator_scope(self._make):
            yield

    @contextmanager
    def tracing(self, function: Any) -> Iterator[None]:
        """Those too that this one makes, which is first traced inside."""
        found: list[Any] = []
        before = _planning.set(eager_scopes())
        try:
            with deferred_initialisers(function, found), self.making():
                yield
        finally:
            _planning.reset(before)
        if found:
            self.lifted.append((function, found))

    def _make(self, next_creator: Callable[..., Any], **given: Any) -> Any:
        try:
            return self._made(next_creator, given)
        except TypeError as error:
            if "is out of scope" not in str(error):
                raise
            raise TraceError(
                f"what gives variable {given.get('name')!r} its initial value uses a tensor that such a function has made and "
                "kept, as functools.cache does: make that tensor before, outside of them"
            ) from error

    def _made(self, next_creator: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        described = None
        if tf.executing_eagerly() and not tf.distribute.has_strategy():
            described = _described(given.get("initial_value"), given.get("dtype"))
        if described is None:
            return next_creator(**given)
        made = _Waiting(*described, given)
        self.waiting.append(made)
        return made

    def create(self, trace: Trace | None = None, device_of: Mapping[str, str] | None = None) -> None:
        """Gives the variables their values, each where a plan of a trace has it, those that none has where they were made.

        Args:
            trace: what was planned.
            device_of: full names by op; where one of them is not here, it is as if there were no plan.

        Raises:
            TraceError: an initial value depends on the arguments of the function that makes the variable.
        """
        ours = {*map(id, self.waiting), *(id(variable) for _, found in self.lifted for variable, _ in found)}
        if trace is not None and device_of and {*device_of.values()} <= {*map(full_name, process_devices())}:
            variables.move([m for m in variables.moves(trace, device_of) if id(m.variable) in ours])
        while self.waiting:
            variable = self.waiting.pop(0)
            if isinstance(variable, _Waiting):  # it may have been used
                variable.settle()
            del variable
        while self.lifted:
            function, found = self.lifted.pop()
            try:
                with host():
                    run_initialisers(function, found)
            except UnliftableError as error:
                raise TraceError(
                    f"{function.__name__} gives its variables initial values from its arguments: make it again, and call it "
                    "before you plan it"
                ) from error

    def abandon(self) -> None:
        """Leaves the variables to be created when they are used, by functions too that were traced already."""
        if self.lifted:
            self.create()
        waiting = {id(v._handle): v for v in self.waiting if isinstance(v, _Waiting)}
        self.waiting.clear()
        for function in living(ConcreteFunction) if waiting else ():
            captured = vars(function).get("_captured_inputs", ())
            if any(id(t) in waiting for t in captured):
                # TensorFlow calls what is no tensor, at each call of the function.
                used = [partial(getattr, waiting[id(t)], "handle") if id(t) in waiting else t for t in captured]
                function.set_external_captures(used)


def forget_deleted(graph: Any) -> None:
    """Leaves a function those variables that are still there: it may have used others, that waited, only while it was traced."""
    graph.variables = living_variables(graph)


def settle(concrete: Any) -> None:
    """Gives the variables of a function their values, those that were abandoned."""
    for variable in concrete.variables:
        if isinstance(variable, _Waiting):
            variable.settle()


class _Waiting(UninitializedVariable):  # type: ignore[misc]
    """A variable that gets its value once it is told to, or is used, save by what is being planned; then it is like any other."""

    def __init__(self, initial: Any, spec: tf.TensorSpec, given: Mapping[str, Any]) -> None:
        self._initial = initial
        kept = ("trainable", "caching_device", "name", "constraint", "synchronization", "aggregation")
        shape = spec.shape if given.get("shape") is None else given["shape"]
        super().__init__(shape=shape, dtype=spec.dtype, **{key: given.get(key) for key in kept})

    @property
    def handle(self) -> Any:
        if tf.executing_eagerly() or not (_planning.get() == eager_scopes() or in_scratch_graph()):
            self.settle()  # a function that captures it may run at any time from now on
        return self._handle

    @property
    def device(self) -> str:
        return str(self._handle.device)

    def settle(self) -> None:
        """Takes its initial value and becomes like any other."""
        with tf.init_scope():
            if not tf.executing_eagerly():
                return  # a graph of TensorFlow 1, which cannot use what was made outside
            with host():
                initial = self._initial() if callable(self._initial) else self._initial
                value = tf.convert_to_tensor(initial, self.dtype)
            del self._initial
            self.__class__ = PlainVariable
            with tf.device(self._handle.device):
                self.assign(value)


def _described(initial: Any, dtype: Any) -> tuple[Any, tf.TensorSpec] | None:
    """An initial value, or the function that gives it, and its type; None where that cannot be told without computing it.

    Such a function runs in a graph, which computes nothing yet: the value is computed from that. Where its ops may then give
    another one it runs again at once: later, what it uses may be another, such as a variable or what a loop counts.
    """
    if not callable(initial):
        return _value(initial, dtype)
    drawn = np.random.get_state(), random.getstate()  # noqa: NPY002
    scratch = Scratch()
    try:
        with scratch.graph.as_default(), host():
            made = initial()
    except Exception:  # what it needs that a graph has not is there when it is run
        made = None
    if made is not None and not tf.is_symbolic_tensor(made):
        return _value(made, dtype)
    known = made is not None and made.shape.is_fully_defined()
    if known and made.op.type == "Const" and dtype in (None, made.dtype):
        return _value(tf.get_static_value(made), dtype)
    if known and scratch.is_repeatable():
        return partial(scratch.value, made), tf.TensorSpec(made.shape, dtype or made.dtype)
    np.random.set_state(drawn[0])  # noqa: NPY002
    random.setstate(drawn[1])
    scratch.return_seeds()
    if not known:
        return None
    with host():
        return _value(initial(), dtype)


def _value(initial: Any, dtype: Any) -> tuple[Any, tf.TensorSpec] | None:
    try:
        with host():
            value = tf.convert_to_tensor(initial, dtype)
    except (TypeError, ValueError):
        return None  # TensorFlow says why
    return value, tf.TensorSpec(value.shape, value.dtype)
