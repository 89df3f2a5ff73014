"""A placed graph folded to as many boxes as a person can look at."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx

from placer.errors import OptionError
from placer.plan.placement import Placement

NUMBER = re.compile(r"(?:(?:_\d+)+|(?<=[a-z])\d+)$")
"""What tells siblings of like names apart: the end of "AddN_12", "dense_3_1", "layer7"."""
ALIKE = 3
"""So many siblings of like names share a box."""
ENOUGH = 6
"""For fewer boxes a scope is not opened if most of it would be the rest."""


WAITS = -1
"""In place of an output: a control edge or a predicate."""


@dataclass(frozen=True, slots=True)
class Box:
    """Ops of one scope on one device. Stored as the node attribute "box"."""

    scope: str
    """What their names begin with, "*" for the numbers of siblings that share the box, "_*" for all that follows a beginning; an
    op's own name where the box holds one op; "" for the whole graph."""
    label: str
    device: str
    ops: int
    what: str
    """The op's type; how many ops there are, and of what type if all are of one."""
    time_ns: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What goes from one box to another. Stored as the edge attribute "flow"."""

    nbytes: int
    """Per step, each tensor once; 0 for control edges and predicates alone."""
    time_ns: int
    """What the copies take per step; 0 where nothing crosses."""
    crosses: bool
    """Between devices. A tensor crosses to the box that takes it first; to others on that device it goes on from there."""


@dataclass
class _Part:
    """Ops of one device whose names share their first scopes, but for the numbers of siblings."""

    scope: tuple[str, ...]
    device: str
    ops: list[str]
    time_ns: int
    begins: str = ""
    """Where a scope holds too many to show: what the names that share the box begin with, within that scope."""
    rest: bool = False
    """Holds what was left over when its heaviest siblings got boxes of their own."""

    @property
    def heaviest_first(self) -> tuple[int, int, tuple[str, ...], str]:
        return (-self.time_ns, -len(self.ops), (*self.scope, self.begins), self.device)


def fold(placement: Placement, limit: int = 60) -> nx.DiGraph:
    """Boxes of ops by scope and device, at most `limit` of them, and what flows between them.

    Starts with one box per device and opens the one that takes longest until the limit is reached. Siblings of like names are
    one: of the layers "layer0" to "layer7" it may show "layer*/MatMul". Where a scope holds too many to open, those whose names
    begin alike share a box, "conv2_*"; where that is none, its heaviest members get boxes and the rest share one. Constants and
    variables' handles are left out: nothing of theirs moves in a step.
    The result may have cycles, for a scope can feed another and be fed by it.

    Raises OptionError where the limit is no whole number above 0.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise OptionError(f"boxes={limit!r} is not a whole number above 0.")
    names = [op.name for op in placement.graph if op.role != "constant" and not (op.role == "capture" and op.resource)]
    times = {name: placement.ops[name].time_ns.get(placement.ops[name].device, 0) for name in names}
    by_device: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_device[placement.ops[name].device].append(name)
    whole = [_Part((), device, ops, sum(times[op] for op in ops)) for device, ops in by_device.items()]
    closed: list[_Part] = []
    heap = [(part.heaviest_first, part) for part in whole]
    heapq.heapify(heap)
    while heap:
        _, part = heapq.heappop(heap)
        room = limit - len(closed) - len(heap)
        inner = sorted(_opened(part, times, room), key=lambda p: p.heaviest_first) if len(part.ops) > 1 else []
        small = inner[max(room - 1, 0) :] if len(inner) > room else []
        small_ns = sum(p.time_ns for p in small)
        if not inner or (small and (part.begins or room < 2 or (room < ENOUGH and 2 * small_ns > part.time_ns))):
            closed.append(part)
            continue
        if small:
            ops = [op for p in small for op in p.ops]
            closed.append(_Part(part.scope, part.device, ops, small_ns, rest=True))
            inner = inner[: room - 1]
        for child in inner:
            heapq.heappush(heap, (child.heaviest_first, child))
    return _boxes(placement, closed)


def told(folded: nx.DiGraph) -> nx.DiGraph:
    """The same boxes without arrows that cross nothing and only repeat a longer way: what reached another still does."""
    kept: nx.DiGraph = folded.copy()
    staying = [(source, target) for source, target, flow in folded.edges(data="flow") if not flow.crosses]
    for source, target in sorted(staying, key=lambda ends: -abs(ends[1] - ends[0])):
        data = kept.edges[source, target]
        kept.remove_edge(source, target)
        if not nx.has_path(kept, source, target):
            kept.add_edge(source, target, **data)
    return kept


def beginnings(steps: Collection[str], most: int) -> dict[str, list[str]]:
    """Names by first words, "conv2" of "conv2_block1_add": by as few as give several groups, at most `most`; else no group."""
    for words in range(1, max(step.count("_") for step in steps) + 1):
        groups: dict[str, list[str]] = defaultdict(list)
        for step in steps:
            groups["_".join(step.split("_")[:words])].append(step)
        if 1 < len(groups) <= most:
            return groups
    return {}


def _opened(part: _Part, times: dict[str, int], most: int) -> list[_Part]:
    """A part by the next scope of its ops' names, siblings of like names together; nothing where no name has one.

    Where that is more than `most`, by how the names begin, if that is fewer.
    """
    depth = len(part.scope)
    members: dict[str, list[str]] = defaultdict(list)
    for name in part.ops:
        scopes = name.split("/")
        members[scopes[depth] if depth < len(scopes) else ""].append(name)
    if set(members) == {""}:
        return []
    alike: dict[str, list[str]] = defaultdict(list)
    for scope in members:
        alike[NUMBER.sub("", scope)].append(scope)
    together: dict[str, list[str]] = {}
    for stem, scopes in alike.items():
        if len(scopes) >= ALIKE:
            together[f"{stem}*"] = [op for scope in scopes for op in members[scope]]
        else:
            together |= {scope: members[scope] for scope in scopes}
    groups = beginnings(together, most) if len(together) > most else {}
    parts = []
    for begins, steps in (groups or {step: [step] for step in together}).items():
        ops = [op for step in steps for op in together[step]]
        step = (steps[0],) if len(steps) == 1 else ()
        time_ns = sum(times[op] for op in ops)
        parts.append(_Part((*part.scope, *step), part.device, ops, time_ns, begins="" if step else begins))
    return parts


def _boxes(placement: Placement, parts: list[_Part]) -> nx.DiGraph:
    rank = {name: i for i, name in enumerate(placement.ops)}
    parts.sort(key=lambda part: min(rank[name] for name in part.ops))
    folded: nx.DiGraph = nx.DiGraph(name=placement.graph.name)
    of: dict[str, int] = {}
    for number, part in enumerate(parts):
        group = f"{part.begins}_*" if part.begins else ""
        scope = part.ops[0] if len(part.ops) == 1 else "/".join(filter(None, (*part.scope, group)))
        label = f"rest of {scope or placement.graph.name}" if part.rest else scope or placement.graph.name
        types = {placement.graph.op(name).op_type for name in part.ops}
        what = types.pop() if len(types) == 1 else "ops"
        what = what if len(part.ops) == 1 else f"{len(part.ops)} {what}"
        folded.add_node(number, box=Box(scope, label, part.device, len(part.ops), what, part.time_ns))
        of.update(dict.fromkeys(part.ops, number))
    for (source, target), tensors in _flows(placement, of).items():
        crosses = parts[source].device != parts[target].device
        nbytes, time_ns = (sum(column) for column in zip(*tensors.values(), strict=True))
        folded.add_edge(source, target, flow=Flow(round(nbytes), round(time_ns), crosses))
    return folded


def _flows(placement: Placement, of: Mapping[str, int]) -> dict[tuple[int, int], dict[tuple[str, int], tuple[float, float]]]:
    """By pair of boxes, of each tensor (op and output) that goes from one to the other: bytes per step, and its copies' time."""
    moved: dict[tuple[str, int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for transfer in placement.transfers:
        if transfer.src != transfer.dst:
            copies = moved[transfer.producer, transfer.output, transfer.dst]
            copies[0] += transfer.nbytes * transfer.count
            copies[1] += transfer.time_ns
    flows: dict[tuple[int, int], dict[tuple[str, int], tuple[float, float]]] = defaultdict(dict)
    first: dict[tuple[str, int, str], int] = {}
    for reader in placement.ops:  # in execution order, so that who takes a copy first comes first
        if reader not in of:
            continue
        device, there = placement.ops[reader].device, placement.graph.op(reader)
        for name, _, data in placement.graph.graph.in_edges(reader, data=True):
            if name not in of:
                continue
            made = placement.graph.op(name)
            for output in {t.src_index for t in data["tensors"] if t.dst_index >= 0} or {WAITS}:
                nbytes = made.signature.outputs[output].nbytes * min(made.count, there.count) if output != WAITS else 0.0
                source = of[name]
                if placement.ops[name].device != device:
                    taker = first.setdefault((name, output, device), of[reader])
                    copied, time_ns = moved.get((name, output, device), (0.0, 0.0))
                    flows[source, taker][name, output] = (copied, time_ns)
                    source = taker
                if source != of[reader]:
                    flow = flows[source, of[reader]]
                    flow[name, output] = max((nbytes, 0.0), flow.get((name, output), (0.0, 0.0)))
    return flows
