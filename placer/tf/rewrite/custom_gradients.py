"""Custom gradients in a private copy: their closures refer to tensors of the trace, which the copy's tensors replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from placer.tf._private.func_graphs import FuncGraph, external_captures, unique_id
from placer.tf._private.functions import call_flat, concrete_from_graph
from placer.tf._private.gradients import gradient_function, is_gradient_registered, register_gradient
from placer.tf.rewrite.copying import Copy
from placer.tf.trace.bodies import Body


def copied_gradient(copy: Copy, body: Body, name: str) -> str:
    """Registers a gradient like the custom gradient `name` of an op in `body`, for the copy's tensors; returns its name."""
    if not is_gradient_registered(name):
        return name
    new_name = f"{name}_placed_{unique_id()}"
    register_gradient(new_name, _with_copied_tensors(gradient_function(name), copy, body))
    return new_name


def _with_copied_tensors(original: Callable[..., Any], copy: Copy, body: Body) -> Callable[..., Any]:
    def gradient(op: Any, *upstream: Any) -> Any:
        scratch = FuncGraph("custom_gradient_placed")
        with scratch.as_default():
            inputs = [None if g is None else tf.compat.v1.placeholder(g.dtype, g.shape) for g in upstream]
            results = original(op, *inputs)
        structure = results if isinstance(results, (list, tuple)) else [results]
        present = [r for r in structure if r is not None]
        scratch.inputs[:0] = [i for i in inputs if i is not None]
        with scratch.as_default():
            outputs = [tf.convert_to_tensor(r) for r in present]
        scratch.outputs.extend(outputs)
        scratch.structured_outputs = outputs
        captured = [copy.closure_tensor(body, outer) for outer, _ in external_captures(scratch)]
        call = concrete_from_graph(scratch, None, {})
        values = call_flat(call, [g for g in upstream if g is not None], captured)
        values = iter(values if isinstance(values, (list, tuple)) else [values])
        filled = [None if r is None else next(values) for r in structure]
        return filled if isinstance(results, (list, tuple)) else filled[0]

    return gradient
