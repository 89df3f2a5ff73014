"""Calls under a tape: a forward function that also returns the tensors that the gradient needs, and its backward function.

TensorFlow builds such pairs and records their calls. This module builds a pair from an unplaced private copy of the trace. The
pair is read and planned as one graph, so that tensors saved for the gradient have their cost, and is rewritten as two functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tensorflow as tf

from cost_models.machines import task_of
from placer.errors import PlacerError
from placer.plan.call_plan import CallPlan
from placer.tf._private.func_graphs import FuncGraph, add_capture, external_captures
from placer.tf._private.functions import ConcreteFunction, concrete_from_graph, copy_flat_signature, passing_on_handles
from placer.tf._private.gradients import (
    FIRST_ORDER,
    HIGHER_ORDER,
    NO_GRADIENTS,
    DelayedPairs,
    FirstOrderPair,
    HigherOrderPair,
    has_tangents,
    is_trainable,
    recorded_call,
)
from placer.tf._private.handles import copy_handle_data
from placer.tf.devices import full_name, process_devices
from placer.tf.rewrite.rewriting import rewrite, rewrite_by_plan
from placer.tf.trace.tracing import Argument, Trace, split_pair, trace_pair

Shape = tuple[int | None, ...] | None


@dataclass(frozen=True)
class Taping:
    """Functions that a `TapedFunction` calls, given by the function that owns it."""

    plan: Callable[[Trace, bool], CallPlan]
    """Plans a pair, given as one trace; the second argument is True for a pair that has gradients of higher order too."""
    on_call: Callable[[CallPlan], None]
    """Called with the plan of each call that a tape records."""
    on_unplaced: Callable[[str], None]
    """Called with the reason when a recorded call runs as TensorFlow built it."""
    on_error: Callable[[CallPlan, Any], None]
    """Called with the plan and an error of one of the ops of a pair that runs by it, before the error is raised."""
    on_moved: Callable[[], None]
    """Called when one of its variables was moved from its device in the plan."""
    around_backward: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda backward: backward
    """From the backward function of a recorded call, with gradients of first order, to the one that the tape calls."""


class TapedFunction(ConcreteFunction):  # type: ignore[misc]
    """A placed ConcreteFunction whose calls under a tape run placed pairs, or, where a pair cannot be placed, TensorFlow's pairs.

    A call that no tape records runs like a call of any ConcreteFunction. A pair is made when a call or gradient first needs it.
    There is one pair for gradients of first order, and one for higher orders, whose backward function also takes gradients of the
    saved tensors. For gradients that a function around this one takes, there is one pair for each number of outputs with
    gradients.
    """

    def __init__(self, placed: Any, trace: Trace, result_shapes: Sequence[Shape], taping: Taping) -> None:
        """Args:
        placed: the rewritten function.
        trace: the trace from which it was rewritten.
        result_shapes: shapes of the flat results, None where a dimension or rank is unknown.
        taping: see `Taping`.
        """
        super().__init__(placed.inference_fn)
        copy_flat_signature(placed, self)
        self._placed = placed
        self._builder = _Builder(trace, result_shapes, taping)
        self._delayed_rewrite_functions = _DelayedPairs(placed.inference_fn, self._builder)
        self._pairs: dict[int, Any] = {}

    def again(self, on_call: Callable[[CallPlan], None] = lambda _: None) -> TapedFunction:
        """The same function under a new name, so that TensorFlow runs it for the first time.

        Args:
            on_call: called with the plan of each call that a tape records, in addition to `Taping.on_call`.
        """
        builder = self._builder

        def both(plan: CallPlan) -> None:
            builder.taping.on_call(plan)
            on_call(plan)

        fresh = concrete_from_graph(self.graph, self.function_type, {})
        copy_flat_signature(self, fresh)
        return TapedFunction(fresh, builder.trace, builder.result_shapes, replace(builder.taping, on_call=both))

    def with_pairs(
        self, plan: Callable[[Trace, bool], CallPlan], around_backward: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> TapedFunction:
        """The same function, with pairs of its own for calls under a tape; for the arguments see `Taping`."""
        builder = self._builder
        taping = replace(builder.taping, plan=plan, around_backward=around_backward)
        return TapedFunction(self._placed, builder.trace, builder.result_shapes, taping)

    def pair_plan(self) -> CallPlan | None:
        """The plan of a call under one tape and of its gradient; None where they run as TensorFlow built them."""
        pair = self._pair(FIRST_ORDER)
        pair.forward((), ())
        plan: CallPlan | None = pair.plan
        return plan

    def with_pairs_of(self, other: TapedFunction) -> TapedFunction:
        """Makes calls under a tape run the pairs of another function of the same trace; returns this function."""
        self._pairs = other._pairs
        return self

    @property
    def trace(self) -> Trace:
        """The trace from which it was rewritten."""
        return self._builder.trace

    def outdated(self) -> None:
        """Called when one of its variables was moved for another function."""
        self._builder.taping.on_moved()

    def _select_forward_and_backward_functions(self, args: Sequence[Any], gradients: int, eager: bool) -> Any:
        builder = self._builder
        if eager and has_tangents(args):
            builder.taping.on_unplaced("a ForwardAccumulator watches the call")
            return builder.unplaced._select_forward_and_backward_functions(args, gradients, eager)
        if gradients == HIGHER_ORDER or (gradients == FIRST_ORDER and eager):
            return recorded_call(self._pair(gradients), args)
        return super()._select_forward_and_backward_functions(args, gradients, eager)

    def _get_gradient_function(self) -> Any:
        """The gradient of one call in a graph.

        It must be of the copy of the trace to which the call's forward function belongs: the saved tensors differ between copies.
        """
        makers: list[Any] = []

        def gradient(op: Any, *upstream: Any) -> Any:
            if not makers:
                pair = self._pairs.get(HIGHER_ORDER)
                recorded = pair if pair is not None and pair.runs(op.get_attr("f").name) else None
                makers.append(self._delayed_rewrite_functions if recorded is None else recorded.delayed)
            return makers[0].get_gradient_function()(op, *upstream)

        return gradient

    def _pair(self, gradients: int) -> Any:
        with self._builder.lock:
            if gradients not in self._pairs:
                maker = _HigherOrderPair if gradients == HIGHER_ORDER else _FirstOrderPair
                self._pairs[gradients] = maker(self._placed, self._builder)
            return self._pairs[gradients]


class _Backward(ConcreteFunction):  # type: ignore[misc]
    """A placed backward function. Where its own calls are recorded, for gradients of higher order, the unplaced one runs."""

    def __init__(self, placed: Any, unplaced: Any) -> None:
        super().__init__(placed.inference_fn)
        self._placed = placed
        self._unplaced = unplaced

    def _select_forward_and_backward_functions(self, args: Sequence[Any], gradients: int, eager: bool) -> Any:
        if gradients == NO_GRADIENTS:
            return super()._select_forward_and_backward_functions(args, gradients, eager)
        return self._unplaced._select_forward_and_backward_functions(args, gradients, eager)

    def _get_gradient_function(self) -> Any:
        return self._unplaced._get_gradient_function()


@dataclass
class _Builder:
    """Rewrites the pairs that TensorFlow builds to placed pairs."""

    trace: Trace
    result_shapes: Sequence[Shape]
    taping: Taping

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.attributes = dict(self.trace.root.attributes)

    def copy(self) -> Any:
        """An unplaced copy of the function. Each kind of pair needs its own, since TensorFlow adds gradients to its graph."""
        with tf.init_scope():
            return rewrite(self.trace, None)

    @cached_property
    def unplaced(self) -> Any:
        return self.copy()

    def place(self, forward: Any, backward: Any, higher: bool) -> tuple[Any, Any, CallPlan | None]:
        """The two functions rewritten by a plan for both, and the plan; unchanged, with None, where they cannot be placed."""
        try:
            with tf.init_scope():
                pair = _traced(self.trace, forward, backward, self.result_shapes)
                plan = self.taping.plan(pair, higher)
                first, second = split_pair(pair)
                on_error = self.taping.on_error
                forward_placed = rewrite_by_plan(Trace(ConcreteFunction(forward), first, ()), plan, on_error)
                backward_placed = rewrite_by_plan(Trace(backward, second, ()), plan, on_error)
        except Exception as error:  # the plain function's gradient is right in any case
            why = str(error).partition("\n")[0].rstrip(".:") if isinstance(error, PlacerError) else repr(error)
            self.taping.on_unplaced(why)
            return forward, backward, None
        placed = forward_placed.inference_fn
        if any(map(task_of, set(plan.device_of.values()))):
            placed = passing_on_handles(placed)
        return placed, _Backward(backward_placed, backward), plan


class _DelayedPairs(DelayedPairs):  # type: ignore[misc]
    """Builds pairs as TensorFlow does for gradients that a function around this one takes."""

    def __init__(self, placed: Any, builder: _Builder, copy: Any = None) -> None:
        super().__init__(placed, None)
        self._builder = builder
        self._copied = copy is not None
        if copy is not None:
            self._func_graph = copy

    def forward_backward(self, num_doutputs: int | None = None) -> Any:
        with self._builder.lock:
            if not self._copied:
                self._func_graph, self._copied = self._builder.copy().graph, True
            return super().forward_backward(num_doutputs)

    def _construct_forward_backward(self, num_doutputs: int) -> Any:
        forward, backward = super()._construct_forward_backward(num_doutputs)
        forward, backward, plan = self._builder.place(forward, backward, num_doutputs > self._num_inference_outputs)
        if plan is not None:
            self._builder.taping.on_call(plan)
        return forward, backward


class _TapePair:
    """Mixed into the two classes of TensorFlow that build a pair for a tape."""

    higher: bool

    def __init__(self, placed: Any, builder: _Builder) -> None:
        graph = builder.copy().graph
        self.delayed = _DelayedPairs(placed.inference_fn, builder, graph)
        """Builds pairs for gradients that a function around this one takes of a call of the forward function."""
        super().__init__(graph, builder.attributes, None, (), self.delayed, False)  # type: ignore[call-arg]
        self._builder = builder
        self.plan: CallPlan | None = None

    def runs(self, name: str) -> bool:
        """Whether its forward function has this name."""
        forward = self._forward  # type: ignore[attr-defined]
        return forward is not None and tf.compat.as_str(forward.name) == name

    def forward(self, args: Any, tangents: Any) -> Any:
        with self._builder.lock:
            forward = super().forward(args, tangents)  # type: ignore[misc]
        if self.plan is not None:
            self._builder.taping.on_call(self.plan)
        return forward

    def _wrap_backward_function(self, forward_graph: Any, backward: Any, outputs: Any) -> Any:
        function, recorded = super()._wrap_backward_function(forward_graph, backward, outputs)  # type: ignore[misc]
        return (function if self.higher else self._builder.taping.around_backward(function)), recorded

    def _forward_and_backward_functions(self, args: Any, tangents: Any) -> Any:
        forward, graph, backward, *jvps = super()._forward_and_backward_functions(args, tangents)  # type: ignore[misc]
        forward, backward, self.plan = self._builder.place(forward, backward, self.higher)
        return forward, graph, backward, *jvps


class _FirstOrderPair(_TapePair, FirstOrderPair):  # type: ignore[misc]
    higher = False


class _HigherOrderPair(_TapePair, HigherOrderPair):  # type: ignore[misc]
    higher = True


def _output_gradient(shape: Any, dtype: tf.DType) -> Argument:
    """The gradient of an output as an argument, on the device where TensorFlow computes it in the caller."""
    gpus = [d for d in process_devices() if d.startswith("GPU")]
    return Argument(tf.TensorShape(shape), dtype, full_name(gpus[0] if gpus and dtype.is_floating else "CPU:0"))


def _traced(trace: Trace, forward: Any, backward: Any, result_shapes: Sequence[Shape]) -> Trace:
    """The Trace of a function that calls both functions and passes on the tensors of the first that the second captured."""
    first, second, outer = forward.graph, backward.inference_fn, trace.concrete.graph
    graph = FuncGraph(f"{outer.name}_with_backward")
    graph.variables = outer.variables
    with graph.as_default():
        names = (trace.root.names[t.op.name] for t in trace.root.input_tensors)
        inputs = [_placeholder(t, name) for t, name in zip(first.inputs, names, strict=True)]
        # The arguments of the backward function: gradients of the first outputs that have any, then its captures.
        gradient_inputs = backward.inputs[: len(backward.inputs) - len(backward.captured_inputs)]
        outputs = [i for i, t in enumerate(first.outputs) if is_trainable(t)][: len(gradient_inputs)]
        gradients = [_placeholder(t, f"gradient_{i}") for i, t in zip(outputs, gradient_inputs, strict=True)]
        graph.inputs = [*inputs, *gradients]
        copies = {id(t): copy for t, copy in zip(first.inputs, inputs, strict=True)}
        for external, internal in external_captures(first):
            add_capture(graph, external, copies[id(internal)])
        results = forward.call_flat(*inputs)
        result_of = {id(t): result for t, result in zip(first.outputs, results, strict=True)}
        captured = [result_of.get(id(t), t) for t in backward.captured_inputs]
        graph.outputs = [*results[: len(result_shapes)], *second.call_flat(*gradients, *captured)]
    shapes = dict(enumerate(result_shapes))
    unknown = [None] * (len(inputs) - len(trace.arguments))
    brought = [_output_gradient(shapes.get(i, t.shape), t.dtype) for i, t in zip(outputs, gradients, strict=True)]
    return trace_pair(concrete_from_graph(graph, None, {}), (*trace.arguments, *unknown, *brought))


def _placeholder(like: Any, name: str) -> Any:
    placeholder = tf.compat.v1.placeholder(like.dtype, like.shape, name=name)
    copy_handle_data(like, placeholder)
    return placeholder
