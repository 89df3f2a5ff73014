"""A placed graph folded to few boxes: each box is ops of one scope on one device."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx

from placer.errors import OptionError
from placer.plan.placement import Placement

TRAILING_NUMBER = re.compile(r"(?:(?:_\d+)+|(?<=[a-z])\d+)$")
"""The part of a name that tells siblings apart: the end of "AddN_12", "dense_3_1", "layer7"."""
MIN_SIBLINGS = 3
"""Siblings whose names differ only by a trailing number share a box if there are at least this many."""
MIN_BOXES_FOR_REST = 6
"""With fewer free boxes than this, a scope stays closed if the box for its rest would hold most of its time."""


NO_OUTPUT = -1
"""Stands for an output's index where the edge is a control edge or a predicate."""


@dataclass(frozen=True, slots=True)
class Box:
    """Ops of one scope on one device. Stored as the node attribute "box"."""

    scope: str
    """The common start of the ops' names, or the op's own name for a box of one op; "" for the whole graph. "*" stands for the
    numbers of siblings that share the box; "_*" stands for the different ends of names with one prefix."""
    label: str
    device: str
    ops: int
    """Number of ops."""
    content: str
    """The op type of a box of one op; otherwise the number of ops, and their type if they have the same one."""
    time_ns: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The tensors from one box to another. Stored as the edge attribute "flow"."""

    nbytes: int
    """Bytes per step, each tensor counted once; 0 if there are only control edges and predicates."""
    time_ns: int
    """Time of the copies per step; 0 if nothing crosses."""
    crosses: bool
    """Whether it is between devices. A tensor crosses to the first box that reads it there, and flows on from that box to the
    other boxes on that device."""


@dataclass
class _Part:
    """Ops of one device whose names share their first scopes, apart from the numbers of siblings."""

    scope: tuple[str, ...]
    device: str
    ops: list[str]
    time_ns: int
    prefix: str = ""
    """For a group by prefix, in a scope with too many members: the common start of their names within the scope."""
    rest: bool = False
    """Whether it holds the members of a scope that got no box of their own."""

    @property
    def heaviest_first(self) -> tuple[int, int, tuple[str, ...], str]:
        return (-self.time_ns, -len(self.ops), (*self.scope, self.prefix), self.device)


def fold(placement: Placement, limit: int = 60) -> nx.DiGraph:
    """Folds a placed graph to at most `limit` boxes by scope and device.

    Starts with one box per device and opens the box that takes longest until the limit is reached. Siblings whose names differ
    only by a number share a box: the layers "layer0" to "layer7" may become "layer*/MatMul". If a scope has too many members,
    members with a common prefix share a box, "conv2_*"; without common prefixes, its heaviest members get boxes and the others
    share one. Constants and handles of variables are left out, since they move nothing in a step. The result may have cycles: a
    scope can feed another and be fed by it.

    Args:
        placement: what to fold.
        limit: the most boxes.

    Returns:
        A graph of numbered boxes with the node attribute "box", a `Box`, and the edge attribute "flow", a `Flow`.

    Raises:
        OptionError: the limit is no whole number above 0.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise OptionError(f"boxes={limit!r} is not a whole number above 0.")
    names = [op.name for op in placement.graph if op.role != "constant" and not (op.role == "capture" and op.resource)]
    times = {name: placement.ops[name].time_ns.get(placement.ops[name].device, 0) for name in names}
    by_device: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_device[placement.ops[name].device].append(name)
    devices = [_Part((), device, ops, sum(times[op] for op in ops)) for device, ops in by_device.items()]
    closed: list[_Part] = []
    heap = [(part.heaviest_first, part) for part in devices]
    heapq.heapify(heap)
    while heap:
        _, part = heapq.heappop(heap)
        free = limit - len(closed) - len(heap)
        inner = sorted(_opened(part, times, free), key=lambda p: p.heaviest_first) if len(part.ops) > 1 else []
        rest = inner[max(free - 1, 0) :] if len(inner) > free else []
        rest_ns = sum(p.time_ns for p in rest)
        if not inner or (rest and (part.prefix or free < 2 or (free < MIN_BOXES_FOR_REST and 2 * rest_ns > part.time_ns))):
            closed.append(part)
            continue
        if rest:
            ops = [op for p in rest for op in p.ops]
            closed.append(_Part(part.scope, part.device, ops, rest_ns, rest=True))
            inner = inner[: free - 1]
        for child in inner:
            heapq.heappush(heap, (child.heaviest_first, child))
    return _boxes(placement, closed)


def without_repeats(folded: nx.DiGraph) -> nx.DiGraph:
    """The same boxes without the edges that cross nothing and whose ends a longer path connects too."""
    thinned: nx.DiGraph = folded.copy()
    staying = [(src, dst) for src, dst, flow in folded.edges(data="flow") if not flow.crosses]
    for src, dst in sorted(staying, key=lambda ends: -abs(ends[1] - ends[0])):
        data = thinned.edges[src, dst]
        thinned.remove_edge(src, dst)
        if not nx.has_path(thinned, src, dst):
            thinned.add_edge(src, dst, **data)
    return thinned


def by_prefix(names: Collection[str], limit: int) -> dict[str, list[str]]:
    """Groups names by their first words, "conv2" of "conv2_block1_add".

    Takes the fewest words that give more than one group. Returns no groups if that gives more than `limit`.
    """
    for words in range(1, max(name.count("_") for name in names) + 1):
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            groups["_".join(name.split("_")[:words])].append(name)
        if 1 < len(groups) <= limit:
            return groups
    return {}


def _opened(part: _Part, times: Mapping[str, int], limit: int) -> list[_Part]:
    """A part split by the next scope of its ops' names, with siblings together; [] if no name has a further scope.

    More than `limit` parts are grouped by prefix, if the prefixes are fewer.
    """
    depth = len(part.scope)
    members: dict[str, list[str]] = defaultdict(list)
    for name in part.ops:
        scopes = name.split("/")
        members[scopes[depth] if depth < len(scopes) else ""].append(name)
    if set(members) == {""}:
        return []
    siblings: dict[str, list[str]] = defaultdict(list)
    for scope in members:
        siblings[TRAILING_NUMBER.sub("", scope)].append(scope)
    ops_of: dict[str, list[str]] = {}
    for stem, scopes in siblings.items():
        if len(scopes) >= MIN_SIBLINGS:
            ops_of[f"{stem}*"] = [op for scope in scopes for op in members[scope]]
        else:
            ops_of |= {scope: members[scope] for scope in scopes}
    groups = by_prefix(ops_of, limit) if len(ops_of) > limit else {}
    parts = []
    for prefix, scopes in (groups or {scope: [scope] for scope in ops_of}).items():
        ops = [op for scope in scopes for op in ops_of[scope]]
        further = (scopes[0],) if len(scopes) == 1 else ()
        time_ns = sum(times[op] for op in ops)
        parts.append(_Part((*part.scope, *further), part.device, ops, time_ns, prefix="" if further else prefix))
    return parts


def _boxes(placement: Placement, parts: list[_Part]) -> nx.DiGraph:
    """The graph of boxes, numbered by the first of their ops in execution order."""
    rank = {name: i for i, name in enumerate(placement.ops)}
    parts.sort(key=lambda part: min(rank[name] for name in part.ops))
    folded: nx.DiGraph = nx.DiGraph(name=placement.graph.name)
    box_of: dict[str, int] = {}
    for number, part in enumerate(parts):
        group = f"{part.prefix}_*" if part.prefix else ""
        scope = part.ops[0] if len(part.ops) == 1 else "/".join(filter(None, (*part.scope, group)))
        label = f"rest of {scope or placement.graph.name}" if part.rest else scope or placement.graph.name
        types = {placement.graph.op(name).op_type for name in part.ops}
        content = types.pop() if len(types) == 1 else "ops"
        content = content if len(part.ops) == 1 else f"{len(part.ops)} {content}"
        folded.add_node(number, box=Box(scope, label, part.device, len(part.ops), content, part.time_ns))
        box_of.update(dict.fromkeys(part.ops, number))
    for (src, dst), tensors in _flows(placement, box_of).items():
        crosses = parts[src].device != parts[dst].device
        nbytes, time_ns = (sum(column) for column in zip(*tensors.values(), strict=True))
        folded.add_edge(src, dst, flow=Flow(round(nbytes), round(time_ns), crosses))
    return folded


def _flows(placement: Placement, box_of: Mapping[str, int]) -> dict[tuple[int, int], dict[tuple[str, int], tuple[float, float]]]:
    """By pair of boxes, then by tensor (op and output): bytes per step, and the time of its copies."""
    copies: dict[tuple[str, int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for transfer in placement.transfers:
        if transfer.src != transfer.dst:
            total = copies[transfer.producer, transfer.output, transfer.dst]
            total[0] += transfer.nbytes * transfer.count
            total[1] += transfer.time_ns
    flows: dict[tuple[int, int], dict[tuple[str, int], tuple[float, float]]] = defaultdict(dict)
    first_box: dict[tuple[str, int, str], int] = {}
    for reader in placement.ops:  # in execution order, so that the first reader on a device gets the crossing
        if reader not in box_of:
            continue
        device, reading = placement.ops[reader].device, placement.graph.op(reader)
        for name, _, data in placement.graph.graph.in_edges(reader, data=True):
            if name not in box_of:
                continue
            making = placement.graph.op(name)
            for output in {t.src_index for t in data["tensors"] if t.dst_index >= 0} or {NO_OUTPUT}:
                nbytes = 0.0
                if output != NO_OUTPUT:
                    nbytes = making.signature.outputs[output].nbytes * min(making.count, reading.count)
                src = box_of[name]
                if placement.ops[name].device != device:
                    first = first_box.setdefault((name, output, device), box_of[reader])
                    copied, time_ns = copies.get((name, output, device), (0.0, 0.0))
                    flows[src, first][name, output] = (copied, time_ns)
                    src = first
                if src != box_of[reader]:
                    flow = flows[src, box_of[reader]]
                    flow[name, output] = max((nbytes, 0.0), flow.get((name, output), (0.0, 0.0)))
    return flows
