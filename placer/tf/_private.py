"""The TensorFlow names that tracing, rewriting and observing use and that are not public, in one place.

The registry's and the devices' own are imported where they are used, in kernels.py, optypes.py and devices.py.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.function.capture import capture_container
from tensorflow.core.function.trace_type import default_types, trace_type_builder
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.data.ops import dataset_ops, iterator_ops, structured_function
from tensorflow.python.eager import backprop_util, context, forwardprop_util, record
from tensorflow.python.eager.polymorphic_function import atomic_function, concrete_function, polymorphic_function
from tensorflow.python.framework import c_api_util, error_interpolation, func_graph, ops, random_seed, tensor_util
from tensorflow.python.ops import (
    control_flow_v2_func_graphs,
    gradients_util,
    handle_data_util,
    op_selector,
    resource_variable_ops,
)
from tensorflow.python.saved_model import save_context
from tensorflow.python.util import tf_stack

from placer.common.device_spec import parse

if TYPE_CHECKING:
    from placer.plan.placement import Placement
    from placer.tf.trace.tracing import Trace

HERE = str(Path(__file__).parent.parent) + os.sep
"""Where the files of this package are, which are in the stack when the user's code is traced."""

FuncGraph = func_graph.FuncGraph
ConcreteFunction = concrete_function.ConcreteFunction
FirstOrderPair = concrete_function._FirstOrderTapeGradientFunctions
HigherOrderPair = concrete_function._HigherOrderTapeGradientFunctions
DelayedPairs = concrete_function._DelayedRewriteGradientFunctions
UnliftableError = op_selector.UnliftableError
ResourceVariable = resource_variable_ops.BaseResourceVariable
PlainVariable = resource_variable_ops.ResourceVariable
UninitializedVariable = resource_variable_ops.UninitializedVariable
FunctionCaptures = capture_container.FunctionCaptures
DatasetFunction = structured_function.StructuredFunctionWrapper
"""What a dataset's transformation calls; the dataset was made with what it captures."""
Dataset = dataset_ops.DatasetV2
DataIterator = iterator_ops.OwnedIterator

SCRATCH = "scratch_graph"
"""What Keras calls the graphs it makes to learn the shapes that layers give; they never run."""

_IGNORE_STATE = 1
"""Of what a dataset's functions use, whatever is no variable and changes is left out of its graph."""

NO_GRADIENTS = gradients_util.POSSIBLE_GRADIENT_TYPES_NONE
FIRST_ORDER = gradients_util.POSSIBLE_GRADIENT_TYPES_FIRST_ORDER
HIGHER_ORDER = gradients_util.POSSIBLE_GRADIENT_TYPES_HIGHER_ORDER


class CopiedGraph(func_graph.FuncGraph):  # type: ignore[misc]
    """A FuncGraph that placer builds as a copy of a traced body, with what is known of it beyond its ops."""

    def __init__(self, name: str, originals: Callable[[], Mapping[str, Any]]) -> None:
        """Args:
        name: of the graph.
        originals: gives, by node, the op of the user's graph that the node is a copy of.
        """
        super().__init__(name)
        self.originals = originals
        self.trace: Trace | None = None
        """What a copy of a whole function was made from. It keeps Python callbacks and closures of custom gradients alive."""
        self.placement: Placement | None = None
        """The plan that the function runs by; None for a copy that was made without one."""
        self.on_error: Callable[[tf.errors.OpError], None] | None = None
        """Called with an error of one of its ops before that is raised."""


# Where an error is from is found by the names of the functions it went through. TensorFlow's own pattern passes over such as
# "<lambda>" and those not in ASCII, and asks no function if the outermost is one.
error_interpolation._INTERPOLATION_PATTERN = re.compile(r"(?P<sep>.*?)(?P<tag>{{(?P<type>\w+) (?P<name>[^{}\s]+)}})", re.DOTALL)


def raised_while_tracing(error: Exception) -> bool:
    """False where TensorFlow refused the arguments, before it entered the function's own code."""
    tracer = func_graph.func_graph_from_py_func.__code__
    return any(frame.f_code is tracer for frame, _ in traceback.walk_tb(error.__traceback__))


def variable_creating(function: Any) -> Any:
    """A tf.function's trace that initialises each variable it creates where it does so, if need be; None if it has none."""
    return getattr(function, "_concrete_variable_creation_fn", None)


@contextmanager
def initialisers_kept(function: Any, found: list[Any]) -> Iterator[None]:
    """A tf.function that is first traced inside adds what initialises its variables to `found` and leaves it undone."""
    if not isinstance(function, polymorphic_function.Function):
        yield
        return
    function._initialize_uninitialized_variables = found.extend
    try:
        yield
    finally:
        del function._initialize_uninitialized_variables


def initialise(function: Any, found: Sequence[Any]) -> None:
    """Does what a tf.function left undone."""
    function._initialize_uninitialized_variables(found)


def is_scratch() -> bool:
    """Whether ops are now added to a graph that never runs, or to a loop or branch in one."""
    graph = ops.get_default_graph()
    while isinstance(graph, control_flow_v2_func_graphs.ControlFlowFuncGraph):
        graph = graph.outer_graph
    # What a tf.function of that name adds ops to runs in their order.
    return isinstance(graph, FuncGraph) and graph.name.startswith(SCRATCH) and not graph._add_control_dependencies


class _EagerSeeds:
    """In place of a graph's count of op seeds: gives each op the one it would have if it ran eagerly."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def __mod__(self, limit: int) -> int:
        self.given.append(context.internal_operation_seed() % limit)
        return self.given[-1]

    def __add__(self, _: int) -> _EagerSeeds:
        return self


class Scratch:
    """A graph whose ops do not run as they are added, and what they will give when they do."""

    def __init__(self) -> None:
        self.graph = FuncGraph(SCRATCH)
        self._seeds = _EagerSeeds()
        random_seed._graph_to_seed_dict[self.graph] = self._seeds
        self._seed = self.graph.seed
        self._before = context.context()._rng.getstate() if context.global_seed() is not None else None

    def give_back_seeds(self) -> None:
        """For others to be given the seeds that its ops were."""
        if self._before is not None:
            context.context()._rng.setstate(self._before)

    def is_repeatable(self) -> bool:
        """Whether its ops give the same whenever they run, or what they would have drawn by their seeds when they were added."""
        captured = [outer for outer, _ in external_captures(self.graph)]
        uses_others = any(outer.dtype in (tf.resource, tf.variant) or tf.is_symbolic_tensor(outer) for outer in captured)
        if uses_others or self.graph.seed != self._seed:
            return False
        return all(not op.op_def.is_stateful or self._draws(op) for op in self.graph.get_operations())

    def _draws(self, op: Any) -> bool:
        if not {"seed", "seed2"} <= {attr.name for attr in op.op_def.attr}:
            return False
        first, second = op.get_attr("seed"), op.get_attr("seed2")
        return second in self._seeds.given or first == second == 0

    def value(self, tensor: Any) -> Any:
        """What one of its tensors is."""
        self.graph.outputs = [tensor]
        self.graph.structured_outputs = tensor
        concrete = concrete_from_graph(self.graph, None, {})
        [value] = call_flat(concrete, (), concrete.captured_inputs)
        return value


def eager_scopes() -> int:
    """How many scopes that execute eagerly this thread is in, each in a function that is being traced in the one before."""
    return sum(not entry.is_building_function for entry in context.context().context_switches.stack)


def node_defs(graph: tf.Graph) -> dict[str, NodeDef]:
    """All nodes of `graph` by name, in creation order, default attributes included."""
    try:
        return {node.name: node for node in graph.as_graph_def().node}
    except Exception:  # a graph over protobuf's 2 GiB limit cannot be exported whole, its nodes one by one can
        return {op.name: op.node_def for op in graph.get_operations()}


def as_registered(function: Any) -> tuple[dict[str, NodeDef], int, int]:
    """A function's nodes by name, in creation order, and how many inputs and outputs it has: as when it was registered.

    Its graph has more of each once a gradient was taken, and the nodes for loops, branches and calls are then others.
    """
    graph = function.graph
    nodes = node_defs(graph)
    try:
        definition = function.definition
    except Exception:  # over protobuf's 2 GiB limit
        return nodes, len(graph.inputs), len(graph.outputs)
    inputs, outputs = len(definition.signature.input_arg), len(definition.signature.output_arg)
    if (len(graph.inputs), len(graph.outputs)) == (inputs, outputs):
        return nodes, inputs, outputs
    first = dict(itertools.islice(nodes.items(), inputs + len(definition.node_def)))
    for was in definition.node_def:
        node = first.get(was.name)
        if node is not None and any(value.HasField("func") or value.list.func for value in was.attr.values()):
            passed = sum(not text.startswith("^") for text in was.input)
            waits = [text for text in node.input if text.startswith("^")]
            given = [text for text in node.input if not text.startswith("^")]
            first[was.name] = restored = NodeDef(name=node.name, op=node.op, device=node.device, attr=was.attr)
            restored.input.extend([*given[:passed], *waits])
    return first, inputs, outputs


def living_variables(graph: Any) -> list[Any]:
    """The variables that a FuncGraph knows of, save those that were deleted."""
    return [variable for known in graph._weak_variables if (variable := known()) is not None]


def library_function(graph: tf.Graph, name: str) -> Any:
    """The function `name` as registered in `graph` or a graph around it; None if unknown."""
    while graph is not None:
        found = graph._get_function(name)
        if found is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


def add_function(graph: tf.Graph, function: Any) -> None:
    """Makes `function` and what it calls known to `graph`."""
    graph._add_function_recursive(function)


def register_body(name: str, graph: Any) -> Any:
    """Registers a FuncGraph as a function that ops can name; returns it."""
    function = atomic_function.from_func_graph(name, graph, {})
    function.__class__ = _RuntimeFunction
    return function


def concrete_from_graph(graph: Any, function_type: Any, attrs: Mapping[str, Any]) -> Any:
    """A ConcreteFunction that runs `graph`."""
    concrete = ConcreteFunction.from_func_graph(graph, function_type, attrs)
    concrete.inference_fn.__class__ = _RuntimeFunction
    return concrete


class _RuntimeFunction(atomic_function.AtomicFunction):  # type: ignore[misc]
    """A function as the runtime has it, but without devices where a SavedModel takes it along with one that calls it, and with
    the lines of the source that its nodes' originals are from, which errors name.
    """

    __slots__ = ()

    @property
    def graph_debug_info(self) -> Any:
        """Asked for while an error of this function is raised, whoever called it: to say where the nodes it names are from."""
        error = sys.exc_info()[1]
        if isinstance(error, tf.errors.OpError) and tf.compat.as_text(self.name) in error.message:
            _report(self.graph, error)
        builder = tf_stack.GraphDebugInfoBuilder()
        for name, op in originals(self.graph).items():
            if op.traceback is not None:
                builder.AccumulateStackTrace("", name, op.traceback.get_user_frames())
        info = builder.Build()
        found = {name.removesuffix("@"): trace for name, trace in info.name_to_trace_id.items()}
        info.name_to_trace_id.clear()
        info.name_to_trace_id.update(found)
        own = {frame for frame, line in info.frames_by_id.items() if info.files[line.file_index].startswith(HERE)}
        for trace in info.traces_by_id.values():
            trace.frame_id[:] = [frame for frame in trace.frame_id if frame not in own]
        return info

    @property
    def _c_func(self) -> Any:
        if not is_saving():
            return super()._c_func
        definition = self.definition
        for node in definition.node_def:
            node.device = ""
        bare = c_api.TF_FunctionImportFunctionDef(definition.SerializeToString())
        return c_api_util.ScopedTFFunction(bare, self.name)


def _report(graph: Any, error: tf.errors.OpError) -> None:
    """Calls `on_error` of the innermost graph around an error that has one."""
    while graph is not None:
        if isinstance(graph, CopiedGraph) and graph.on_error is not None:
            graph.on_error(error)
            return
        graph = getattr(graph, "outer_graph", None)


def originals(graph: Any) -> Mapping[str, Any]:
    """By node of a graph that is a copy, the op that the user's code made; empty for any other graph."""
    return graph.originals() if isinstance(graph, CopiedGraph) else {}


def trace_type(value: Any) -> Any:
    """What a tf.function tells calls with `value` by; TypeError where it has no rule for it."""
    return trace_type_builder.from_value(value)


def trace_type_of_itself(value: Any) -> Any:
    """What a tf.function tells calls with `value` as an argument by, where that has a `__wrapped__`, which it would else take."""
    return default_types.Weakref(weakref.ref(value))


def copy_flat_signature(source: Any, target: Any) -> None:
    """Lets `target` be called with its tensors alone where `source` does."""
    target._arg_keywords = source._arg_keywords
    target._num_positional_args = source._num_positional_args


def flat_arguments(concrete: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The call's tensors in the order of the graph's inputs (captures left out)."""
    function_type = concrete.function_type
    if concrete._arg_keywords and not function_type.parameters:  # of a graph of TensorFlow 1, called with tensors alone
        return [*args, *(kwargs[keyword] for keyword in concrete._arg_keywords[len(args) :])]
    bound = function_type.bind(*args, **kwargs)
    bound.apply_defaults()
    return list(function_type.unpack_inputs(bound))


def call_flat(concrete: Any, args: Sequence[Any], captures: Sequence[Any]) -> Any:
    """Calls a ConcreteFunction with flat arguments and the given captured inputs, out of sight of any tape."""
    with record.stop_recording():
        return concrete._call_flat(list(args), list(captures))


def has_tangents(tensors: Sequence[Any]) -> bool:
    """True where a forward accumulator follows one of these eager tensors."""
    return bool(forwardprop_util.pack_tangents(tensors).indices)


def is_recording() -> bool:
    """True where a tape or accumulator may record what is run now, eagerly."""
    return tf.executing_eagerly() and bool(record.could_possibly_record())


def recorded_call(pair: Any, args: Sequence[Any]) -> Any:
    """A call of the pair's forward function that the tape records."""
    return concrete_function._ForwardBackwardCall(pair, args, [], tape_watching=True)


def is_trainable(tensor: Any) -> bool:
    """True for a tensor of a type that has gradients."""
    return bool(backprop_util.IsTrainable(tensor))


def import_nodes(graph: Any, nodes: Sequence[NodeDef], inputs: Mapping[tuple[str, int], Any], versions: Any) -> None:
    """Adds `nodes` to `graph` as they are, device strings included; an input named in `inputs` is taken from there."""
    definition = graph_pb2.GraphDef(node=nodes, versions=versions)
    scoped = c_api_util.ScopedTFImportGraphDefOptions()
    c_api.TF_ImportGraphDefOptionsSetPrefix(scoped.options, "")
    c_api.TF_ImportGraphDefOptionsSetUniquifyNames(scoped.options, False)
    c_api.TF_ImportGraphDefOptionsSetPropagateDeviceSpec(scoped.options, True)
    c_api.TF_ImportGraphDefOptionsSetValidateColocationConstraints(scoped.options, False)
    for (name, index), tensor in inputs.items():
        c_api.TF_ImportGraphDefOptionsAddInputMapping(scoped.options, name, index, tensor._as_tf_output())
    with graph._mutation_lock():
        buffer = c_api.TF_NewBufferFromString(definition.SerializeToString())
        try:
            with graph._c_graph.get() as c_graph:
                c_api_util.ScopedTFImportGraphDefResults(c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, scoped.options))
        finally:
            c_api.TF_DeleteBuffer(buffer)
        # What `_add_new_tf_operations` does but for its care of version 1 control flow, which costs as much again.
        for operation in graph.new_operations():
            graph._create_op_from_tf_operation(operation, compute_device=False)


def copy_handle_data(source: Any, target: Any) -> None:
    """Tells `target` what the resource or variant `source` holds."""
    handle_data_util.copy_handle_data(source, target)


def home(value: Any) -> str:
    """The device that an eager tensor's bytes, or the state behind a handle, are on; "" where that is not known."""
    if not hasattr(value, "backing_device"):
        return ""
    is_handle = isinstance(value, tf.__internal__.EagerTensor) and value.dtype == tf.resource
    return str(value.device if is_handle else value.backing_device)


def held_by(handle: Any) -> list[tf.TensorSpec]:
    """What is behind a variable's handle; nothing if it is no variable's."""
    data = handle_data_util.get_handle_data(handle)
    if data is None or not data.is_set:
        return []
    return [tf.TensorSpec(part.shape, part.dtype) for part in data.shape_and_type]


def has_value(handle: Any) -> bool:
    """Whether a variable was given a value; True too where that cannot be asked now."""
    if tf.is_symbolic_tensor(handle) or is_parallel(handle):
        return True
    with tf.init_scope():
        return not tf.executing_eagerly() or bool(tf.raw_ops.VarIsInitializedOp(resource=handle))


def variable_of(handle: Any) -> Any:
    """The tf.Variable whose handle this is; None if there is none, or no more."""
    parent = getattr(handle, "_parent_trackable", None)
    variable = None if parent is None else parent()
    return variable if isinstance(variable, ResourceVariable) and variable._handle is handle else None


def like_handle(variable: Any, device: str) -> Any:
    """A handle like the variable's to new storage on a device, which has no value yet."""
    name = f"{variable.name.removesuffix(':0')}/"
    with tf.device(device):
        handle = resource_variable_ops._variable_handle_from_shape_and_dtype(variable.shape, variable.dtype, None, name, False)
    vars(handle).update(vars(variable._handle))
    return handle


def by_name(handle: Any) -> Any:
    """The handle without its share in the storage, which is there as long as anything has one; None where it tells no name."""
    told = re.fullmatch(r'<ResourceHandle\(name="(.*)", device="[^"]*", container="(\w*)", type=.*', contents(handle), re.DOTALL)
    if told is None:
        return None
    name, container = told.groups()
    with tf.device(handle.device):
        return tf.raw_ops.VarHandleOp(shared_name=name, container=container, dtype=tf.float32, shape=[])


def captured_by_value(captures: Any) -> list[Any]:
    """What a FunctionCaptures holds, as often as it does."""
    return [*captures._by_val_external.values(), *(outer for outer, _ in captures._cached_by_val_capture_tuples)]


def parts(captures: Any) -> list[Any]:
    """The containers in which a FunctionCaptures holds them."""
    return [captures._by_val_external, *captures._cached_by_val_capture_tuples]


def passed_handles(graph: Any) -> list[Any]:
    """Of the arguments that a FuncGraph was first traced with, those that are handles, each in a wrapper: it asks while it is
    traced whether a variable is one.
    """
    return list(graph._resource_tensor_inputs._storage)


def exchange_passed(graph: Any, old: Any, new: Any) -> None:
    """Lets `new` be what a graph was first traced with instead of `old`."""
    if old in graph._resource_tensor_inputs:
        graph._resource_tensor_inputs.discard(old)
        graph._resource_tensor_inputs.add(new)


def exchange_capture(captures: Any, old: Any, new: Any) -> None:
    """Lets `new` be what a graph's placeholder for `old` stands for. They are kept by id, which another tensor can have later."""
    for known in (captures._by_val_external, captures._by_val_internal, captures._by_val_tracetype):
        items = [(id(new) if key == id(old) else key, new if value is old else value) for key, value in known.items()]
        known.clear()
        known.update(items)
    captures._recompute_cached_properties()


def contents(tensor: Any) -> str:
    """What an eager resource or variant tells of what is in it, alike for copies of one handle alone; "" in a GPU's memory.

    Of several elements, it is what the first ones tell.
    """
    if tensor.dtype == tf.variant and parse(home(tensor)).type != "CPU":
        return ""
    return repr(tensor).partition("value=")[2].removesuffix(">")


def variables_behind(dataset: Any) -> list[tf.TensorSpec] | None:
    """What an eager dataset's functions have captured of variables; None where TensorFlow does not tell all that they have."""
    try:
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset, external_state_policy=_IGNORE_STATE)
        nodes = graph_pb2.GraphDef.FromString(graph.numpy()).node
    except (tf.errors.OpError, DecodeError):
        return None
    if any(node.op == "Const" and tf.as_dtype(node.attr["dtype"].type) in (tf.resource, tf.variant) for node in nodes):
        return None
    told = [node.attr for node in nodes if node.op == "VarHandleOp"]
    return [tf.TensorSpec(attr["shape"].shape, attr["dtype"].type) for attr in told]


def data_behind(thing: Any) -> Any:
    """The tensor of a dataset or an iterator whose functions Python objects hold; None for anything else."""
    kind = type(thing)
    if issubclass(kind, DataIterator):
        return vars(thing).get("_iterator_resource") if "_dataset" in vars(thing) else None
    if issubclass(kind, Dataset) and not issubclass(kind, dataset_ops._VariantDataset):
        return vars(thing).get("_variant_tensor_attr")
    return None


def watches(recorder: Any, variable: Any) -> bool:
    """True where a GradientTape can still give a gradient for the variable, or a ForwardAccumulator follows it."""
    if isinstance(recorder, tf.GradientTape):
        return recorder._tape is not None and any(watched is variable for watched in recorder.watched_variables())
    return bool(recorder._recording) and recorder.jvp(variable) is not None


def static_value(tensor: Any) -> Any:
    """The tensor's value if it follows from constants alone; None otherwise."""
    value = tensor_util.constant_value(tensor)
    if value is not None:
        return value
    try:
        with tensor.graph._c_graph.get() as c_graph:
            return c_api.TF_TryEvaluateConstant_wrapper(c_graph, tensor._as_tf_output())
    except Exception:  # the evaluator refuses stateful and unknown ops by raising
        return None


def gradient_function(name: str) -> Any:
    """The Python gradient registered under `name`."""
    return ops.gradient_registry.lookup(name)


def register_gradient(name: str, function: Any) -> None:
    """Registers a Python gradient for ops whose `_gradient_op_type` is `name`."""
    tf.RegisterGradient(name)(function)


def is_gradient_registered(name: str) -> bool:
    try:
        ops.gradient_registry.lookup(name)
    except LookupError:
        return False
    return True


def unique_id() -> int:
    """A number no other function name of this process carries."""
    return int(ops.uid())


def external_captures(graph: Any) -> list[tuple[Any, Any]]:
    """(outer tensor, inner placeholder) of each capture by value, in order."""
    return list(graph.function_captures.by_val_capture_tuples)


def add_capture(graph: Any, external: Any, internal: Any) -> None:
    """Declares the placeholder `internal` to stand for `external`."""
    graph.function_captures.add_or_replace(key=id(external), external=external, internal=internal, is_by_ref=False)


def copy_deferred_captures(source: Any, target: Any, internal_of: Mapping[int, Any]) -> None:
    """Carries captures by reference over; `internal_of` maps id(old placeholder) to the new one."""
    captures = source.function_captures
    for key, old in captures.by_ref_internal.items():
        new = tf.nest.map_structure(lambda t: internal_of[id(t)], old, expand_composites=True)
        target.function_captures.add_or_replace(
            key=key,
            external=captures.by_ref_external[key],
            internal=new,
            tracetype=captures.by_ref_tracetype[key],
            is_by_ref=True,
        )


@contextmanager
def recorded_partitions() -> Iterator[list[Any]]:
    """Collects, into the list it yields, the partition graphs of every function first run inside the block."""
    found: list[Any] = []
    context.context().enable_run_metadata()
    context.context().export_run_metadata()  # once enabled, it goes on collecting when disabled: drop what is there already
    try:
        yield found
        found.extend(context.context().export_run_metadata().function_graphs)
    finally:
        context.context().disable_run_metadata()


def device_scope() -> str:
    """The device scope around a call, eager or inside a function; for an eager one, tf.function traces anew."""
    return str(context.context().device_name or "")


def in_dataset_function() -> bool:
    """True where a function is traced that a dataset will call."""
    tracer = DatasetFunction.__init__.__code__
    return not tf.executing_eagerly() and any(frame.f_code is tracer for frame, _ in traceback.walk_stack(None))


def is_saving() -> bool:
    """True while a SavedModel is written, for which functions are traced anew."""
    return bool(save_context.in_save_context())


def is_jit_compiled(concrete: Any) -> bool:
    """True for a function that XLA compiles as a whole."""
    attribute = (concrete.inference_fn.attributes or {}).get("_XlaMustCompile")
    return bool(attribute is not None and attribute.b)


def is_parallel(tensor: Any) -> bool:
    """True for a DTensor or a packed tensor of several replicas."""
    if not isinstance(tensor, tf.__internal__.EagerTensor):
        return False
    return bool(getattr(tensor, "is_packed", False)) or "DTensor" in type(tensor).__name__ or tensor.device.endswith("CUSTOM:0")


def is_distributed(variable: Any) -> bool:
    """True for a variable made under a distribution strategy: the whole of it, or one replica's part."""
    return getattr(variable, "_distribute_strategy", None) is not None


def is_replicas(op: Any) -> bool:
    """True for an op that runs on a replica's device: who made it shows in its traceback, and nowhere else.

    The strategy that is there where there is none passes functions on and names no device.
    """
    return bool(op.device) and any(
        "/tensorflow/python/distribute/" in frame.filename and not frame.filename.endswith("/distribute_lib.py")
        for frame in op.traceback or ()
    )
