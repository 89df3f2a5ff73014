"""From a plan to a new ConcreteFunction: a private copy of the trace, called functions inlined, with a device on every op.

TensorFlow's graphs of the user's function are only read. They are copied as NodeDefs and not as a FunctionDef, which would lose
gradients. What a NodeDef does not carry (handle shapes, captures, custom gradients) is copied separately.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from placer.common.garbage_collection import paused_collection
from placer.errors import RewriteError
from placer.plan.call_plan import CallPlan
from placer.tf._private.func_graphs import add_capture, copy_deferred_captures, external_captures
from placer.tf._private.functions import concrete_from_graph, copy_flat_signature
from placer.tf.devices import full_names
from placer.tf.rewrite.copying import Copy
from placer.tf.rewrite.frames import Frames
from placer.tf.rewrite.random_draws import same_draws
from placer.tf.rewrite.reporting import Reports
from placer.tf.trace.tracing import Trace


@paused_collection()
def rewrite(trace: Trace, device_of: Mapping[str, str] | None, reports: Reports | None = None) -> Any:
    """Rebuilds a traced function with the given devices.

    Args:
        trace: the function. It and its graphs are not changed.
        device_of: full or short device name by node of the `OpGraph` read from this trace; None keeps the devices that the trace
            requests.
        reports: what each call of the copy reports. Such a copy is for calls without a gradient.

    Returns:
        A ConcreteFunction with the same signature, structured outputs, captures, control edges and gradients, valid with
        soft placement off.

    Raises:
        RewriteError: the trace has something that cannot be copied; nothing has changed then.
    """
    return _taken(Copy(trace, device_of) if reports is None else Copy(trace, device_of, reports.add_ops))


def rewrite_for_xla(trace: Trace) -> Any:
    """A copy of a traced function without devices, in which XLA draws the random numbers that TensorFlow's kernels draw.

    Raises:
        RewriteError: see `rewrite`.
    """
    return _taken(Copy(trace, defaultdict(str), substitute=same_draws))


def _taken(copy: Copy) -> Any:
    try:
        return _copied_function(copy)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise RewriteError(f"TensorFlow does not take the copy of it: {error}") from error


def rewrite_by_plan(
    trace: Trace, plan: CallPlan, on_error: Callable[[CallPlan, Any], None], reports: Reports | None = None
) -> Any:
    """`rewrite` with the devices of a plan. The new graph carries the plan, for functions that call it and are planned too.

    Args:
        trace: the function.
        plan: its plan.
        on_error: called with the plan and an error of one of the function's ops before the error is raised.
        reports: see `rewrite`.

    Raises:
        RewriteError: see `rewrite`.
    """
    concrete = rewrite(trace, full_names(plan.device_of), reports)
    concrete.graph.plan = plan
    concrete.graph.on_error = functools.partial(on_error, plan)
    return concrete


def _copied_function(copy: Copy) -> Any:
    trace, root = copy.trace, copy.trace.root
    graph = Frames(copy).build(root)
    old = root.graph
    flat = [copy.tensor(root, *ref) for ref in root.outputs]
    graph.outputs.extend(flat)
    last_nodes = [n for name in root.control_outputs for n in copy.finished(root, name)]
    graph.control_outputs.extend([*map(graph.get_operation_by_name, last_nodes), *copy.add_ops(copy, root)])
    new_inputs = {id(t): n for t, n in zip(root.input_tensors, graph.inputs, strict=True)}
    for external, internal in external_captures(old):
        add_capture(graph, external, new_inputs[id(internal)])
    copy_deferred_captures(old, graph, new_inputs)
    graph.variables = old.variables
    graph.structured_input_signature = old.structured_input_signature
    new_outputs = {id(t): n for t, n in zip(root.output_tensors, flat, strict=True)}
    graph.structured_outputs = tf.nest.map_structure(
        lambda t: new_outputs.get(id(t), t), old.structured_outputs, expand_composites=True
    )
    names_of_pair = ("forward_function_name", "backward_function_name")
    attributes = {key: value for key, value in root.attributes.items() if key not in names_of_pair}
    concrete = concrete_from_graph(graph, trace.concrete.function_type, attributes)
    copy_flat_signature(trace.concrete, concrete)
    graph.trace = trace
    return concrete
