"""Variables that are created after they are planned: before that they have a handle and no value, and take no memory."""

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
from placer.tf._private import func_graphs
from placer.tf._private.functions import ConcreteFunction, UnliftableError, deferred_initialisers, run_initialisers
from placer.tf._private.handles import PlainVariable, UninitializedVariable
from placer.tf._private.live_objects import live_objects
from placer.tf._private.runtime import eager_scopes
from placer.tf._private.scratch import Scratch, in_scratch_graph
from placer.tf.devices import connected_devices, full_name
from placer.tf.state.moving import move
from placer.tf.state.variables import needed_moves
from placer.tf.trace.tracing import Trace

_planning: ContextVar[int | None] = ContextVar("_planning", default=None)
"""`eager_scopes` around the trace of a function that does not run before its variables are created; None outside of one."""


def host_scope() -> Any:
    """The device scope in which initial values are computed. On their own device, there may be room for the variable alone."""
    return tf.device(full_name("CPU:0"))


@dataclass
class Deferred:
    """Variables whose initial values are computed when they are created."""

    waiting: list[Any] = field(default_factory=list)
    lifted: list[tuple[Any, list[Any]]] = field(default_factory=list)
    """tf.functions, each with the initialisers that TensorFlow collected when it first traced them."""

    @contextmanager
    def building(self) -> Iterator[None]:
        """Defers variables that are made inside; other values that are computed inside are in host memory.

        Raises:
            TraceError: a function is being traced, which may run often.
        """
        if not tf.executing_eagerly():
            raise TraceError(
                "a function that is being traced calls plan_then_create: call it outside, and what it returns inside."
            )
        with self.making(), host_scope():
            yield

    @contextmanager
    def making(self) -> Iterator[None]:
        """Defers variables that are made inside, except those that a tf.function makes."""
        with tf.variable_creator_scope(self._make):
            yield

    @contextmanager
    def tracing(self, function: Any) -> Iterator[None]:
        """Defers variables that are made inside, with those that `function` makes, which is first traced inside."""
        initialisers: list[Any] = []
        before = _planning.set(eager_scopes())
        try:
            with deferred_initialisers(function, initialisers), self.making():
                yield
        finally:
            _planning.reset(before)
        if initialisers:
            self.lifted.append((function, initialisers))

    def _make(self, next_creator: Callable[..., Any], **options: Any) -> Any:
        try:
            return self._deferred(next_creator, options)
        except TypeError as error:
            if "is out of scope" not in str(error):
                raise
            raise TraceError(
                f"the function for the initial value of variable {options.get('name')!r} uses a tensor that such a function has "
                "made and kept, as functools.cache does: make that tensor before, outside of them"
            ) from error

    def _deferred(self, next_creator: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        described = None
        if tf.executing_eagerly() and not tf.distribute.has_strategy():
            described = _describe(options.get("initial_value"), options.get("dtype"))
        if described is None:
            return next_creator(**options)
        variable = _WaitingVariable(*described, options)
        self.waiting.append(variable)
        return variable

    def create(self, trace: Trace | None = None, device_of: Mapping[str, str] | None = None) -> None:
        """Creates the variables on their planned devices; variables that are not in the plan where they were made.

        Args:
            trace: of the planned function.
            device_of: full device names by op. If one of the devices is not in this process, the plan is ignored.

        Raises:
            TraceError: an initial value depends on the arguments of the function that makes the variable.
        """
        ours = {*map(id, self.waiting), *(id(variable) for _, initialisers in self.lifted for variable, _ in initialisers)}
        if ours and trace is not None and device_of and {*device_of.values()} <= {*map(full_name, connected_devices())}:
            move([m for m in needed_moves(trace, device_of) if id(m.variable) in ours])
        while self.waiting:
            variable = self.waiting.pop(0)
            if isinstance(variable, _WaitingVariable):  # it may have been used, and is then like any other
                variable.initialise()
            del variable
        while self.lifted:
            function, initialisers = self.lifted.pop()
            try:
                with host_scope():
                    run_initialisers(function, initialisers)
            except UnliftableError as error:
                raise TraceError(
                    f"{function.__name__} gives its variables initial values from its arguments: make it again, and call it "
                    "before you plan it"
                ) from error

    def abandon(self) -> None:
        """Leaves each variable to be created when it is used, by functions too that were traced already."""
        if self.lifted:
            self.create()
        waiting = {id(v._handle): v for v in self.waiting if isinstance(v, _WaitingVariable)}
        self.waiting.clear()
        for function in live_objects(ConcreteFunction) if waiting else ():
            captured = vars(function).get("_captured_inputs", ())
            if any(id(t) in waiting for t in captured):
                # At each call of the function, TensorFlow calls a captured input that is callable.
                captures = [partial(getattr, waiting[id(t)], "handle") if id(t) in waiting else t for t in captured]
                function.set_external_captures(captures)


def forget_deleted(graph: Any) -> None:
    """Removes deleted variables from a function's graph: it may have made variables only for the time of its trace."""
    graph.variables = func_graphs.living_variables(graph)


def initialise_variables(concrete: Any) -> None:
    """Gives the variables of a function that were abandoned their initial values."""
    for variable in concrete.variables:
        if isinstance(variable, _WaitingVariable):
            variable.initialise()


class _WaitingVariable(UninitializedVariable):  # type: ignore[misc]
    """A variable that gets its value when it is created, or when anything but the function that is being planned uses it.

    Afterwards it is like any other variable.
    """

    def __init__(self, initial: Any, spec: tf.TensorSpec, options: Mapping[str, Any]) -> None:
        self._initial = initial
        option_names = ("trainable", "caching_device", "name", "constraint", "synchronization", "aggregation")
        shape = spec.shape if options.get("shape") is None else options["shape"]
        super().__init__(shape=shape, dtype=spec.dtype, **{key: options.get(key) for key in option_names})

    @property
    def handle(self) -> Any:
        if tf.executing_eagerly() or not (_planning.get() == eager_scopes() or in_scratch_graph()):
            self.initialise()  # a function that captures it may run at any time from now on
        return self._handle

    @property
    def device(self) -> str:
        return str(self._handle.device)

    def initialise(self) -> None:
        """Gives the variable its initial value and makes it like any other."""
        with tf.init_scope():
            if not tf.executing_eagerly():
                return  # a graph of TensorFlow 1, which cannot use a variable that was made outside
            with host_scope():
                initial = self._initial() if callable(self._initial) else self._initial
                value = tf.convert_to_tensor(initial, self.dtype)
            del self._initial
            self.__class__ = PlainVariable
            with tf.device(self._handle.device):
                self.assign(value)


def _describe(initial: Any, dtype: Any) -> tuple[Any, tf.TensorSpec] | None:
    """An initial value, or the function that gives it, and its type; None where the type is only known once it is computed.

    A function for an initial value is called in a scratch graph, which computes nothing: the value is computed later from that
    graph. If the graph's ops could give another value later, the function is called again at once, eagerly. Later, the objects
    that it uses may have changed, such as a variable or the counter of a loop.
    """
    if not callable(initial):
        return _value(initial, dtype)
    generator_states = np.random.get_state(), random.getstate()  # noqa: NPY002
    scratch = Scratch()
    try:
        with scratch.graph.as_default(), host_scope():
            traced = initial()
    except Exception:  # it needs something that a graph does not have and an eager call does
        traced = None
    if traced is not None and not tf.is_symbolic_tensor(traced):
        return _value(traced, dtype)
    is_known = traced is not None and traced.shape.is_fully_defined()
    if is_known and traced.op.type == "Const" and dtype in (None, traced.dtype):
        return _value(tf.get_static_value(traced), dtype)
    if is_known and scratch.is_repeatable():
        return partial(scratch.value, traced), tf.TensorSpec(traced.shape, dtype or traced.dtype)
    np.random.set_state(generator_states[0])  # noqa: NPY002
    random.setstate(generator_states[1])
    scratch.return_seeds()
    if not is_known:
        return None
    with host_scope():
        return _value(initial(), dtype)


def _value(initial: Any, dtype: Any) -> tuple[Any, tf.TensorSpec] | None:
    """A value as a tensor in host memory, and its type; None where TensorFlow refuses it, which then says why."""
    try:
        with host_scope():
            value = tf.convert_to_tensor(initial, dtype)
    except (TypeError, ValueError):
        return None
    return value, tf.TensorSpec(value.shape, value.dtype)
