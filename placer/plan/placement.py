"""Placement: the frozen result of planning. What was decided, why, what it costs, how far from the optimum it can be."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import networkx as nx

from placer.common.garbage_collection import paused_collection
from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError, PlanError
from placer.graph.opgraph import OpGraph, OpNode, check_format, read_json, write_json
from placer.problem.reasons import Reason
from placer.solvers.base import Objective, Status
from placer.views.registry import Drawn, view, write

FORMAT = "placer.plan"
VERSION = 3
MOVES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class OpPlan:
    """One op's place and price. Times count every run of one step."""

    device: str
    unit: int
    """Index into `Placement.units`: the ops that move together with it."""
    time_ns: Mapping[str, int]
    """By device it has a kernel for."""
    cost_sources: Mapping[str, str]
    """By device it has a kernel for: where that price comes from; none where there is nothing to price."""
    start_ns: int
    """When it starts to compute, as predicted, from the start of the step."""
    end_ns: int
    """All runs of one step are taken as one: a loop's body lasts as long as the loop."""
    streamed: bool
    """Computes in its device's stream, one op after the other; else on a thread of the host."""
    default: str
    """The device TensorFlow's own placement has it on; "" where that placement is not to be had."""
    cold_ns: Mapping[str, int] = field(default_factory=dict)
    """By device, where that is any: what of its time it takes as the first op of its type in a step."""

    @property
    def cost_source(self) -> str:
        """Where the price of the device it is on comes from; "" where there is nothing to price."""
        return self.cost_sources.get(self.device, "")


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """Ops that share a device, and what a move of them alone would mean."""

    ops: int
    """How many."""
    reasons: tuple[Reason, ...]
    """What narrowed the devices it may use."""
    time_ns: Mapping[str, int]
    """By device it may use: what its ops take in a step."""
    transfer_ns: Mapping[str, int]
    """By device it may use: what the transfers of every tensor it makes or takes need, all else staying where it is."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One tensor's copies to one further place in one step."""

    tensor: str
    """ "producer:output"; "^producer" for a control edge."""
    src: str
    dst: str
    dst_memory: Literal["device", "host"]
    """"host": memory of the host that a kernel of `dst` reads."""
    nbytes: int
    """Of one copy."""
    count: float
    time_ns: int
    """All copies of one step."""
    start_ns: int
    """When the first is under way, as predicted, from the start of the step."""
    end_ns: int
    """When the last has arrived."""

    @property
    def producer(self) -> str:
        """The op that makes the tensor, or whose end the control edge tells."""
        return self.tensor[1:] if self.tensor.startswith("^") else self.tensor.rpartition(":")[0]

    @property
    def output(self) -> int:
        """Which of its outputs; -1 for a control edge."""
        return -1 if self.tensor.startswith("^") else int(self.tensor.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """What one device does in a step."""

    ops: int
    time_ns: int
    peak_bytes: int
    persistent_bytes: int
    limit_bytes: int
    """-1 where there is none."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Another placement of the same problem, priced by the same model."""

    feasible: bool
    total_cost_ns: int
    step_time_ns: int
    note: str
    """Why it is infeasible, what could not be as its name says, and what pins forbid; "" for none of these."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes from one placement to another; pairs are of the one and of the other."""

    moved: Mapping[str, tuple[str, str]]
    """By op that both have: its device in the one and in the other. What takes longest comes first."""
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]
    total_cost_ns: tuple[int, int]
    step_time_ns: tuple[int, int]
    transfers: tuple[int, int]
    """How many."""
    copied_bytes: tuple[int, int]
    """Per step."""
    transfer_ns: tuple[int, int]
    """Per step, as if no two overlapped."""
    peak_bytes: Mapping[str, tuple[int, int]]
    """By device that either has; 0 where it is not."""

    def __str__(self) -> str:
        figures: dict[str, tuple[tuple[int, int], Callable[[int], str]]] = {
            "step time": (self.step_time_ns, format_ns),
            "total cost": (self.total_cost_ns, format_ns),
            "transfers": (self.transfers, str),
            "copied per step": (self.copied_bytes, format_bytes),
            "transfer time": (self.transfer_ns, format_ns),
            **{f"peak memory {device}": (pair, format_bytes) for device, pair in self.peak_bytes.items()},
        }
        rows = [[name, show(left), show(right), _change(left, right)] for name, ((left, right), show) in figures.items()]
        moved, left, right = len(self.moved), len(self.only_left), len(self.only_right)
        moves, are = "op moves" if moved == 1 else "ops move", "is" if left == 1 else "are"
        lines = [
            f"{moved} {moves}, {left} {are} only in the first, {right} only in the second",
            "",
            table(["", "first", "second", "change"], rows),
        ]
        shown = list(self.moved.items())[:MOVES_SHOWN]
        if shown:
            lines += ["", table(["from", "to", "op"], [[left, right, name] for name, (left, right) in shown], ["to", "op"])]
        return "\n".join(lines + ([f"… and {len(self.moved) - MOVES_SHOWN} more"] if len(self.moved) > MOVES_SHOWN else []))


def _change(left: int, right: int) -> str:
    if not left or abs(right - left) < 0.0005 * left:
        return "" if left or not right else "new"
    return f"{right / left - 1:+.1%}" if right < 10 * left else f"{right / left:,.0f} times"


@dataclass(frozen=True)
class Placement:
    """A solved placement of one graph. See `placer.solve`. Equal to another where the graph and every figure are."""

    graph: OpGraph
    machine: str
    devices: tuple[str, ...]
    ops: Mapping[str, OpPlan]
    """By op name, in execution order."""
    units: tuple[UnitPlan, ...]
    transfers: tuple[Transfer, ...]
    """Those that take longest first."""
    totals: Mapping[str, DeviceTotals]
    memory: Mapping[str, tuple[int, ...]]
    """By device: the bytes it holds while each op runs, one after the other as TensorFlow's executor comes to them."""
    baselines: Mapping[str, Baseline]
    """"tf_default", "all_cpu", "all_gpu"."""
    objective: Objective
    status: Status
    objective_ns: int
    lower_bound_ns: int
    total_cost_ns: int
    step_time_ns: int
    solver: str
    solver_seconds: float
    stop_reason: str
    notes: tuple[str, ...]
    """Pins relaxed, device scopes overridden, ops flagged."""
    options: Mapping[str, Any]
    """What it was planned with, as plain JSON types."""
    assigned: Mapping[str, str] | None = None
    """Of a placement that the user gave to `placer.simulate`: by op that was named, its device. None where a solver chose."""

    # -- asking ----------------------------------------------------------------------------------------------------

    @property
    def gap(self) -> float:
        """(objective - bound) / objective: how far from the optimum it can be; 0 is proved optimal, 1 unknown."""
        return 0.0 if self.objective_ns <= 0 else max(0.0, (self.objective_ns - self.lower_bound_ns) / self.objective_ns)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the graph it places."""
        return self.graph.fingerprint

    @property
    def copied_bytes(self) -> int:
        """What all transfers of a step move."""
        return round(sum(t.nbytes * t.count for t in self.transfers))

    @property
    def transfer_ns(self) -> int:
        """What all transfers of a step take, as if no two overlapped."""
        return sum(t.time_ns for t in self.transfers)

    def device_of(self, name: str) -> str:
        """The device of an op, found as `OpGraph.find` does."""
        return self.ops[self.graph.find(name).name].device

    def why(self, name: str) -> Reason:
        """What decided the device of an op, found as `OpGraph.find` does."""
        op = self.graph.find(name)
        plan = self.ops[op.name]
        unit = self.units[plan.unit]
        others = [device for device in unit.time_ns if device != plan.device]
        if not others:
            if not unit.reasons:
                return Reason("kernel", op.name, f"{plan.device} is the only device")
            reason = unit.reasons[-1]
            together = self.graph.group_reasons.get(op.group) or "they share a device"
            text = reason.text if reason.op == op.name else f"it goes with {reason.op!r} ({together}): {reason.text}"
            return Reason(reason.kind, reason.op, text)
        other = min(others, key=lambda device: unit.time_ns[device] + unit.transfer_ns[device])
        here, there = unit.time_ns[plan.device], unit.time_ns[other]
        moves = unit.transfer_ns[other] - unit.transfer_ns[plan.device]
        prices = f"{format_ns(here)} here, {format_ns(there)} on {other}"
        prices += f", for the {unit.ops} ops that move together" if unit.ops > 1 else ""
        if self.assigned is not None:
            return self._assigned(op, other, there - here, moves, prices)
        if there - here + moves < 0:
            saved = format_ns(here - there - moves)
            text = f"for the plan as a whole ({self.objective}): moving it alone to {other} would save {saved} of total cost"
            return Reason("whole", op.name, f"{text} ({prices})")
        if there - here + moves == 0:
            return Reason("indifferent", op.name, f"as good on {other} ({prices}, no difference in transfers)")
        if there - here >= max(moves, 1):
            change = f"; a move would also add {format_ns(moves)} of transfers" if moves > 0 else ""
            change = change or (f", though a move would save {format_ns(-moves)} of transfers" if moves < 0 else "")
            return Reason("cost", op.name, f"cheaper by {format_ns(there - here)}: {prices}{change}")
        text = f"moving it alone to {other} would add {format_ns(moves)} of transfers ({prices})"
        return Reason("neighbours", op.name, text)

    def _assigned(self, op: OpNode, other: str, more_ns: int, transfers_ns: int, prices: str) -> Reason:
        """The user's choice, and what moving the op to `other` alone would change."""
        plan = self.ops[op.name]
        named = op.name if op.name in (self.assigned or {}) else self._assigned_in.get(plan.unit, "")
        text = "you named no device for it, so it is where TensorFlow would have it"
        if named:
            text = f"you have it on {plan.device}"
            together = self.graph.group_reasons.get(op.group) or "they share a device"
            text = text if named == op.name else f"it goes with {named!r} ({together}), which you have on {plan.device}"
        change_ns = more_ns + transfers_ns
        change = f"{'add' if change_ns > 0 else 'save'} {format_ns(abs(change_ns))} of" if change_ns else "not change"
        copies = f"{format_ns(abs(transfers_ns))} {'more' if transfers_ns > 0 else 'less'}" if transfers_ns else "no difference"
        text += f"; moving it alone to {other} would {change} total cost ({prices}, {copies} in transfers)"
        return Reason("assigned", named or op.name, text)

    @cached_property
    def _assigned_in(self) -> Mapping[int, str]:
        """By unit, an op of it that the user named."""
        return {self.ops[name].unit: name for name in self.assigned or {}}

    def records(self) -> list[dict[str, Any]]:
        """One row per op, in execution order, as plain types: ready for `pandas.DataFrame`. The columns are in docs/views.md."""
        rows = []
        crossing = {op for src, dst in self.graph.graph.edges if self._crosses(src, dst) for op in (src, dst)}
        for op in self.graph:
            plan = self.ops[op.name]
            reason = self.why(op.name)
            rows.append(
                {
                    "name": op.name,
                    "op_type": op.op_type,
                    "role": op.role,
                    "body": op.body,
                    "count": op.count,
                    "device": plan.device,
                    "default_device": plan.default,
                    "unit": plan.unit,
                    "time_ns": plan.time_ns.get(plan.device, 0),
                    "cost_source": plan.cost_source,
                    "start_ns": plan.start_ns,
                    "end_ns": plan.end_ns,
                    "output_bytes": sum(spec.nbytes for spec in op.signature.outputs),
                    "outputs": ", ".join(map(str, op.signature.outputs)),
                    "sent_bytes": round(sum(t.nbytes * t.count for t in self.transfers_of.get(op.name, ()) if t.src != t.dst)),
                    "crosses": op.name in crossing,
                    "flags": ", ".join(op.flags),
                    "reason_kind": reason.kind,
                    "reason": reason.text,
                }
            )
        return rows

    def to_networkx(self) -> nx.DiGraph:
        """The placed DAG. Node attributes are the columns of `records`; edges carry "nbytes", "crosses" and "control".

        All values are strings, numbers or booleans, so that any networkx writer takes it.
        """
        placed: nx.DiGraph = nx.DiGraph(name=self.graph.name, machine=self.machine, objective=self.objective)
        for row in self.records():
            placed.add_node(row["name"], **{key: value for key, value in row.items() if key != "name"})
        for src, dst, data in self.graph.graph.edges(data=True):
            sizes = {t.src_index: self.graph.op(src).signature.outputs[t.src_index].nbytes for t in data["tensors"]}
            control = bool(data["control"])
            placed.add_edge(src, dst, nbytes=sum(sizes.values()), crosses=self._crosses(src, dst), control=control)
        return placed

    def _crosses(self, src: str, dst: str) -> bool:
        """Whether an edge is between devices; of a constant each reader's device has its own."""
        return self.ops[src].device != self.ops[dst].device and self.graph.op(src).role != "constant"

    def diff(self, other: Placement) -> Difference:
        """What changes from this placement to `other`, which may be of a changed graph. OptionError if that is no Placement."""
        if not isinstance(other, Placement):
            raise OptionError(f"diff takes a Placement, not {other!r}: placer.Placement.load(path) reads a saved one.")
        both = {name: (self.ops[name], other.ops[name]) for name in self.ops if name in other.ops}
        pairs = {name: (one.device, two.device) for name, (one, two) in both.items()}
        moved = [name for name, (left, right) in pairs.items() if left != right]
        moved.sort(key=lambda name: -max(plan.time_ns.get(plan.device, 0) for plan in both[name]))
        return Difference(
            moved={name: pairs[name] for name in moved},
            only_left=tuple(name for name in self.ops if name not in other.ops),
            only_right=tuple(name for name in other.ops if name not in self.ops),
            total_cost_ns=(self.total_cost_ns, other.total_cost_ns),
            step_time_ns=(self.step_time_ns, other.step_time_ns),
            transfers=(len(self.transfers), len(other.transfers)),
            copied_bytes=(self.copied_bytes, other.copied_bytes),
            transfer_ns=(self.transfer_ns, other.transfer_ns),
            peak_bytes={
                device: (self._peak(device), other._peak(device)) for device in dict.fromkeys(self.devices + other.devices)
            },
        )

    def _peak(self, device: str) -> int:
        return self.totals[device].peak_bytes if device in self.totals else 0

    # -- showing ---------------------------------------------------------------------------------------------------

    def view(self, name: str, **options: Any) -> Drawn:
        """What the registered view `name` makes of it, which docs/views.md lists: text, bytes, or files by path below a folder.

        Raises OptionError where there is no such view, or it does not take these options.
        """
        draw = view(name)
        signature = inspect.signature(draw)
        try:
            signature.bind(self, **options)
        except TypeError as error:
            takes = ", ".join(list(signature.parameters)[1:]) or "no options"
            raise OptionError(f"the view {name!r} cannot be drawn so: {error}. It takes {takes}.") from error
        with paused_collection():
            return draw(self, **options)

    def write(self, name: str, path: str | Path, **options: Any) -> None:
        """Writes a view to the file `path`, or to files below the folder `path`.

        Raises OptionError as `view` does, and PlanError where nothing can be written there.
        """
        write(self.view(name, **options), path)

    def to_tensorboard(self, logdir: str | Path) -> None:
        """Writes runs "before" (TensorFlow's own placement) and "after" for TensorBoard's graph page.

        Raises OptionError where tensorboard is not installed, and PlanError where nothing can be written there.
        """
        self.write("tensorboard", logdir)

    def summary(self) -> str:
        """Per device ops, time and peak memory; transfers; objective, status, bound, gap; the baselines."""
        return str(self.view("summary"))

    def explain(self, name: str) -> str:
        """One op: its device, why, its cost on each device, what comes in and goes out. `name` as `OpGraph.find` takes it."""
        return str(self.view("explain", op=name))

    def __str__(self) -> str:
        return self.summary()

    def __rich__(self) -> str:
        return str(self.view("rich"))

    def _repr_html_(self) -> str:
        return str(self.view("notebook"))

    def __repr__(self) -> str:
        decided = f"{self.objective} {format_ns(self.objective_ns)}, {self.status}"
        return f"<Placement of {self.graph.name!r}: {len(self.ops)} ops on {self.machine}, {decided}>"

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    # -- keeping ---------------------------------------------------------------------------------------------------

    def bound_to(self, graph: OpGraph) -> Placement:
        """The same plan over `graph`, an equal graph read in another process. Raises PlanError where it is not equal."""
        if self.fingerprint == graph.fingerprint:
            return replace(self, graph=graph)
        raise PlanError(
            f"the plan is for {self.graph.name!r} ({len(self.ops)} ops, {self.fingerprint[:12]}), not for {graph.name!r} "
            f"({len(graph)} ops, {graph.fingerprint[:12]}): {self.graph.difference(graph)}. Plan this function anew."
        )

    def to_json(self) -> dict[str, Any]:
        """The plan and its graph as plain JSON types, with a checksum; docs/views.md has the fields."""
        content = {"plan": self._plan_to_json(), "graph": self.graph.to_json()}
        return {"format": FORMAT, "version": VERSION, "checksum": _checksum(content), **content}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: str = "the data") -> Placement:
        """What `to_json` gave. Raises PlanError naming `origin` where it is something else, broken, or edited."""
        check_format(data, FORMAT, VERSION, origin)
        content = {key: data.get(key) for key in ("plan", "graph")}
        if data.get("checksum") != _checksum(content):
            raise PlanError(f"{origin} was changed after it was saved: its checksum does not match. Save the plan again.")
        try:
            return _plan_from_json(content["plan"] or {}, OpGraph.from_json(content["graph"] or {}, origin))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"{origin} holds a broken plan ({type(error).__name__}: {error}). Save it again.") from error

    def save(self, path: str | Path) -> None:
        """Writes the plan and its graph as JSON, with a checksum. Raises PlanError where that cannot be."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, graph: OpGraph | None = None) -> Placement:
        """Reads what `save` wrote.

        Raises PlanError where the file is missing, broken, edited or of another version, or, given a graph, for another one.
        """
        placement = cls.from_json(read_json(path), str(path))
        return placement if graph is None else placement.bound_to(graph)

    def _plan_to_json(self) -> dict[str, Any]:
        plain = ("machine", "objective", "objective_ns", "lower_bound_ns", "total_cost_ns", "step_time_ns", "solver")
        return {
            **{key: getattr(self, key) for key in (*plain, "solver_seconds", "stop_reason")},
            "status": self.status.value,
            "devices": list(self.devices),
            "ops": [[getattr(p, f.name) for f in fields(OpPlan)] for p in self.ops.values()],
            "units": [[u.ops, [[r.kind, r.op, r.text] for r in u.reasons], u.time_ns, u.transfer_ns] for u in self.units],
            "transfers": [asdict(t) for t in self.transfers],
            "totals": {name: asdict(t) for name, t in self.totals.items()},
            "memory": {name: list(held) for name, held in self.memory.items()},
            "baselines": {name: asdict(b) for name, b in self.baselines.items()},
            "notes": list(self.notes),
            "options": dict(self.options),
            **({} if self.assigned is None else {"assigned": dict(self.assigned)}),
        }

    @cached_property
    def transfers_of(self) -> Mapping[str, tuple[Transfer, ...]]:
        """The transfers of each op's outputs, by op name."""
        found: dict[str, list[Transfer]] = {}
        for transfer in self.transfers:
            found.setdefault(transfer.producer, []).append(transfer)
        return {name: tuple(transfers) for name, transfers in found.items()}


def _plan_from_json(data: Mapping[str, Any], graph: OpGraph) -> Placement:
    ops = {op.name: OpPlan(*row) for op, row in zip(graph, data["ops"], strict=True)}
    built = ("ops", "units", "transfers", "totals", "memory", "baselines", "status", "devices", "notes")
    plain: dict[str, Any] = {key: value for key, value in data.items() if key not in built}
    return Placement(
        graph=graph,
        ops=ops,
        units=tuple(UnitPlan(ops, tuple(Reason(*r) for r in reasons), t, moves) for ops, reasons, t, moves in data["units"]),
        transfers=tuple(Transfer(**row) for row in data["transfers"]),
        totals={name: DeviceTotals(**row) for name, row in data["totals"].items()},
        memory={name: tuple(held) for name, held in data["memory"].items()},
        baselines={name: Baseline(**row) for name, row in data["baselines"].items()},
        status=Status(data["status"]),
        devices=tuple(data["devices"]),
        notes=tuple(data["notes"]),
        **plain,
    )


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
