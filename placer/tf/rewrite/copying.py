"""What is known of a private copy while it is made: the node that replaces each op of the trace, and its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import tensorflow as tf

from cost_models.ops import entry_of
from placer.errors import RewriteError
from placer.tf.rewrite.call_results import JoinedResults
from placer.tf.trace.bodies import LOOPS, Body, origin, split_input
from placer.tf.trace.tracing import Trace


class Copy:
    """What is known of a private copy while it is made.

    Args:
        trace: what is copied.
        device_of: full device name by node of the `OpGraph` read from the trace; None keeps the devices that the trace requests.
        add_ops: adds ops to the new graph of a frame, which is all there, and returns those that must run.
        substitute: gives the function to call with an op's inputs in place of the op; None for an op that is copied.
    """

    def __init__(
        self,
        trace: Trace,
        device_of: Mapping[str, str] | None,
        add_ops: Callable[[Copy, Body], list[Any]] = lambda copy, frame: [],
        substitute: Callable[[Any], Any] = lambda operation: None,
    ) -> None:
        self.trace = trace
        self.device_of = device_of
        self.add_ops = add_ops
        self.substitute = substitute
        self.graphs: dict[int, Any] = {}
        """By id of a frame's Body: its new FuncGraph."""
        self.placeholders: dict[int, set[str]] = {}
        """By id of a frame's Body: the names of its new inputs."""
        self.input_names: dict[tuple[int, str], str] = {}
        """By id of a frame's Body and input op, or "hoist" and its position: the new input's name."""
        self.joined_results: dict[tuple[int, str], JoinedResults] = {}
        """By id of a Body and inlined call in it: the node through which its results go."""

    # -- devices ---------------------------------------------------------------------------------------------------

    def device(self, path: str) -> str:
        """The planned device of a node.

        Raises:
            RewriteError: the plan has none.
        """
        assert self.device_of is not None
        try:
            return self.device_of[path]
        except KeyError:
            raise RewriteError(f"the placement has no device for {path!r}; it was made for another graph") from None

    def op_device(self, body: Body, name: str) -> str:
        """The planned device of op `name` of `body`; of a read that a hoist replaces, the hoist's."""
        if name in body.hoisted:
            loop = body.frame
            assert loop.parent is not None
            return self.device(f"{loop.parent.names[loop.site]}/read{body.hoisted[name]}")
        return self.device(body.names[name])

    def lifted(self, frame: Body) -> list[int]:
        """The hoists of a loop that are carried out.

        These are the ones whose variable is copied at each read, or is on another device than the loop keeps its value on.
        """
        if self.device_of is None or frame.kind not in ("cond", "body") or frame.parent is None:
            return []
        path = frame.parent.names[frame.site]
        inner = frame.loop_body
        lifted = []
        for j, hoist in enumerate(inner.hoists):
            device = self.device(f"{path}/read{j}")
            copied = bool(device) and origin(frame.parent, *hoist.handle) in self._read_by_rows
            if copied or device != self.device(f"{path}/in{len(inner.operands) + j}"):
                lifted.append(j)
        return lifted

    @cached_property
    def _read_by_rows(self) -> set[tuple[Body, str, int]]:
        """Origins of handles whose variables an op reads or writes by rows. TensorFlow copies such a variable at each read."""
        return {
            origin(body, *split_input(node.input[0]))
            for body in self.trace.root.walk()
            for node in body.nodes.values()
            if entry_of(node.op).uses_rows
        }

    # -- nodes and tensors -----------------------------------------------------------------------------------------

    def source(self, body: Body, name: str, index: int) -> tuple[str, int]:
        """The node and output, in the new graph of `body`'s frame, that replace output `index` of op `name`."""
        while True:
            if name in body.inputs:
                if body.kind != "call" or body.parent is None:
                    return self.input_names[id(body), name], 0
                name, index = body.operands[body.inputs[name]]
                body = body.parent
            elif name in body.children and body.children[name][0].kind == "call":
                joined = self.joined_results.get((id(body), name))
                if joined is not None and index in joined.results:
                    return joined.node, list(joined.results).index(index)
                body = body.children[name][0]
                name, index = body.outputs[index]
            elif name in body.hoisted and body.hoisted[name] in self.lifted(body.frame):
                return self.input_names[id(body.frame), f"hoist {body.hoisted[name]}"], 0
            elif (entering := _entering_handle(body, name, index)) is not None:
                name, index = entering
            else:
                return body.names[name], index

    def tensor(self, body: Body, name: str, index: int) -> Any:
        """The new tensor that replaces output `index` of op `name`."""
        node, output = self.source(body, name, index)
        return self.graphs[id(body.frame)].get_operation_by_name(node).outputs[output]

    def finished(self, body: Body, name: str) -> list[str]:
        """The new nodes after which op `name` has finished; empty for a frame's input."""
        if name in body.inputs or name in body.hoisted:
            source = self.source(body, name, 0)[0]
            return [] if source in self.placeholders.get(id(body.frame), ()) else [source]
        children = body.children.get(name)
        if children is None or children[0].kind != "call":
            return [body.names[name]]
        child = children[0]
        ends = child.control_outputs or [n for n, _ in child.outputs]
        return list(dict.fromkeys(n for end in ends for n in self.finished(child, end)))

    def closure_tensor(self, body: Body, tensor: Any) -> Any:
        """The new tensor for a tensor of the trace to which a custom gradient's closure refers; eager tensors are kept."""
        if not hasattr(tensor, "graph") or isinstance(tensor, tf.__internal__.EagerTensor):
            return tensor
        around: Body | None = body
        while around is not None:
            if around.graph is tensor.graph:
                return self.tensor(around, tensor.op.name, tensor.value_index)
            around = around.parent
        raise RewriteError(
            f"the custom gradient of an op in {body.path or self.trace.name!r} uses {tensor.name}, "
            "which is outside the traced function"
        )


def _entering_handle(body: Body, name: str, index: int) -> tuple[str, int] | None:
    """The handle that enters a loop where output `index` of the loop is this handle unchanged.

    It is read from there instead of from the loop, which may be on another device.
    """
    is_split = body.nodes[name].op in LOOPS and name in body.children
    if not is_split or body.operations[name].outputs[index].dtype != tf.resource:
        return None
    inner = body.children[name][1]
    source, _ = inner.outputs[index]
    return inner.operands[index] if inner.inputs.get(source) == index else None
