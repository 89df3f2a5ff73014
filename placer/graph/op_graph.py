"""OpGraph: the ops of a function and of every body it calls, as one networkx DAG.

This module does not need TensorFlow: a saved graph can be solved, compared and drawn where TensorFlow is not installed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import networkx as nx

from cost_models.base import OpSignature
from placer.common.garbage_collection import paused_collection
from placer.common.json_files import check_format, read_json, write_json
from placer.common.plan_schema import check_schema
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError, PlanError
from placer.graph.contradictions import contradictions
from placer.graph.layers import layers
from placer.graph.sizes import Rounds, Size

Role: TypeAlias = Literal["op", "argument", "capture", "constant", "loop", "branch"]
"""The kind of a node. Nodes of kind "loop" and "branch" are the values and predicates that a While, If or Case passes on. They
are no ops in the traced graph. When TensorFlow lowers the loop or branch, it adds an Enter, Merge, Switch or Exit op for each."""

ENDS: tuple[Role, ...] = ("argument", "capture")
"""Roles of ops that no glob and no op type pins, only the exact name or the variable's name."""

FORMAT = "placer.opgraph"
VERSION = 2


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can run an op on one device type, with the flat indices of its inputs and outputs in host memory."""

    host_inputs: tuple[int, ...] = ()
    host_outputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpNode:
    """One op (or loop value) of the flattened graph. Stored as the node attribute "op"."""

    name: str
    """Call path and op name: "dense/MatMul", "PartitionedCall/MatMul", "while/body/add"."""
    op_type: str
    signature: OpSignature
    count: float
    """Expected runs per step: rounds of the loops around it multiplied, a branch weighted by its share."""
    body: str = ""
    """Path of the innermost loop or branch body around it; "" for the root."""
    role: Role = "op"
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    """By device type ("CPU", "GPU")."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """By device type that has no kernel for the op: why not, as text."""
    requested_device: str = ""
    """The device string that the trace requests, which may be partial; "" without a request."""
    planned_by: str = ""
    """The placed function whose plan requests that device; "" for a request by a tf.device scope."""
    planned_why: str = ""
    """Why that plan has the op on this device, as text."""
    location: str = ""
    """For arguments and captures: the device of the passed tensor in this process; "" if it is unknown. For an op that a
    distribution strategy has put on a device: that device, or the host if the op has no kernel there."""
    resource: str = ""
    """For a capture or an op that makes a handle: the key of its state in `OpGraph.resources`."""
    group: str = ""
    """Nodes of one non-empty group must share a device; see `group_reasons`."""
    flags: tuple[str, ...] = ()
    """"stateful". "random": it draws random numbers from a generator of the device. "unit": a compiled body or a Python callback,
    which is not split. "bounds", "division", "power": the device decides whether an index out of range, a divisor of zero or a
    negative exponent raises an error."""

    @property
    def is_of_strategy(self) -> bool:
        """Whether a distribution strategy has put it on a device: an op of a replica, or one that joins values of replicas."""
        return bool(self.location) and self.role not in ENDS

    @property
    def is_fixed(self) -> bool:
        """Whether only its exact name pins it: no glob, op type or layer does."""
        return self.role in ENDS or bool(self.location)


@dataclass(frozen=True, slots=True)
class Resource:
    """A variable, table or other state behind a handle."""

    name: str
    kind: str
    device: str
    """The device that holds it in this process."""
    nbytes: int
    stays: str = ""
    """Why it cannot be moved, as text; "" for a variable that can be moved."""
    waits: bool = False
    """Whether it is a variable that has no value yet and takes no memory."""


@dataclass(frozen=True, slots=True)
class TensorEdge:
    """One tensor on an edge: output `src_index` of the source is input `dst_index` of the target.

    A negative `dst_index` is the predicate of a loop or branch node that controls an op of its body. It is read in host memory.
    """

    src_index: int
    dst_index: int


@dataclass(frozen=True)
class OpGraph:
    """A function's ops as a DAG."""

    name: str
    graph: nx.DiGraph
    """Nodes are op names in execution order, each with an attribute "op" (`OpNode`). Edges have the attributes "tensors" (a tuple
    of `TensorEdge`, empty for a control edge alone) and "control" (bool)."""
    resources: Mapping[str, Resource]
    group_reasons: Mapping[str, str]
    """By group: why its nodes must share a device, as text."""
    process_devices: tuple[str, ...]
    """Devices of the process that read the graph ("CPU:0", "GPU:0"), and of the tasks that it was connected to."""
    rounds: Mapping[str, Rounds]
    """By loop: the number of rounds of one run of the loop."""
    outputs: tuple[tuple[str, int], ...]
    """Node and output index of each result."""
    sizes: Mapping[str, tuple[Size | None, ...]] = field(default_factory=dict)
    """For each node with an output whose shape is not exact: a `Size` for each output, None for an exact one."""
    taken: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By branch that a run reached: how often each of its bodies ran."""
    notes: tuple[str, ...] = ()
    kernel_snapshot: str = ""
    """The TensorFlow release whose GPU kernels the nodes have, in words, if the TensorFlow that traced the function has none."""

    def __repr__(self) -> str:
        return f"<OpGraph of {self.name!r}: {len(self)} ops>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpGraph) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __len__(self) -> int:
        return len(self.graph)

    def __iter__(self) -> Iterator[OpNode]:
        """The ops in execution order."""
        return (op for _, op in self.graph.nodes(data="op"))

    def op(self, name: str) -> OpNode:
        """The op of exactly this name; KeyError if there is none. `find` accepts parts of names."""
        node: OpNode = self.graph.nodes[name]["op"]
        return node

    def inputs_of(self, name: str) -> list[tuple[str, TensorEdge]]:
        """The producer and the edge of each tensor that an op takes."""
        return [(source, edge) for source, data in self.graph.pred[name].items() for edge in data["tensors"]]

    def size_of(self, name: str, output: int) -> Size | None:
        """What is known of the shape of an output; None if the shape is exact."""
        return self.sizes[name][output] if name in self.sizes else None

    def find(self, name: str) -> OpNode:
        """The op that `name` identifies.

        Args:
            name: the name of an op; or the name of a variable, which identifies the op that gives its handle. If exactly one op
                fits: the end of its name after a "/", a glob that matches its name, or its type.

        Raises:
            OptionError: no op fits, or several do; it lists these, or similar names.
        """
        if not isinstance(name, str):
            raise OptionError(f"{name!r} is no op's name: give text, such as {next(iter(self.graph), '')!r}.")
        if name in self.graph:
            return self.op(name)
        if name in self.resources:
            return next(op for op in self if op.resource == name)
        matches = [n for n in self.graph if n.endswith("/" + name)] or fnmatch.filter(self.graph, name)
        matches = matches or [op.name for op in self if op.op_type == name]
        if len(matches) == 1:
            return self.op(matches[0])
        if matches:
            shown = ", ".join(matches[:8]) + (", …" if len(matches) > 8 else "")
            raise OptionError(f"{name!r} names {len(matches)} ops of {self.name!r}: {shown}. Give one of them.")
        raise OptionError(
            f"no op or variable of {self.name!r} is called {name!r}{self.did_you_mean(name)} "
            f"list(placement.ops) has its {len(self)} names."
        )

    @cached_property
    def runs_replicas(self) -> bool:
        """Whether replicas of a distribution strategy run in it."""
        return any(op.is_of_strategy for op in self)

    @cached_property
    def layers(self) -> Mapping[str, str]:
        """By op: the scope of its layer; see `placer.graph.layers`."""
        return layers(self)

    @cached_property
    def ops_by_word(self) -> Mapping[str, Sequence[str]]:
        """The ops that a pin without wildcards names: by op, by op type, by variable."""
        ops: dict[str, list[str]] = {}
        for op in self:
            words = {op.name, *(() if op.is_fixed else (op.op_type,))}
            if op.resource:
                words |= {op.resource, *([self.resources[op.resource].name] if op.resource in self.resources else ())}
            for word in words:
                ops.setdefault(word, []).append(op.name)
        return ops

    def did_you_mean(self, name: str, *, pins: bool = False) -> str:
        """The end of an error message: ops and variables with names like `name`, for pins op types, layers and scopes too."""
        known = [*self.resources, *self.graph]
        if pins:
            scopes = (f"{n[: slash.start()]}/*" for n in self.graph for slash in re.finditer("/", n))
            types = (op.op_type for op in self if "/" not in name)
            layers = (part for layer in self.layers.values() for part in layer.split("/") if part)
            known = [*types, *(() if "*" in name else layers), *scopes, *known]
        return did_you_mean(name, known)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over names, signatures, edges and results.

        Traces of one function have equal fingerprints in all processes and on all machines: locations, kernels and requested
        devices are not included.
        """
        digest = hashlib.sha256()
        signatures: dict[int, str] = {}
        for node in self:
            text = signatures.get(id(node.signature)) or signatures.setdefault(id(node.signature), repr(node.signature))
            digest.update(f"{node.name}\0{node.role}\0{text}\n".encode(errors="surrogatepass"))
        for src, dst, data in self.graph.edges(data=True):
            tensors = ",".join([f"{t.src_index}:{t.dst_index}" for t in data["tensors"]])
            digest.update(f"{src}\0{dst}\0{tensors}\0{data['control']:d}\n".encode(errors="surrogatepass"))
        digest.update(repr(self.outputs).encode())
        return digest.hexdigest()

    def difference(self, other: OpGraph) -> str:
        """The first difference between a plan's graph, which this is, and the graph of a function, as text."""
        for op in other:
            if op.name not in self.graph:
                return f"the plan has no op {op.name!r}"
            planned = self.op(op.name)
            if str(planned.signature) != str(op.signature):
                return f"{op.name!r} is {planned.signature} in the plan and {op.signature} in the function"
            if (planned.signature, planned.role) != (op.signature, op.role):
                return (
                    f"{op.name!r} is {planned.role} {dict(planned.signature.attrs)} in the plan and "
                    f"{op.role} {dict(op.signature.attrs)} in the function"
                )
        missing = next((name for name in self.graph if name not in other.graph), "")
        return f"the function has no op {missing!r}" if missing else "edges or results differ"

    def to_json(self) -> dict[str, Any]:
        """The graph as plain JSON types. Equal signatures are written once, equal tables of kernels too."""
        signatures: dict[OpSignature, int] = {}
        tables: dict[str, int] = {}
        table_of_ids: dict[tuple[int, int], int] = {}
        number = {name: i for i, name in enumerate(self.graph)}
        nodes = []
        for node in self:
            identity = (id(node.kernels), id(node.refusals))
            if identity not in table_of_ids:
                kernels = {kind: [kernel.host_inputs, kernel.host_outputs] for kind, kernel in node.kernels.items()}
                table_of_ids[identity] = tables.setdefault(json.dumps([kernels, dict(node.refusals)]), len(tables))
            row: dict[str, Any] = {
                "name": node.name,
                "signature": signatures.setdefault(node.signature, len(signatures)),
                "kernels": table_of_ids[identity],
                "count": node.count,
            }
            if node.op_type != node.signature.op_type:
                row["op_type"] = node.op_type
            row.update({key: value for key in _OPTIONAL if (value := getattr(node, key)) != _OPTIONAL[key]})
            nodes.append(row)
        return {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "name": self.name,
            "signatures": [s.to_json() for s in signatures],
            "kernels": [json.loads(table) for table in tables],
            "nodes": nodes,
            "edges": [
                [number[src], number[dst], [[t.src_index, t.dst_index] for t in data["tensors"]], data["control"]]
                for src, dst, data in self.graph.edges(data=True)
            ],
            "resources": {key: [r.name, r.kind, r.device, r.nbytes, r.stays, r.waits] for key, r in self.resources.items()},
            "group_reasons": dict(self.group_reasons),
            "process_devices": list(self.process_devices),
            "rounds": {key: list(rounds) for key, rounds in self.rounds.items()},
            "sizes": {name: [size and list(astuple(size)) for size in sizes] for name, sizes in self.sizes.items()},
            "outputs": [list(output) for output in self.outputs],
            "notes": list(self.notes),
            **({"kernel_snapshot": self.kernel_snapshot} if self.kernel_snapshot else {}),
            **({"taken": {branch: list(times) for branch, times in self.taken.items()}} if self.taken else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: str = "the data") -> OpGraph:
        """The graph that `to_json` wrote.

        Args:
            data: its result.
            origin: where the data is from, for errors.

        Raises:
            PlanError: the data is of another format or version, broken, or edited.
        """
        check_format(data, FORMAT, VERSION, origin)
        check_schema(data, "graph", origin)
        try:
            with paused_collection():
                graph = _from_json(data)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"{origin} holds a broken graph ({type(error).__name__}: {error}). Save it again.") from error
        if contradiction := next(contradictions(graph), ""):
            raise PlanError(f"{origin} holds a broken graph: {contradiction}. Save it again.")
        if graph.fingerprint != data.get("fingerprint"):
            raise PlanError(
                f"{origin} was changed after it was saved: its graph hashes to {graph.fingerprint[:12]}, "
                f"the file says {str(data.get('fingerprint'))[:12]}. Save it again."
            )
        return graph

    def save(self, path: str | Path) -> None:
        """Writes the graph to a file, as JSON.

        Raises:
            PlanError: the file cannot be written.
        """
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> OpGraph:
        """Reads a graph that `save` wrote.

        Raises:
            PlanError: the file is missing, broken, edited or of another version.
        """
        return cls.from_json(read_json(path), str(path))


_TEXT_FIELDS = frozenset({"body", "role", "requested_device", "planned_by", "planned_why", "location", "resource", "group"})
_OPTIONAL: dict[str, Any] = {f.name: f.default for f in fields(OpNode) if f.name in _TEXT_FIELDS} | {"flags": ()}
"""Default by field of an `OpNode` that is only written where it differs."""


def _from_json(data: Mapping[str, Any]) -> OpGraph:
    signatures = [OpSignature.from_json(row) for row in data["signatures"]]
    tables = [
        ({kind: Kernel(*map(tuple, sides)) for kind, sides in kernels.items()}, dict(refusals))
        for kernels, refusals in data["kernels"]
    ]
    graph: nx.DiGraph = nx.DiGraph()
    for row in data["nodes"]:
        signature = signatures[row["signature"]]
        kernels, refusals = tables[row["kernels"]]
        optional = {key: row.get(key, default) for key, default in _OPTIONAL.items()}
        optional["flags"] = tuple(optional["flags"])
        op_type = row.get("op_type", signature.op_type)
        node = OpNode(row["name"], op_type, signature, row["count"], kernels=kernels, refusals=refusals, **optional)
        graph.add_node(node.name, op=node)
    names = list(graph)
    if len(names) < len(data["nodes"]):
        raise ValueError("two ops have one name")
    for src, dst, tensors, control in data["edges"]:
        graph.add_edge(names[src], names[dst], tensors=tuple(TensorEdge(s, d) for s, d in tensors), control=control)
    return OpGraph(
        name=data["name"],
        graph=graph,
        resources={key: Resource(*row) for key, row in data["resources"].items()},
        group_reasons=dict(data["group_reasons"]),
        process_devices=tuple(data["process_devices"]),
        rounds={key: Rounds(int(value), source) for key, (value, source) in data["rounds"].items()},
        outputs=tuple((name, index) for name, index in data["outputs"]),
        taken={branch: tuple(times) for branch, times in data.get("taken", {}).items()},
        sizes={name: tuple(size and Size.from_json(size) for size in sizes) for name, sizes in data["sizes"].items()},
        notes=tuple(data["notes"]),
        kernel_snapshot=data.get("kernel_snapshot", ""),
    )
