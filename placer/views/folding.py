"""A placed graph folded to as many boxes as a person can look at."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import networkx as nx

from placer.errors import OptionError
from placer.placement import Placement


@dataclass(frozen=True, slots=True)
class Box:
    """Ops of one scope on one device. Stored as the node attribute "box"."""

    scope: str
    """What their names begin with; an op's own name where the box holds one op; "" for the whole graph."""
    label: str
    device: str
    ops: int
    what: str
    """The op's type, or how many ops there are."""
    time_ns: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What goes from one box to another. Stored as the edge attribute "flow"."""

    nbytes: int
    """Per step, each tensor once; 0 for control edges and predicates alone."""
    crosses: bool
    """Between devices."""


@dataclass
class _Part:
    """Ops of one device whose names share their first `depth` scopes."""

    scope: tuple[str, ...]
    device: str
    ops: list[str] = field(default_factory=list)
    time_ns: int = 0
    rest: bool = False
    """Holds what was left over when its heaviest siblings got boxes of their own."""

    @property
    def heaviest_first(self) -> tuple[int, int, tuple[str, ...], str]:
        return (-self.time_ns, -len(self.ops), self.scope, self.device)


def fold(placement: Placement, limit: int = 60) -> nx.DiGraph:
    """Boxes of ops by scope and device, at most `limit` of them, and what flows between them.

    Starts with one box per device and opens the one that takes longest until the limit is reached; where a scope holds too
    many to open, its heaviest members get boxes and the rest share one. Constants and variables' handles are left out: nothing
    of theirs moves in a step. The result may have cycles, for a scope can feed another and be fed by it.

    Raises OptionError where the limit is no whole number above 0.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise OptionError(f"boxes={limit!r} is not a whole number above 0.")
    names = [op.name for op in placement.graph if op.role != "constant" and not (op.role == "capture" and op.resource)]
    times = {name: placement.ops[name].time_ns.get(placement.ops[name].device, 0) for name in names}
    closed: list[_Part] = []
    heap = [(part.heaviest_first, part) for part in _split(placement, names, times, 0)]
    heapq.heapify(heap)
    while heap:
        _, part = heapq.heappop(heap)
        room = limit - len(closed) - len(heap)
        inner = sorted(_split(placement, part.ops, times, len(part.scope) + 1), key=lambda p: p.heaviest_first)
        if len(part.ops) == 1 or room < 2:
            closed.append(part)
            continue
        if len(inner) > room:
            left = _Part(part.scope, part.device, rest=True)
            for small in inner[room - 1 :]:
                left.ops += small.ops
                left.time_ns += small.time_ns
            inner = inner[: room - 1]
            closed.append(left)
        for child in inner:
            heapq.heappush(heap, (child.heaviest_first, child))
    return _boxes(placement, closed)


def _split(placement: Placement, names: list[str], times: dict[str, int], depth: int) -> list[_Part]:
    parts: dict[tuple[tuple[str, ...], str], _Part] = {}
    for name in names:
        key = (tuple(name.split("/")[:depth]), placement.ops[name].device)
        part = parts.setdefault(key, _Part(*key))
        part.ops.append(name)
        part.time_ns += times[name]
    return list(parts.values())


def _boxes(placement: Placement, parts: list[_Part]) -> nx.DiGraph:
    rank = {name: i for i, name in enumerate(placement.ops)}
    parts.sort(key=lambda part: min(rank[name] for name in part.ops))
    folded: nx.DiGraph = nx.DiGraph(name=placement.graph.name)
    of: dict[str, int] = {}
    for number, part in enumerate(parts):
        scope = part.ops[0] if len(part.ops) == 1 else "/".join(part.scope)
        label = f"rest of {scope or placement.graph.name}" if part.rest else scope or placement.graph.name
        types = placement.graph.op(scope).op_type if len(part.ops) == 1 else f"{len(part.ops)} ops"
        folded.add_node(number, box=Box(scope, label, part.device, len(part.ops), types, part.time_ns))
        of.update(dict.fromkeys(part.ops, number))
    flows: dict[tuple[int, int], dict[tuple[str, int], float]] = {}
    for src, dst, data in placement.graph.graph.edges(data=True):
        if src not in of or dst not in of or of[src] == of[dst]:
            continue
        flow = flows.setdefault((of[src], of[dst]), {})
        op = placement.graph.op(src)
        runs = min(op.count, placement.graph.op(dst).count)
        for output in {t.src_index: None for t in data["tensors"] if t.dst_index >= 0}:
            nbytes = op.signature.outputs[output].nbytes * runs
            flow[src, output] = max(nbytes, flow.get((src, output), 0.0))
    for (source, target), tensors in flows.items():
        crosses = parts[source].device != parts[target].device
        folded.add_edge(source, target, flow=Flow(round(sum(tensors.values())), crosses))
    return folded
