"""Functions that run one op many times in a row, so that its time is not lost in the time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue as AttrProto
from tensorflow.core.framework.op_def_pb2 import OpDef
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.python.eager import context
from tensorflow.python.framework import op_def_registry

from cost_models.base import AttrValue, OpSignature
from cost_models.host_memory import free_bytes
from cost_models.measuring.inputs import Value, inputs_of
from cost_models.ops import UnmeasurableError, as_measured, entry_of

HOST = "CPU:0"
DELAY_SIDE = 2048
"""Side of the matrices whose products keep a device busy while the host issues the ops that are measured."""


@dataclass(frozen=True)
class Call:
    """A function with its arguments. Its only result is a number that its device makes after all other ops of the function."""

    function: Any
    args: tuple[Any, ...]

    def seconds(self, wait: bool = True) -> float:
        """Time of one call until its device is done or, without `wait`, until the host is. Returns when the device is done."""
        start = time.perf_counter()
        result = self.function(*self.args)
        if wait:
            result.numpy()
        elapsed_s = time.perf_counter() - start
        result.numpy()
        return elapsed_s


class Bench:
    """One op on one device, with its inputs and variables."""

    def __init__(self, op: OpSignature, device: str) -> None:
        """Makes the op's inputs and runs it once.

        Raises:
            UnmeasurableError: the op cannot be run by itself, its results have other shapes than its signature says, or it takes
                more memory than is free.
        """
        self.op, self.device = as_measured(op), device
        if (needed := needed_bytes(op)) > (free := free_bytes()):
            raise UnmeasurableError(
                f"it takes {needed / 2**30:.1f} GiB to measure, and {free / 2**30:.1f} GiB of memory are free"
            )
        inputs = inputs_of(op)
        self._attrs = _attrs(op)
        self._variables: dict[int, Any] = {}
        self._args = [_constant(0.0, device)]
        for position, each in enumerate(inputs):
            if isinstance(each, Value):
                self._args.append(_constant(each.array, HOST if each.is_argument or each.array.dtype == object else device))
            else:
                with tf.device(device):
                    self._variables[position] = tf.Variable(tf.zeros(each.shape, each.dtype))
        self._check()

    def chain(self, length: int, delay: int = 0) -> Call:
        """A call that runs the op `length` times, one after the other, on the same inputs.

        Args:
            length: the number of ops in the chain.
            delay: the number of large matrix products that the device computes before the chain.
        """

        def body(token: Any, matrix: Any, *args: Any) -> Any:
            ends: list[Any] = []
            with tf.device(self.device):
                for _ in range(delay):
                    with tf.control_dependencies(ends):
                        ends = [tf.linalg.matmul(matrix, matrix).op]
                for _ in range(length):
                    with tf.control_dependencies(ends):
                        ends = [self._completed(self._create_op(args))]
                with tf.control_dependencies(ends):
                    return tf.identity(token)

        with tf.device(self.device):
            side = DELAY_SIDE if delay else 1
            matrix = tf.fill([side, side], 1e-3)
        return traced_call(body, self._args[0], matrix, *self._args[1:])

    def _create_op(self, values: Sequence[Any]) -> Any:
        """The op, in the graph that is being built."""
        rest = iter(values)
        handles = self._variables
        inputs = [handles[k].handle if k in handles else next(rest) for k in range(len(self.op.inputs))]
        name = self.op.op_type.lstrip("_")  # no op's name may begin with it
        return tf.compat.v1.get_default_graph().create_op(self.op.op_type, inputs, attrs=self._attrs, name=name)

    def _completed(self, made: Any) -> Any:
        """The op to wait for: the op itself, or one that takes all its outputs if it makes only outputs that are taken."""
        is_lazy = entry_of(self.op.op_type).lazy_outputs
        if is_lazy and made.outputs[0].dtype != tf.int32:  # int32 is in host memory also on a GPU
            return tf.raw_ops.IdentityN(input=made.outputs)[0].op
        return made

    def _check(self) -> None:
        """Runs the op once and compares the shapes of its results with its signature."""

        def body(token: Any, *args: Any) -> Any:
            with tf.device(self.device):
                return [tf.shape(t) for t in self._create_op(args).outputs if t.dtype not in (tf.resource, tf.variant)]

        call = traced_call(body, *self._args)
        for spec, shape in zip(self.op.outputs, call.function(*call.args), strict=False):
            actual = tuple(shape.numpy().tolist())
            if spec.shape is not None and (
                len(actual) != len(spec.shape) or any(d not in (None, side) for d, side in zip(spec.shape, actual, strict=True))
            ):
                raise UnmeasurableError(f"a result has the shape {list(actual)}, not {list(spec.shape)}")


def needed_bytes(op: OpSignature) -> int:
    """Host memory that making a `Bench` takes: two copies of each tensor to pass, one of each variable and each result."""
    largest = max((spec.nbytes for spec in (*op.inputs, *op.outputs)), default=0)
    passed = sum(largest if spec.dtype == "resource" else 2 * spec.nbytes for spec in op.inputs)
    return passed + sum(spec.nbytes for spec in op.outputs)


def interleaved(benches: Sequence[Bench], rounds: int) -> Call:
    """A call that runs the benches' ops one after the other, `rounds` times. All are on one device; one may occur repeatedly."""
    distinct = list(dict.fromkeys(benches))

    def body(token: Any, *args: Any) -> Any:
        rest = iter(args)
        own = {bench: [next(rest) for _ in bench._args[1:]] for bench in distinct}
        last: list[Any] = []
        with tf.device(benches[0].device):
            for bench in [*benches] * rounds:
                with tf.control_dependencies(last):
                    last = [bench._completed(bench._create_op(own[bench]))]
            with tf.control_dependencies(last):
                return tf.identity(token)

    return traced_call(body, benches[0]._args[0], *(value for bench in distinct for value in bench._args[1:]))


def traced_call(body: Callable[..., Any], *args: Any) -> Call:
    """A call of a function, traced for these arguments."""
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in args]
    return Call(tf.function(body, autograph=False).get_concrete_function(*specs), args)


def _constant(value: Any, device: str) -> Any:
    with tf.device(device):
        return tf.constant(value)


@contextmanager
def plain_graphs() -> Iterator[None]:
    """Turns Grappler off for functions called inside: it would fold and merge the equal ops of a chain.

    Only the call options of this thread are changed, and they are restored. Setting `tf.config.optimizer` and setting it back
    would give the user's functions new, if equal, options: they would be compiled again and their random numbers would restart.
    """
    tf_context = context.context()
    options = tf_context.function_call_options
    plain = ConfigProto.FromString(options.config_proto_serialized)
    plain.graph_options.rewrite_options.disable_meta_optimizer = True
    tf_context.function_call_options = context.FunctionCallOptions(options.executor_type, plain)
    try:
        yield
    finally:
        tf_context.function_call_options = options


@contextmanager
def refusals_as_unmeasurable() -> Iterator[None]:
    """Raises TensorFlow's errors as `UnmeasurableError`."""
    try:
        yield
    except (tf.errors.OpError, ValueError, TypeError, MemoryError) as error:
        raise UnmeasurableError(f"TensorFlow refuses: {error_line(error)}") from error


def error_line(error: Exception) -> str:
    """The line of an error's message that says what went wrong. In an error of a graph it follows the op's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    node = next((k for k, line in enumerate(lines) if line.startswith("[[")), len(lines))
    return lines[node - 1] if lines[0].startswith("Graph execution error") else lines[0]


# -- attributes ----------------------------------------------------------------------------------------------------------


def _attrs(op: OpSignature) -> dict[str, AttrProto]:
    """A signature's attributes in TensorFlow's form. Attributes that the signature leaves out have their defaults."""
    values = dict(op.attrs)
    protos = {}
    for attr in op_def_registry.get(op.op_type).attr:
        if attr.name in values:
            protos[attr.name] = _proto(attr, values[attr.name])
        elif not attr.HasField("default_value"):
            if not attr.type.startswith("list("):
                raise UnmeasurableError(f"its attribute {attr.name} is not known")
            protos[attr.name] = AttrProto(list=AttrProto.ListValue())
    return protos


def _proto(attr: OpDef.AttrDef, value: AttrValue) -> AttrProto:
    if attr.type.startswith("list("):
        items = [_scalar(attr.type[5:-1], item) for item in (value if isinstance(value, tuple) else (value,))]
        return AttrProto(list=AttrProto.ListValue(**{_FIELDS[attr.type[5:-1]]: items}))
    return AttrProto(**{_FIELDS[attr.type]: _scalar(attr.type, value)})


_FIELDS = {"type": "type", "int": "i", "float": "f", "bool": "b", "string": "s", "shape": "shape"}


def _scalar(kind: str, value: Any) -> Any:
    if kind == "type":
        return tf.as_dtype(value).as_datatype_enum
    if kind == "string":
        return value.encode()
    if kind == "shape":
        return tf.TensorShape([None if side < 0 else side for side in value]).as_proto()
    return value
