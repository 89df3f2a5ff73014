"""Functions of TensorFlow: how they are traced, registered, called, and how their errors are explained."""

from __future__ import annotations

import os
import re
import sys
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.function.trace_type import default_types, trace_type_builder
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.eager import context, record
from tensorflow.python.eager.polymorphic_function import (
    atomic_function,
    attributes,
    concrete_function,
    polymorphic_function,
    tracing_compilation,
)
from tensorflow.python.framework import c_api_util, error_interpolation, func_graph
from tensorflow.python.ops import op_selector
from tensorflow.python.util import tf_stack

from placer.tf._private.copied_graphs import original_ops, report_error
from placer.tf._private.runtime import is_saving

PACKAGE_FOLDER = str(Path(__file__).parents[2]) + os.sep
"""The folder of this package. Its files are in the call stack while the user's code is traced."""

AtomicFunction = atomic_function.AtomicFunction
ConcreteFunction = concrete_function.ConcreteFunction
PolymorphicFunction = polymorphic_function.Function
UnliftableError = op_selector.UnliftableError

# Finds the names of functions in an error's message. TensorFlow's own pattern skips names such as "<lambda>" and names that are
# not ASCII, and finds no function at all if the outermost has such a name.
error_interpolation._INTERPOLATION_PATTERN = re.compile(r"(?P<sep>.*?)(?P<tag>{{(?P<type>\w+) (?P<name>[^{}\s]+)}})", re.DOTALL)


# -- tracing -----------------------------------------------------------------------------------------------------------


def raised_while_tracing(error: Exception) -> bool:
    """Whether the function's own code raised the error; False where TensorFlow refused the arguments before it ran that code."""
    tracer = func_graph.func_graph_from_py_func.__code__
    return any(frame.f_code is tracer for frame, _ in traceback.walk_tb(error.__traceback__))


class OwnFramesFilter(tf_stack.StackTraceFilter):  # type: ignore[misc]
    """While a function is traced inside, the source lines that TensorFlow records for its ops have none of this package."""

    def get_filtered_filenames(self) -> frozenset[str]:
        """The files of this package, and those of filters around this one."""
        return _own_files().union(self.parent.get_filtered_filenames())


@cache
def _own_files() -> frozenset[str]:
    return frozenset(map(str, Path(PACKAGE_FOLDER).rglob("*.py")))


def trace_type(value: Any) -> Any:
    """The type by which a tf.function recognises calls with `value`; TypeError where it has no rule for it."""
    return trace_type_builder.from_value(value)


def trace_type_by_identity(value: Any) -> Any:
    """The type by which a tf.function recognises calls with the object `value` itself, not with what its `__wrapped__` names."""
    return default_types.Weakref(weakref.ref(value))


def known_graph(function: Any) -> Any:
    """The graph that a registered function was made from, or None. Its property `graph` would make one from its definition.

    None also for a function of TensorFlow 1 (`Defun`), which is registered beside the others.
    """
    return function._cached_graph if isinstance(function, AtomicFunction) else None


def must_compile(function: Any) -> bool:
    """Whether XLA compiles a registered function as a whole."""
    attribute = function.attributes.get(attributes.XLA_COMPILE)
    return bool(attribute is not None and attribute.b)


def caller_to_be_compiled() -> str:
    """The function that is being traced around the call and that XLA will compile as a whole, in words; "" if there is none.

    XLA compiles a function together with all functions that it calls, so it may be any of those that are being traced. The
    innermost is named.
    """
    if tf.executing_eagerly():
        return ""
    tracer = tracing_compilation._maybe_define_function.__code__
    for frame, _ in traceback.walk_stack(None):
        if frame.f_code is tracer:
            options = frame.f_locals["tracing_options"]
            if (options.attributes or {}).get(attributes.XLA_COMPILE):
                package = str(getattr(options.python_function, "__module__", "")).partition(".")[0]
                return f"{options.name!r}{' of Keras' if package == 'keras' else ''}"
    return ""


def variable_creation_function(function: Any) -> Any:
    """The trace of a tf.function that creates variables and initialises those without a value; None if it has no such trace."""
    return getattr(function, "_concrete_variable_creation_fn", None)


@contextmanager
def deferred_initialisers(function: Any, initialisers: list[Any]) -> Iterator[None]:
    """While a tf.function is first traced inside, its variables' initialisers are appended to `initialisers` and not run."""
    if not isinstance(function, PolymorphicFunction):
        yield
        return
    function._initialize_uninitialized_variables = initialisers.extend
    try:
        yield
    finally:
        del function._initialize_uninitialized_variables


def run_initialisers(function: Any, initialisers: Sequence[Any]) -> None:
    """Runs the initialisers of a tf.function that `deferred_initialisers` collected."""
    function._initialize_uninitialized_variables(initialisers)


# -- registering -------------------------------------------------------------------------------------------------------


def register_body(name: str, graph: Any) -> Any:
    """Registers a FuncGraph as a function that ops can refer to by name; returns the function."""
    function = atomic_function.from_func_graph(name, graph, {})
    function.__class__ = _RuntimeFunction
    return function


def concrete_from_graph(graph: Any, function_type: Any, attrs: Mapping[str, Any]) -> Any:
    """A ConcreteFunction that runs `graph`."""
    concrete = ConcreteFunction.from_func_graph(graph, function_type, attrs)
    concrete.inference_fn.__class__ = _RuntimeFunction
    return concrete


_keeps_devices: ContextVar[bool] = ContextVar("keeps_devices", default=False)


@contextmanager
def keeping_devices() -> Iterator[None]:
    """While the block runs, a SavedModel is written with the devices of private copies."""
    token = _keeps_devices.set(True)
    try:
        yield
    finally:
        _keeps_devices.reset(token)


class _RuntimeFunction(atomic_function.AtomicFunction):  # type: ignore[misc]
    """A registered function of a private copy.

    Its errors name the lines of the user's code that its nodes were copied from. While a SavedModel is written it has no
    devices.
    """

    __slots__ = ()

    @property
    def graph_debug_info(self) -> Any:
        """The source lines of the nodes. TensorFlow asks for them while it raises an error of this function."""
        error = sys.exc_info()[1]
        if isinstance(error, tf.errors.OpError) and tf.compat.as_text(self.name) in error.message:
            report_error(self.graph, error)
        builder = tf_stack.GraphDebugInfoBuilder()
        for name, op in original_ops(self.graph).items():
            if op.traceback is not None:
                builder.AccumulateStackTrace("", name, op.traceback.get_user_frames())
        info = builder.Build()
        trace_ids = {name.removesuffix("@"): trace for name, trace in info.name_to_trace_id.items()}
        info.name_to_trace_id.clear()
        info.name_to_trace_id.update(trace_ids)
        own = {frame for frame, line in info.frames_by_id.items() if info.files[line.file_index].startswith(PACKAGE_FOLDER)}
        for trace in info.traces_by_id.values():
            trace.frame_id[:] = [frame for frame in trace.frame_id if frame not in own]
        return info

    @property
    def _c_func(self) -> Any:
        if not is_saving() or _keeps_devices.get():
            return super()._c_func
        definition = self.definition
        for node in definition.node_def:
            node.device = ""
        bare = c_api.TF_FunctionImportFunctionDef(definition.SerializeToString())
        return c_api_util.ScopedTFFunction(bare, self.name)


def passing_on_handles(function: Any) -> Any:
    """A function that does the same, but whose eager calls pass on the handles that are both its inputs and its results.

    TensorFlow ends the process where a function returns the handle of a variable of another task. A forward function does, if
    its gradient needs the handle: that of a loop which uses the variable, for example.

    Args:
        function: a registered function of a private copy.
    """
    graph, outputs = function.graph, function.graph.outputs
    inputs = {id(tensor): k for k, tensor in enumerate(graph.inputs)}
    passed = {i: inputs[id(t)] for i, t in enumerate(outputs) if t.dtype == tf.resource and id(t) in inputs}
    if passed:
        try:
            graph.outputs = [tensor for i, tensor in enumerate(outputs) if i not in passed]
            function.without_handles = concrete_from_graph(graph, None, {}).inference_fn
        finally:
            graph.outputs = outputs
        function.passed = passed
        function.__class__ = _PassingOnHandles
    return function


class _PassingOnHandles(_RuntimeFunction):
    """See `passing_on_handles`."""

    __slots__ = ()

    without_handles: Any
    """The function without these results."""
    passed: Mapping[int, int]
    """By result that is a handle: the input that it is."""

    def call_flat(self, *args: Any) -> Any:
        if not tf.executing_eagerly():
            return super().call_flat(*args)
        results = iter(self.without_handles.call_flat(*args) or ())
        with record.stop_recording():  # a tape tells results from inputs by their identity
            return [
                tf.identity(args[self.passed[i]]) if i in self.passed else next(results)
                for i in range(len(self.function_type.flat_outputs))
            ]


def compiled_as_whole(concrete: Any) -> Any:
    """A ConcreteFunction of the same graph that XLA compiles as a whole, for the device that it is called on."""
    whole = concrete_from_graph(concrete.graph, concrete.function_type, {attributes.XLA_COMPILE: True})
    copy_flat_signature(concrete, whole)
    return whole


def inputs_of_program(concrete: Any, arguments: Sequence[Any], device: str) -> int:
    """How many inputs XLA's program of a function has. An input whose value the program depends on is none of them.

    Args:
        concrete: the function.
        arguments: flat tensors of a call.
        device: the full name of the device that XLA would compile for.

    Raises:
        ValueError: XLA cannot compile the function.
    """
    text = context.context().get_compiler_ir(
        device, None, concrete.name, list(arguments), list(concrete.captured_inputs), stage="hlo"
    )
    return int(text.decode().rpartition("\nENTRY ")[2].count(" parameter("))


# -- calling -----------------------------------------------------------------------------------------------------------


def copy_flat_signature(source: Any, target: Any) -> None:
    """Lets `target` be called with flat tensors as `source` can be."""
    target._arg_keywords = source._arg_keywords
    target._num_positional_args = source._num_positional_args


def flat_arguments(concrete: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The call's tensors in the order of the graph's inputs, without captures."""
    function_type = concrete.function_type
    if concrete._arg_keywords and not function_type.parameters:  # a wrapped graph of TensorFlow 1, called with tensors alone
        return [*args, *(kwargs[keyword] for keyword in concrete._arg_keywords[len(args) :])]
    bound = function_type.bind(*args, **kwargs)
    bound.apply_defaults()
    return list(function_type.unpack_inputs(bound))


def call_flat(concrete: Any, args: Sequence[Any], captures: Sequence[Any]) -> Any:
    """Calls a ConcreteFunction with flat arguments and the given captured inputs; no tape records the call."""
    with record.stop_recording():
        return concrete._call_flat(list(args), list(captures))
