"""A traced function that XLA compiles as a whole for one device, or the reason why it cannot be compiled or is not worth it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from cost_models.machines import task_of
from cost_models.measuring.chains import error_line
from cost_models.ops import entry_of
from placer.common.device_spec import parse
from placer.errors import RewriteError
from placer.tf._private.func_graphs import external_captures
from placer.tf._private.functions import compiled_as_whole, flat_arguments, inputs_of_program
from placer.tf._private.handles import held_specs, location, variable_of
from placer.tf.devices import full_name
from placer.tf.rewrite.random_draws import EQUAL_IN_XLA, same_draws
from placer.tf.rewrite.rewriting import rewrite_for_xla
from placer.tf.run.calling import runs_on_its_own
from placer.tf.state.variables import name_of
from placer.tf.trace.tracing import Argument, Trace

MAX_NAMES, MAX_CHARACTERS = 3, 200
"""Most op types and most characters that a reason names of those that TensorFlow gives."""
UNCHECKED = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2"})
"""Op types that check values and that XLA leaves out."""
ROTATED = frozenset({"Svd"})
"""Op types that XLA computes by rotations of two rows, one after the other. On a CPU that takes 40 times as long as TensorFlow's
kernel for a matrix of 64×64, and a thousand times as long for one of 256×256."""
MAX_ROTATED = 32
"""The most rows and columns of a matrix for which such an op is compiled."""
_NOT_NUMBERS = (tf.string, tf.variant, tf.resource)
_UNSUPPORTED = re.compile(r"(\w+) \(No registered '\w+' OpKernel")


class CompiledFunction:
    """Calls a function that XLA has compiled as a whole for one device.

    Arguments and results have the structure of the plain function's. It gives no gradients, and it is for eager calls alone, see
    `can_run`.
    """

    def __init__(self, concrete: Any, device: str) -> None:
        """Args:
        concrete: the ConcreteFunction to compile.
        device: short name of the device.
        """
        self.concrete = concrete
        self.device = device
        self._full_name = full_name(device)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with tf.device(self._full_name):
            return self.concrete(*args, **kwargs)


def can_run() -> bool:
    """Whether a call that is made now can be one of a `CompiledFunction`: it is eager, and no tape or strategy sees it."""
    return runs_on_its_own()


def compiled(trace: Trace, device: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[CompiledFunction | None, str]:
    """The function compiled for a device, and ""; where that is impossible, or would be repeated for later calls, None and why.

    Nothing runs. XLA makes its program here, and the code of the device at the first call.

    Args:
        trace: of the function.
        device: short name of the device. The function's variables must be there.
        args, kwargs: of a call.
    """
    if reason := _refusal(trace, device):
        return None, reason
    try:
        concrete = compiled_as_whole(rewrite_for_xla(trace))
        arguments = flat_arguments(concrete, args, kwargs)
        inputs = inputs_of_program(concrete, arguments, full_name(device))
    except (RewriteError, ValueError, tf.errors.OpError) as error:
        return None, _said(error)
    if inputs < len(arguments) + len(concrete.captured_inputs):
        return None, "the value of an argument decides a size or a number of rounds, so XLA would compile it for each value"
    return CompiledFunction(concrete, device), ""


def unchecked(trace: Trace) -> tuple[str, ...]:
    """The ops that check values, which a compiled function leaves out."""
    return tuple(body.names[name] for body in trace.root.walk() for name, node in body.nodes.items() if node.op in UNCHECKED)


def _refusal(trace: Trace, device: str) -> str:
    """Why XLA is not asked. It ends the process for some types of inputs, does not say when it draws other numbers, and cannot be
    interrupted when it takes long.
    """
    if task_of(device):
        return "TensorFlow compiles functions for devices of this process alone"
    captured = {inner.op.name: outer for outer, inner in external_captures(trace.root.graph)}
    for k, tensor in enumerate(trace.root.input_tensors):
        name = tensor.op.name
        value = captured.get(name, trace.arguments[k] if k < len(trace.arguments) else None)
        if reason := _reason_against_input(name, tensor, value, device):
            return reason
    for tensor in trace.root.output_tensors:
        if tensor.dtype in _NOT_NUMBERS:
            return f"its result {tensor.op.name!r} is of type {tensor.dtype.name}"
    for body in trace.root.walk():
        for name, operation in body.operations.items():
            if entry_of(operation.type).draws and operation.type not in EQUAL_IN_XLA and same_draws(operation) is None:
                return f"XLA would draw other random numbers than its {body.names[name]!r} ({operation.type})"
            if operation.type in ROTATED and not _is_small(operation.inputs[0].shape):
                return f"XLA takes far longer than TensorFlow for its {body.names[name]!r} ({operation.type})"
    return ""


def _reason_against_input(name: str, tensor: Any, value: Any, device: str) -> str:
    """Why XLA cannot take an input.

    Args:
        name: of the input.
        tensor: of the graph.
        value: the tensor that is captured, or an `Argument`; None if it is not known.
        device: short name of the device.
    """
    shapes = [tensor.shape]
    if tensor.dtype == tf.resource and isinstance(value, Argument):
        return f"its argument {name!r} is a resource, and another call may bring one on another device"
    if tensor.dtype == tf.resource:
        held = [] if value is None else held_specs(value)
        if not held:
            return f"its input {name!r} is neither a tensor nor a variable"
        if (where := parse(location(value)).short) != device:
            variable = variable_of(value)
            return f"its variable {name if variable is None else name_of(variable)!r} is on {where}"
        shapes = [spec.shape for spec in held]
    elif tensor.dtype in _NOT_NUMBERS:
        return f"its input {name!r} is of type {tensor.dtype.name}"
    is_open = not all(shape.is_fully_defined() for shape in shapes)
    return f"the size of its input {name!r} is open, so XLA would compile it for each size" if is_open else ""


def _is_small(shape: tf.TensorShape) -> bool:
    """Whether the matrices of a tensor have at most `MAX_ROTATED` rows and columns."""
    return shape.rank is not None and all(side is not None and side <= MAX_ROTATED for side in shape[-2:])


def _said(error: Exception) -> str:
    """TensorFlow's reason in a line."""
    text = getattr(error, "message", None) or str(error)
    if unsupported := list(dict.fromkeys(_UNSUPPORTED.findall(text))):
        more = f" and {len(unsupported) - MAX_NAMES} more" if len(unsupported) > MAX_NAMES else ""
        return f"XLA has no {', '.join(unsupported[:MAX_NAMES])}{more}"
    line = error_line(error).removeprefix("Failed getting HLO text: '")
    return f"TensorFlow refuses: {line[:MAX_CHARACTERS]}{'…' if len(line) > MAX_CHARACTERS else ''}"
