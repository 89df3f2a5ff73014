"""OpGraph: the ops of a function and of every body it calls, as one networkx DAG.

Nothing here needs TensorFlow: a saved graph can be solved, compared and drawn where it is not installed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import networkx as nx

from cost_models.base import OpSignature
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError, PlanError
from placer.graph.sizes import Rounds, Size

Role: TypeAlias = Literal["op", "argument", "capture", "constant", "loop", "branch"]
"""What a node stands for. "loop" and "branch" nodes are the values and predicates a While, If or Case passes around:
they have no op of their own in the traced graph but become Enter, Merge, Switch and Exit when TensorFlow lowers it."""

FORMAT = "placer.opgraph"
VERSION = 2


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can run an op on one device type: which inputs and outputs it keeps in host memory (flat indices)."""

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
    """Path of the innermost loop or branch body that holds it; "" for the root."""
    role: Role = "op"
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    """By device type ("CPU", "GPU")."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """By device type without a kernel: the reason, in words."""
    requested_device: str = ""
    """The device string the trace carries ("" where the user asked for nothing); may be partial."""
    planned_by: str = ""
    """The placed function whose plan asks for that device; "" where a tf.device scope does."""
    planned_why: str = ""
    """What decided it in that plan, in words."""
    location: str = ""
    """For arguments and captures: the device the passed tensor sits on in this process; "" unknown."""
    resource: str = ""
    """Key into `OpGraph.resources` for a capture or op that makes a handle."""
    group: str = ""
    """Nodes of one non-empty group must share a device; see `group_reasons`."""
    flags: tuple[str, ...] = ()
    """"stateful", "random" (stateful randomness), "unit" (a body kept whole); "bounds", "division", "power" (whether an index out
    of range, a divisor of zero, a negative exponent raises depends on the device)."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A variable, table or other state behind a handle."""

    name: str
    kind: str
    device: str
    """Where it lives in this process."""
    nbytes: int
    stays: str = ""
    """Why it cannot be moved, in words; "" for a variable that can."""
    waits: bool = False
    """Whether it is a variable without a value: it takes no memory before it gets one."""


@dataclass(frozen=True, slots=True)
class TensorEdge:
    """One tensor on an edge: output `src_index` of the source is input `dst_index` of the target.

    A negative `dst_index` is a predicate that a loop or branch node hands to an op of its body: always read in host memory.
    """

    src_index: int
    dst_index: int


@dataclass(frozen=True)
class OpGraph:
    """A function's ops as a DAG.

    ``graph`` is a `networkx.DiGraph` whose nodes are op names in a topological (execution) order with attribute "op"
    (`OpNode`), and whose edges carry "tensors" (tuple of `TensorEdge`, empty for a pure control edge) and "control" (bool).
    """

    name: str
    graph: nx.DiGraph
    resources: Mapping[str, Resource]
    group_reasons: Mapping[str, str]
    """Why the nodes of a group belong together, in words."""
    process_devices: tuple[str, ...]
    """Devices TensorFlow saw when the graph was read ("CPU:0", "GPU:0")."""
    rounds: Mapping[str, Rounds]
    """By loop: how often it runs its body each time."""
    outputs: tuple[tuple[str, int], ...]
    """Node and output index of each result."""
    sizes: Mapping[str, tuple[Size | None, ...]] = field(default_factory=dict)
    """By node with an output whose shape is not exact: what is known of each output, None for an exact one."""
    notes: tuple[str, ...] = ()

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
        """The op of exactly this name; KeyError where there is none (see `find` for a forgiving look-up)."""
        node: OpNode = self.graph.nodes[name]["op"]
        return node

    def find(self, name: str) -> OpNode:
        """The op called `name`; or the one that holds the variable called so; or the only one whose name ends with "/name" or
        matches it as a glob, or of that type.

        Raises OptionError listing the candidates, or the names nearest to it.
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
            f"no op or variable of {self.name!r} is called {name!r}{self.near(name)} "
            f"list(placement.ops) has its {len(self)} names."
        )

    def near(self, name: str, *, pins: bool = False) -> str:
        """The end of an error's sentence: ops and variables, and for pins op types and scopes, that may have been meant."""
        known = [*self.resources, *self.graph]
        if pins:
            scopes = (f"{n[: slash.start()]}/*" for n in self.graph for slash in re.finditer("/", n))
            known = [*(op.op_type for op in self if "/" not in name), *scopes, *known]
        return did_you_mean(name, known)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over names, signatures, edges and results.

        Two traces of one function agree on it in different processes and on different machines: where things live, what
        kernels there are and what was asked for are left out.
        """
        digest = hashlib.sha256()
        signatures: dict[int, str] = {}
        for node in self:
            text = signatures.get(id(node.signature)) or signatures.setdefault(id(node.signature), repr(node.signature))
            digest.update(f"{node.name}\0{node.role}\0{text}\n".encode())
        for src, dst, data in self.graph.edges(data=True):
            tensors = ",".join([f"{t.src_index}:{t.dst_index}" for t in data["tensors"]])
            digest.update(f"{src}\0{dst}\0{tensors}\0{data['control']:d}\n".encode())
        digest.update(repr(self.outputs).encode())
        return digest.hexdigest()

    def difference(self, other: OpGraph) -> str:
        """In words, the first thing in which a graph of another fingerprint differs, "there" being this one."""
        for op in other:
            if op.name not in self.graph:
                return f"no op {op.name!r} is there"
            mine = self.op(op.name)
            if str(mine.signature) != str(op.signature):
                return f"{op.name!r} is {mine.signature} there, {op.signature} here"
            if (mine.signature, mine.role) != (op.signature, op.role):
                return (
                    f"{op.name!r}, {mine.role} {dict(mine.signature.attrs)} there, is {op.role} {dict(op.signature.attrs)} here"
                )
        missing = next((name for name in self.graph if name not in other.graph), "")
        return f"no op {missing!r} is here" if missing else "edges or results differ"

    def to_json(self) -> dict[str, Any]:
        """The graph as plain JSON types; equal signatures and kernel tables are written once."""
        signatures: dict[OpSignature, int] = {}
        tables: dict[str, int] = {}
        written: dict[tuple[int, int], int] = {}
        number = {name: i for i, name in enumerate(self.graph)}
        nodes = []
        for node in self:
            identity = (id(node.kernels), id(node.refusals))
            if identity not in written:
                kept = {kind: [kernel.host_inputs, kernel.host_outputs] for kind, kernel in node.kernels.items()}
                written[identity] = tables.setdefault(json.dumps([kept, dict(node.refusals)]), len(tables))
            row: dict[str, Any] = {
                "name": node.name,
                "signature": signatures.setdefault(node.signature, len(signatures)),
                "kernels": written[identity],
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
            "sizes": {name: [size and [size.source, size.bound] for size in sizes] for name, sizes in self.sizes.items()},
            "outputs": [list(output) for output in self.outputs],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: str = "the data") -> OpGraph:
        """What `to_json` wrote. Raises PlanError naming `origin` where it is something else, broken, or edited."""
        check_format(data, FORMAT, VERSION, origin)
        try:
            graph = _from_json(data)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"{origin} holds a broken graph ({type(error).__name__}: {error}). Save it again.") from error
        if graph.fingerprint != data.get("fingerprint"):
            raise PlanError(
                f"{origin} was changed after it was saved: its graph hashes to {graph.fingerprint[:12]}, "
                f"the file says {str(data.get('fingerprint'))[:12]}. Save it again."
            )
        return graph

    def save(self, path: str | Path) -> None:
        """Writes the graph as JSON. Raises PlanError where that cannot be."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> OpGraph:
        """Reads a graph that `save` wrote. Raises PlanError where the file is missing, broken, or of another version."""
        return cls.from_json(read_json(path), str(path))


def write_json(path: str | Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON object to a file; PlanError saying why where that cannot be."""
    text = json.dumps(data, separators=(",", ":")) + "\n"
    try:
        Path(path).write_text(text)
    except (OSError, TypeError, ValueError) as error:
        raise PlanError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from error


def read_json(path: str | Path) -> dict[str, Any]:
    """A JSON object from a file; PlanError saying what is wrong with the file where there is none."""
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, TypeError) as error:
        raise PlanError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except ValueError as error:
        raise PlanError(f"{path} is not JSON ({error}). Was it written whole?") from error
    if not isinstance(data, dict):
        raise PlanError(f"{path} holds a JSON {type(data).__name__}, not an object.")
    return data


def check_format(data: Mapping[str, Any], wanted: str, version: int, origin: str) -> None:
    """Raises PlanError unless `data` says it is of this format and version."""
    if not isinstance(data, Mapping):
        raise PlanError(f"{origin} is no {wanted}: that is a mapping, not a {type(data).__name__}.")
    if data.get("format") != wanted:
        raise PlanError(f"{origin} is not a {wanted} file: its format is {data.get('format')!r}.")
    if data.get("version") != version:
        raise PlanError(
            f"{origin} has version {data.get('version')!r} of {wanted}; this placer reads version {version}. Make it again."
        )


_TEXTS = frozenset({"body", "role", "requested_device", "planned_by", "planned_why", "location", "resource", "group"})
_OPTIONAL: dict[str, Any] = {f.name: f.default for f in fields(OpNode) if f.name in _TEXTS} | {"flags": ()}


def _from_json(data: Mapping[str, Any]) -> OpGraph:
    signatures = [OpSignature.from_json(row) for row in data["signatures"]]
    tables = [
        (
            {kind: Kernel(tuple(inputs), tuple(outputs)) for kind, (inputs, outputs) in kernels.items()},
            dict(refusals),
        )
        for kernels, refusals in data["kernels"]
    ]
    graph: nx.DiGraph = nx.DiGraph()
    names = []
    for row in data["nodes"]:
        signature = signatures[row["signature"]]
        kernels, refusals = tables[row["kernels"]]
        optional = {key: row.get(key, default) for key, default in _OPTIONAL.items()}
        optional["flags"] = tuple(optional["flags"])
        op_type = row.get("op_type", signature.op_type)
        node = OpNode(row["name"], op_type, signature, row["count"], kernels=kernels, refusals=refusals, **optional)
        graph.add_node(node.name, op=node)
        names.append(node.name)
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
        sizes={name: tuple(map(_size, sizes)) for name, sizes in data.get("sizes", {}).items()},
        notes=tuple(data["notes"]),
    )


def _size(row: Any) -> Size | None:
    return None if row is None else Size(row[0], None if row[1] is None else tuple(row[1]))
