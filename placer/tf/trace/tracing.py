"""callable | tf.function | ConcreteFunction -> Trace: the traced graph and every body it calls, named by call path.

Nothing is changed and nothing is copied here: a Trace only points at TensorFlow's own graphs, which must stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.ops import entry_of, types_where
from placer.errors import OptionError, TraceError
from placer.tf._private.func_graphs import external_captures, library_function, registered_nodes
from placer.tf._private.functions import ConcreteFunction, UnliftableError, flat_arguments, raised_while_tracing
from placer.tf._private.handles import held_specs, is_parallel, location
from placer.tf._private.runtime import device_scope
from placer.tf.trace.optypes import runs_unseen_code

CALLS = types_where(lambda entry: entry.control == "call")
LOOPS = types_where(lambda entry: entry.control == "loop")
BRANCHES = types_where(lambda entry: entry.control == "branch")

_VALUE = re.compile(r"(.*)/(?:(?:in|out|read)\d+|out)")
"""Paths of the values that loops and branches pass on (see `placer.graph.opgraph.Role`), which are no ops yet."""

BodyKind = Literal["root", "call", "cond", "body", "branch"]


@dataclass(frozen=True, eq=False)
class Hoist:
    """A variable that a loop's body reads and nothing in the loop writes: reading it once, before the loop, is the same."""

    handle: tuple[str, int]
    """Op and output of the loop's parent body that gives the handle."""
    reader: Body
    read: str
    """One of the reads: an op of `reader`."""

    @property
    def tensor(self) -> Any:
        """The value read."""
        return self.reader.operations[self.read].outputs[0]


@dataclass(eq=False, repr=False)
class Body:
    """One graph of the trace at one call site: a body called from two sites appears twice.

    A *frame* is a body that stays a graph of its own when the function is rebuilt; called functions are inlined into theirs.
    """

    path: str
    kind: BodyKind
    function: Any
    parent: Body | None
    site: str
    """The op in `parent` that calls it."""
    nodes: dict[str, NodeDef] = field(init=False)
    """By op name, in an order where inputs come first."""
    names: dict[str, str] = field(default_factory=dict)
    """Path of each op, unique in the trace."""
    children: dict[str, tuple[Body, ...]] = field(default_factory=dict)
    """By the op that calls them: one body for a call, cond and body for a loop, one for each branch."""
    hoists: list[Hoist] = field(default_factory=list)
    """Of a loop body: the variables it could be given instead of their handles."""
    hoisted: dict[str, int] = field(default_factory=dict)
    """Reads of this body that a hoist of its frame stands for: position in the frame's `hoists`."""
    around: str = ""
    """Of a root: the device scope around the call that traced it."""
    input_tensors: tuple[Any, ...] = field(init=False)
    inputs: dict[str, int] = field(init=False)
    """Position of each input op."""
    output_tensors: tuple[Any, ...] = field(init=False)
    outputs: list[tuple[str, int]] = field(init=False)
    """Op name and output index of each result."""
    control_outputs: list[str] = field(init=False)
    operations: dict[str, Any] = field(init=False)
    """TensorFlow's own op objects by name."""

    def __post_init__(self) -> None:
        # TensorFlow adds to these graphs when somebody takes the plain function's gradient; a trace is what was there before.
        nodes, inputs, outputs = registered_nodes(self.function)
        self.nodes = _topological(nodes)
        self.input_tensors = tuple(self.graph.inputs[:inputs])
        self.inputs = {t.op.name: i for i, t in enumerate(self.input_tensors)}
        self.output_tensors = tuple(self.graph.outputs[:outputs])
        self.outputs = [(t.op.name, t.value_index) for t in self.output_tensors]
        self.control_outputs = [op.name for op in self.graph.control_outputs]
        self.operations = {op.name: op for op in self.graph.get_operations() if op.name in nodes}

    @property
    def graph(self) -> Any:
        """The function's FuncGraph."""
        return self.function.graph

    def results(self, name: str) -> list[Any]:
        """The tensors that op `name` gives."""
        node = self.nodes[name]
        types = "T" if node.op in LOOPS else "Tout" if node.op in CALLS | BRANCHES else ""
        return list(self.operations[name].outputs)[: len(node.attr[types].list.type) if types else None]

    @property
    def frame(self) -> Body:
        return self.parent.frame if self.kind == "call" and self.parent is not None else self

    def walk(self) -> Iterator[Body]:
        """This body and all below it, callers first."""
        yield self
        for bodies in self.children.values():
            for child in bodies:
                yield from child.walk()

    @cached_property
    def scope(self) -> str:
        """The device the callers ask for: TensorFlow, when it inlines a body, gives it to ops that leave theirs open."""
        return self.around if self.parent is None else merged_device(self.parent.nodes[self.site].device, self.parent.scope)

    @cached_property
    def passed(self) -> list[tuple[str, int]]:
        """What the calling op passes to this body's inputs, as (op, output) of the parent."""
        assert self.parent is not None
        node = self.parent.nodes[self.site]
        inputs = [split_input(i) for i in node.input if not i.startswith("^")]
        return inputs[1:] if self.kind == "branch" else inputs


@dataclass(frozen=True)
class Argument:
    """What a plan needs to know of a call's tensor, without that: a batch or a variable is not to live as long as its plan."""

    shape: tf.TensorShape
    dtype: tf.DType
    backing_device: str
    """Where its bytes are, or those behind a handle."""
    name: str = ""
    """Of what is behind a handle."""
    held: tuple[tf.TensorSpec, ...] = ()
    """What is behind a variable's handle."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A traced function: its ConcreteFunction and the tree of its bodies."""

    concrete: Any
    root: Body
    arguments: tuple[Any, ...]
    """The example call's flat tensors as `Argument`s, as far as there was one."""

    @property
    def name(self) -> str:
        """As the user's function is called."""
        return str(self.concrete.graph.name)

    def __repr__(self) -> str:
        return f"<Trace of {self.name!r}: {signature_text(self.concrete)}>"


@cache
def merged_device(device: str, scope: str) -> str:
    """What an op asks for in a scope: its own device string, `scope` for the parts it leaves open."""
    if not device or not scope:
        return device or scope
    inner, outer = map(tf.DeviceSpec.from_string, (device, scope))
    return str(outer.make_merged_spec(inner).to_string())


def split_input(text: str) -> tuple[str, int]:
    """A NodeDef's input as (op name, output index)."""
    name, _, index = text.partition(":")
    return name, int(index) if index else 0


def traceable(fn: Callable[..., Any]) -> Any:
    """`fn` if it is a tf.function or a ConcreteFunction, what it wraps if it is placed, otherwise a tf.function of it."""
    fn = getattr(fn, "_traceable", fn)
    return fn if hasattr(fn, "get_concrete_function") or isinstance(fn, ConcreteFunction) else tf.function(fn)


def concrete_function(fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """The ConcreteFunction of `fn` for these arguments.

    Raises:
        OptionError: `fn` is not something that can be traced.
        TraceError: it fails while it is traced.
        TypeError: what a call of it with these arguments raises before it is traced: they do not fit its parameters or types.
    """
    if isinstance(fn, ConcreteFunction):
        try:
            _ = fn.graph.variables
        except AssertionError as error:
            raise TraceError(f"{fn.graph.name} uses variables that were deleted: keep them as long as the function") from error
        return fn
    if not callable(fn):
        raise OptionError(f"cannot trace {fn!r}, which is not a function: pass a callable or a tf.function.")
    try:
        return traceable(fn).get_concrete_function(*args, **(kwargs or {}))
    except Exception as error:
        if not raised_while_tracing(error):
            raise
        name = getattr(fn, "__name__", type(fn).__name__)
        if isinstance(error, UnliftableError):
            raise TraceError(
                f"{name} gives its variables initial values from its arguments: make it again, and call it before you plan it"
            ) from error
        raise TraceError(f"{name} failed while it was traced: {type(error).__name__}: {error}") from error


def trace(fn: Callable[..., Any] | Any, *args: Any, **kwargs: Any) -> Trace:
    """Traces `fn` for example arguments or TensorSpecs and finds every body it calls.

    Args:
        fn: a callable, a tf.function, a bound method of either, or a ConcreteFunction (which needs no arguments).
        *args, **kwargs: as for a call of `fn`; tf.TensorSpec may stand for tensors.

    Raises:
        OptionError, TraceError, TypeError: see `concrete_function`.
    """
    concrete = concrete_function(fn, args, kwargs)
    return trace_concrete(concrete, args, kwargs)


def trace_concrete(concrete: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Trace:
    """The Trace of a ConcreteFunction; the arguments, if any, say where the call's tensors sit and their true shapes.

    Raises:
        TraceError: its graph has a cycle, as TensorFlow 1 loops do.
    """
    flat: tuple[Any, ...] = ()
    if args or kwargs:
        try:
            flat = tuple(map(_argument, flat_arguments(concrete, args, kwargs or {})))
        except (TypeError, ValueError, AttributeError):
            flat = ()  # specs instead of values: nothing is known beyond the signature
    taken: set[str] = set()
    root = _read_body(concrete.inference_fn, "", "root", None, "", taken)
    root.around = device_scope()
    return Trace(concrete, root, flat)


def _argument(value: Any) -> Any:
    """An `Argument` for a tensor that is here; what is none, or on several devices, as it is."""
    if not isinstance(value, tf.__internal__.EagerTensor) or is_parallel(value):
        return value
    held = tuple(held_specs(value)) if value.dtype == tf.resource else ()
    return Argument(value.shape, value.dtype, location(value), str(getattr(value, "_name", "")), held)


def trace_pair(concrete: Any, arguments: Sequence[Any]) -> Trace:
    """The Trace of a function that calls two others and does nothing else: a forward function, then its backward function.

    Ops of the first have the names they have when it is read alone, those of the second are below "backward".
    """
    root = Body("", "root", concrete.inference_fn, None, "")
    forward, backward = (name for name, node in root.nodes.items() if node.op in CALLS)
    root.names.update({name: name for name in root.nodes} | {forward: "", backward: "backward"})
    _read_called(root, set(root.names.values()))
    return Trace(concrete, root, tuple(arguments))


def halves(pair: Trace) -> list[Body]:
    """The two functions of a pair, each a root of its own; the pair is used up."""
    found = [bodies[0] for bodies in pair.root.children.values()]
    for body in found:
        body.kind, body.parent, body.site = "root", None, ""
    return found


def signature_text(concrete: Any) -> str:
    """A call signature in words: "float32[8,224,224,3], int32[8]"; Python values as they are."""

    def text(value: Any) -> str:
        if isinstance(value, tf.TensorSpec):
            shape = "?" if value.shape.rank is None else ",".join("?" if d is None else str(d) for d in value.shape.as_list())
            return f"{value.dtype.name}[{shape}]"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(text, value))})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k}: {text(v)}" for k, v in value.items()) + "}"
        return repr(value)

    if concrete.structured_input_signature is None:  # a graph of TensorFlow 1, wrapped
        return ", ".join(text(tf.TensorSpec(t.shape, t.dtype)) for t in concrete.inputs)
    args, kwargs = concrete.structured_input_signature
    return ", ".join([*map(text, args), *(f"{k}={text(v)}" for k, v in kwargs.items())])


def _read_body(function: Any, path: str, kind: BodyKind, parent: Body | None, site: str, taken: set[str]) -> Body:
    body = Body(path, kind, function, parent, site)
    # Ops of a loop or branch body already carry the loop's own name as a scope, those of a copy the whole path; said once.
    scopes = (f"{path}/", f"{site}/") if kind in ("cond", "body", "branch") else ()
    renamed = _capture_names(body.graph) if kind == "root" else {}
    # A loop or branch gets nodes of its own below its path, which ops of a function that was placed before can look like.
    alike = {match[1] for match in map(_VALUE.fullmatch, body.nodes) if match}
    for name, node in body.nodes.items():
        local = renamed.get(name) or next((name[len(scope) :] for scope in scopes if name.startswith(scope)), name)
        wanted = unique = f"{path}/{local}" if path else local
        suffix = int(name in alike and (node.op in LOOPS or node.op in BRANCHES))
        if suffix:
            unique = f"{wanted}_{suffix}"
        while unique in taken:
            suffix += 1
            unique = f"{wanted}_{suffix}"
        taken.add(unique)
        body.names[name] = unique
    _read_called(body, taken)
    return body


def _read_called(body: Body, taken: set[str]) -> None:
    for name, node in body.nodes.items():
        bodies = [
            _read_body(inner, f"{body.names[name]}{part}", inner_kind, body, name, taken)
            for part, inner_kind, inner in _called(node, body.graph)
        ]
        if bodies:
            body.children[name] = tuple(bodies)
            if node.op in LOOPS:
                _find_hoists(*bodies)


def _capture_names(graph: Any) -> dict[str, str]:
    """Lasting names for captures that TensorFlow numbered through the process, as it does those of nested functions."""
    variables = variable_names(graph)
    return {
        inner.op.name: re.sub(r"[^\w./-]", "_", variables.get(id(outer), "")).lstrip("_/-") or "capture"
        for outer, inner in external_captures(graph)
        if inner.op.name.rpartition("/")[2].isdigit()
    }


def variable_names(graph: Any) -> dict[int, str]:
    """By id of its handle, each variable of a function's graph as the user calls it."""
    # Asking one that waits for its plan for its `handle` would give it its value.
    return {id(getattr(v, "_handle", None)): v.name.removesuffix(":0") for v in graph.variables}


def inlined(frame: Body) -> Iterator[Body]:
    """The frame and every called function that becomes part of it."""
    yield frame
    for bodies in frame.children.values():
        if bodies[0].kind == "call":
            yield from inlined(bodies[0])


def _find_hoists(cond: Body, inner: Body) -> None:
    """Finds the reads that can be done before a loop: none where code that no graph shows may write the variable."""
    written: set[tuple[str, int]] = set()
    reads: list[tuple[tuple[str, int], Body, str]] = []
    members = set(map(id, inlined(inner)))
    for body in [*cond.walk(), *inner.walk()]:
        for name, node in body.nodes.items():
            if name in body.inputs or name in body.children:
                continue
            if runs_unseen_code(node.op):
                return
            for position, tensor in enumerate(body.operations[name].inputs):
                if tensor.dtype != tf.resource:
                    continue
                handle = _outside(body, *split_input(node.input[position]), inner.parent)
                if handle is None:
                    continue
                if not entry_of(node.op).reads:
                    written.add(handle)
                elif node.op == "ReadVariableOp" and id(body) in members:
                    reads.append((handle, body, name))
    positions: dict[tuple[str, int], int] = {}
    for handle, body, name in reads:
        if handle not in written:
            if handle not in positions:
                positions[handle] = len(inner.hoists)
                inner.hoists.append(Hoist(handle, body, name))
            body.hoisted[name] = positions[handle]


def _outside(body: Body, name: str, index: int, parent: Body | None) -> tuple[str, int] | None:
    """What `parent` passes in as output `index` of op `name`; None if it is made inside."""
    while body is not parent:
        if name in body.inputs:
            name, index = body.passed[body.inputs[name]]
            if body.parent is None:
                return None
            body = body.parent
        elif name in body.children and body.children[name][0].kind == "call":
            body = body.children[name][0]
            name, index = body.outputs[index]
        else:
            return None
    return name, index


def origin(body: Body, name: str, index: int) -> tuple[Body, str, int]:
    """Where output `index` of op `name` is made: inputs of bodies, and calls, only hand on what they are given."""
    while True:
        if name in body.inputs and body.parent is not None:
            name, index = body.passed[body.inputs[name]]
            body = body.parent
        elif name in body.children and body.children[name][0].kind == "call":
            body = body.children[name][0]
            name, index = body.outputs[index]
        else:
            return body, name, index


def is_compiled(node: NodeDef, function: Any = None) -> bool:
    """True for a call that XLA compiles as a whole: it cannot be split."""
    if "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b:
        return True
    attributes = getattr(function, "attributes", None) or {}
    return "_XlaMustCompile" in attributes and bool(attributes["_XlaMustCompile"].b)


def _called(node: NodeDef, graph: Any) -> list[tuple[str, BodyKind, Any]]:
    """Path suffix, kind and function of the bodies `node` enters; none for what is kept whole."""
    if node.op in CALLS:
        function = library_function(graph, node.attr["f"].func.name)
        if function is None or is_compiled(node, function) or not hasattr(function, "graph"):
            return []
        return [("", "call", function)]
    if node.op in LOOPS:
        parts: list[tuple[str, BodyKind, str]] = [("/cond", "cond", "cond"), ("/body", "body", "body")]
    elif node.op in ("If", "StatelessIf"):
        parts = [("/then", "branch", "then_branch"), ("/else", "branch", "else_branch")]
    elif node.op in ("Case", "StatelessCase"):
        found = [(f"/branch{i}", library_function(graph, f.name)) for i, f in enumerate(node.attr["branches"].list.func)]
        return [(part, "branch", f) for part, f in found] if all(hasattr(f, "graph") for _, f in found) else []
    else:
        return []
    functions = [(part, kind, library_function(graph, node.attr[attr].func.name)) for part, kind, attr in parts]
    return functions if all(hasattr(f, "graph") for _, _, f in functions) else []


def _topological(nodes: dict[str, NodeDef]) -> dict[str, NodeDef]:
    """`nodes` reordered, as little as possible, so that inputs come first.

    Creation order is nearly always one such order; taking a loop's gradient adds inputs to ops made earlier.
    """
    seen: set[str] = set()
    for name, node in nodes.items():
        if any(_source(i) not in seen for i in node.input):
            break
        seen.add(name)
    else:
        return nodes
    done: dict[str, NodeDef] = {}
    path: set[str] = set()
    for start in nodes:
        stack = [start]
        while stack:
            name = stack[-1]
            if name in done:
                stack.pop()
                continue
            missing = [s for s in map(_source, nodes[name].input) if s not in done]
            if not path.isdisjoint(missing):
                raise TraceError(f"{name!r} depends on itself: its loop is TensorFlow 1 control flow, which cannot be planned")
            if missing:
                path.add(name)
                stack.extend(reversed(missing))
            else:
                done[name] = nodes[name]
                path.discard(name)
                stack.pop()
    return done


def _source(text: str) -> str:
    return text[1:] if text.startswith("^") else text.partition(":")[0]
