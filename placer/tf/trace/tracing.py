"""Traces a callable, a tf.function or a ConcreteFunction: its graph and every body it calls, named by call path.

Nothing is changed or copied: a Trace refers to TensorFlow's own graphs, which must not be changed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from placer.common.escaping import brief
from placer.common.garbage_collection import paused_collection
from placer.errors import OptionError, TraceError
from placer.tf._private.datasets import DatasetSize, dataset_size
from placer.tf._private.func_graphs import external_captures
from placer.tf._private.functions import ConcreteFunction, OwnFramesFilter, UnliftableError, flat_arguments, raised_while_tracing
from placer.tf._private.handles import held_specs, is_parallel, location
from placer.tf._private.runtime import device_scope
from placer.tf.trace.bodies import CALLS, Body
from placer.tf.trace.body_tree import read_called, read_root


@dataclass(frozen=True)
class Argument:
    """What a plan needs to know of a tensor argument. The tensor itself is not kept: it may be freed before the plan is."""

    shape: tf.TensorShape
    dtype: tf.DType
    backing_device: str
    """The device that holds its bytes or, for a handle, the state behind it."""
    name: str = ""
    """The name of the state behind a handle."""
    held: tuple[tf.TensorSpec, ...] = ()
    """The types of the values behind a variable's handle."""
    dataset: DatasetSize | None = None
    """What is known of a dataset."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A traced function: its ConcreteFunction and the tree of its bodies."""

    concrete: Any
    root: Body
    arguments: tuple[Any, ...]
    """The flat tensors of the example call as `Argument`s, or its types where it has no tensors; empty without an example."""

    @property
    def name(self) -> str:
        """The name of the user's function, also where it is a signature of a SavedModel."""
        return str(self.concrete.graph.name).removeprefix("signature_wrapper_")

    @property
    def is_jit_compiled(self) -> bool:
        """Whether XLA compiles the function as a whole."""
        return "_XlaMustCompile" in self.root.attributes and bool(self.root.attributes["_XlaMustCompile"].b)

    @cached_property
    def captured_datasets(self) -> dict[str, DatasetSize | None]:
        """By placeholder of a capture: what is known of the captured dataset. To find one, every Python object is looked at."""
        captures = [(inner.op.name, outer) for outer, inner in external_captures(self.root.graph) if outer.dtype == tf.variant]
        return {name: dataset_size(outer) if isinstance(outer, tf.__internal__.EagerTensor) else None for name, outer in captures}

    def __repr__(self) -> str:
        return f"<Trace of {self.name!r}: {signature_text(self.concrete)}>"


def traceable(fn: Callable[..., Any]) -> Any:
    """A tf.function of a callable; the user's function of a placed one. A tf.function, and what is no function, is returned."""
    fn = getattr(fn, "_traceable", fn)
    is_given = hasattr(fn, "get_concrete_function") or isinstance(fn, ConcreteFunction) or not callable(fn)
    return fn if is_given else tf.function(fn)


def concrete_function(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """The ConcreteFunction of `fn` for these arguments.

    Raises:
        OptionError: `fn` is nothing that can be traced.
        TraceError: it fails while it is traced.
        TypeError: the arguments do not fit its parameters or their types, as in a call of it.
    """
    if isinstance(fn, ConcreteFunction):
        try:
            _ = fn.graph.variables
        except AssertionError as error:
            raise TraceError(f"{fn.graph.name} uses variables that were deleted: keep them as long as the function") from error
        return fn
    if not callable(fn):
        raise OptionError(f"cannot trace {brief(fn)}, which is not a function: pass a callable or a tf.function.")
    try:
        with OwnFramesFilter():
            return traceable(fn).get_concrete_function(*args, **(kwargs or {}))
    except Exception as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        if not raised_while_tracing(error):
            _check_parameters(fn, name, args, kwargs or {})
            raise
        if isinstance(error, UnliftableError):
            raise TraceError(
                f"{name} gives its variables initial values from its arguments: make it again, and call it before you plan it"
            ) from error
        raise TraceError(f"{name} failed while it was traced: {type(error).__name__}: {error}") from error


def _check_parameters(fn: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises TypeError if a call of `fn` has too few or too many arguments. TensorFlow's own error names no function."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
        shown = signature.replace(parameters=bare, return_annotation=signature.empty)
        raise TypeError(f"{name}{shown} cannot be called so: {error}") from None


def trace(fn: Callable[..., Any] | Any, *args: Any, **kwargs: Any) -> Trace:
    """Traces `fn` for example arguments or TensorSpecs and finds every body that it calls.

    Args:
        fn: a callable, a tf.function, a bound method of either, or a ConcreteFunction (which needs no arguments).
        *args: as for a call of `fn`; a tf.TensorSpec may replace a tensor.
        **kwargs: of the same call.

    Raises:
        OptionError, TraceError, TypeError: see `concrete_function`.
    """
    concrete = concrete_function(fn, args, kwargs)
    return trace_concrete(concrete, args, kwargs)


@paused_collection()
def trace_concrete(concrete: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Trace:
    """The Trace of a ConcreteFunction.

    Args:
        concrete: the function.
        args, kwargs: an example call, if there is one: it tells where tensors are and what shapes they have.

    Raises:
        TraceError: its graph has a cycle, as loops of TensorFlow 1 have.
    """
    flat: tuple[Any, ...] = ()
    if args or kwargs:
        try:
            flat = tuple(map(_argument, flat_arguments(concrete, args, kwargs or {})))
        except (TypeError, ValueError, AttributeError):
            flat = _flat_specs(concrete, args, kwargs or {})
    root = read_root(concrete.inference_fn)
    root.outer_scope = device_scope()
    return Trace(concrete, root, flat)


def _flat_specs(concrete: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The types of a call that has a `tf.TensorSpec` of known sizes for each tensor, in the order of the graph's inputs.

    Empty for any other call. The types can say more than the trace: TensorFlow lets one trace serve all types that it covers,
    such as [8, None] for [8, 4].
    """
    try:
        specs = tuple(concrete.function_type.bind(*args, **kwargs).arguments.values())
    except TypeError:
        return ()
    inputs = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
    return specs if len(specs) == len(inputs) and all(map(_is_of_known_size, specs)) else ()


def _is_of_known_size(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined() and spec.dtype not in (tf.resource, tf.variant)


def _argument(value: Any) -> Any:
    """An `Argument` for an eager tensor on one device; anything else unchanged."""
    if not isinstance(value, tf.__internal__.EagerTensor) or is_parallel(value):
        return value
    held = tuple(held_specs(value)) if value.dtype == tf.resource else ()
    dataset = dataset_size(value) if value.dtype == tf.variant else None
    return Argument(value.shape, value.dtype, location(value), str(getattr(value, "_name", "")), held, dataset)


def trace_pair(concrete: Any, arguments: Sequence[Any]) -> Trace:
    """The Trace of a function that only calls two others: a forward function, then its backward function.

    Ops of the forward function have the names that they have in a trace of it alone. Names of the backward function's ops begin
    with "backward/".
    """
    root = Body("", "root", concrete.inference_fn, None, "")
    forward, backward = (name for name, node in root.nodes.items() if node.op in CALLS)
    root.names.update({name: name for name in root.nodes} | {forward: "", backward: "backward"})
    read_called(root, set(root.names.values()))
    return Trace(concrete, root, tuple(arguments))


def split_pair(pair: Trace) -> list[Body]:
    """The forward and the backward function of a pair, each as a root. The pair cannot be used afterwards."""
    roots = [bodies[0] for bodies in pair.root.children.values()]
    for root in roots:
        root.kind, root.parent, root.site = "root", None, ""
    return roots


def signature_text(concrete: Any) -> str:
    """A call signature as text, such as "float32[8,224,224,3], int32[8]"; Python values by their repr."""

    def text(value: Any) -> str:
        if isinstance(value, tf.TensorSpec):
            shape = "?" if value.shape.rank is None else ",".join("?" if d is None else str(d) for d in value.shape.as_list())
            return f"{value.dtype.name}[{shape}]"
        if replicas := getattr(value, "_value_specs", ()):  # a value of each replica of a strategy
            return f"{len(replicas)} x {text(replicas[0])}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(text, value))})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k}: {text(v)}" for k, v in value.items()) + "}"
        return repr(value)

    if concrete.structured_input_signature is None:  # a wrapped graph of TensorFlow 1
        return ", ".join(text(tf.TensorSpec(t.shape, t.dtype)) for t in concrete.inputs)
    args, kwargs = concrete.structured_input_signature
    return ", ".join([*map(text, args), *(f"{k}={text(v)}" for k, v in kwargs.items())])
