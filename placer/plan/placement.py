"""Placement: the frozen result of planning. What was decided, why, its cost, and how far from the optimum it can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx

from placer.common.gap import relative_gap
from placer.common.json_files import read_json, write_json
from placer.common.units import format_ns
from placer.errors import OptionError, PlanError
from placer.graph.op_graph import OpGraph
from placer.plan.difference import Difference, difference
from placer.plan.doubt import doubt_of
from placer.plan.parts import AtEnd, Baseline, DeviceTotals, OpPlan, Transfer, UnitPlan
from placer.plan.records import placed_graph, records
from placer.plan.saving import plan_from_json, plan_to_json
from placer.plan.verdict import Verdict
from placer.plan.views import Drawn, draw, write
from placer.plan.why import why
from placer.problem.persistent import persistent
from placer.problem.reasons import Reason
from placer.solvers.base import Objective, Status


@dataclass(frozen=True)
class Placement:
    """A solved placement of one graph. See `placer.solve`. Equal to another if the graph and every figure are equal."""

    graph: OpGraph
    machine: str
    """Name of the machine."""
    devices: tuple[str, ...]
    ops: Mapping[str, OpPlan]
    """By op name, in execution order."""
    units: tuple[UnitPlan, ...]
    transfers: tuple[Transfer, ...]
    """Longest first."""
    totals: Mapping[str, DeviceTotals]
    """By device."""
    memory: Mapping[str, tuple[int, ...]]
    """By device: the bytes it holds while each op runs, with the ops one after the other in execution order."""
    baselines: Mapping[str, Baseline]
    """"tf_default", "all_cpu", "all_gpu"."""
    objective: Objective
    status: Status
    objective_ns: int
    lower_bound_ns: int
    """No placement has a lower objective; 0 if nothing is proved."""
    total_cost_ns: int
    step_time_ns: int
    solver: str
    """Name of the solver."""
    solver_seconds: float
    stop_reason: str
    """Why the solver stopped."""
    notes: tuple[str, ...]
    """Assumed sizes, dropped device scopes, limits above the memory, variables that move, results that may differ."""
    options: Mapping[str, Any]
    """The options of the planning, as plain JSON types."""
    chosen_because: str = ""
    """Why the solver `auto` chose this solver; "" if the solver was named."""
    at_ends: tuple[AtEnd, ...] = ()
    """The plan where the sizes and rounds that the graph leaves open are low, and where they are high; () if none are open."""
    assigned: Mapping[str, str] | None = None
    """Device by op that the user named in `placer.simulate`. None if a solver chose the placement."""
    verdict: Verdict | None = None
    """What calls took under this and other placements. None for a placement that is only predicted."""

    # -- questions -------------------------------------------------------------------------------------------------

    @property
    def gap(self) -> float:
        """(objective - bound) / objective: the share that a better placement can save at most. 0 is optimal, 1 unknown."""
        return relative_gap(self.objective_ns, self.lower_bound_ns)

    @cached_property
    def interval_ns(self) -> tuple[int, int]:
        """The range of step times to expect: 8 of 10 recorded placements of this kind took a time in their own range.

        See `placer.plan.doubt`.
        """
        doubt = doubt_of(self)
        return round(doubt.low * self.step_time_ns), round(doubt.high * self.step_time_ns)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the graph it places."""
        return self.graph.fingerprint

    @property
    def copied_bytes(self) -> int:
        """Bytes that all transfers of a step copy."""
        return round(sum(t.nbytes * t.count for t in self.transfers))

    @property
    def transfer_ns(self) -> int:
        """Sum of the times of all transfers of a step, as if none overlapped."""
        return sum(t.time_ns for t in self.transfers)

    @cached_property
    def transfers_of(self) -> Mapping[str, tuple[Transfer, ...]]:
        """The transfers of each op's outputs, by op name; ops without a transfer are absent."""
        by_producer: dict[str, list[Transfer]] = {}
        for transfer in self.transfers:
            by_producer.setdefault(transfer.producer, []).append(transfer)
        return {name: tuple(transfers) for name, transfers in by_producer.items()}

    @cached_property
    def kept_bytes_of_unit(self) -> Mapping[int, int]:
        """By unit: the bytes of its variables, tables and captured tensors. Units without these are absent."""
        units, kept = [self.ops[op.name].unit for op in self.graph], Counter[int]()
        for position, _, nbytes in persistent(self.graph):
            kept[units[position]] += nbytes
        return kept

    @cached_property
    def assigned_op_of_unit(self) -> Mapping[int, str]:
        """By unit, one of its ops that the user named in `placer.simulate`; units without one are absent."""
        return {self.ops[name].unit: name for name in self.assigned or {}}

    def device_of(self, name: str) -> str:
        """The device of an op. `name` as `OpGraph.find` takes it."""
        return self.ops[self.graph.find(name).name].device

    def why(self, name: str) -> Reason:
        """What decided the device of an op. `name` as `OpGraph.find` takes it."""
        return why(self, self.graph.find(name))

    def records(self) -> list[dict[str, Any]]:
        """One record per op, in execution order, ready for `pandas.DataFrame`. docs/views.md lists the columns."""
        return records(self)

    def to_networkx(self) -> nx.DiGraph:
        """The placed DAG. Node attributes are the columns of `records`; edges have "nbytes", "crosses" and "control".

        All values are strings, numbers or booleans, so that any networkx writer takes it.
        """
        return placed_graph(self)

    def diff(self, other: Placement) -> Difference:
        """What changes from this placement to `other`, which may be of a changed graph.

        Raises:
            OptionError: `other` is no Placement.
        """
        if not isinstance(other, Placement):
            raise OptionError(f"diff takes a Placement, not {other!r}: placer.Placement.load(path) reads a saved one.")
        return difference(self, other)

    # -- views -----------------------------------------------------------------------------------------------------

    def view(self, name: str, **options: Any) -> Drawn:
        """Draws the registered view `name`; docs/views.md lists them.

        Returns:
            Text, the bytes of a file, or several files by their paths below a folder.

        Raises:
            OptionError: there is no such view, or it does not take these options.
        """
        return draw(name, self, **options)

    def write(self, name: str, path: str | Path, **options: Any) -> None:
        """Writes a view to the file `path`, or to files below the folder `path`.

        Raises:
            OptionError: as `view`.
            PlanError: nothing can be written there.
        """
        write(self.view(name, **options), path)

    def to_tensorboard(self, logdir: str | Path) -> None:
        """Writes runs "before" (TensorFlow's own placement) and "after" for TensorBoard's graph page.

        Raises:
            OptionError: tensorboard is not installed.
            PlanError: nothing can be written there.
        """
        self.write("tensorboard", logdir)

    def summary(self) -> str:
        """As text: the predicted speed; ops, time and memory of each device; transfers; objective and bound; baselines; notes."""
        return str(self.view("summary"))

    def explain(self, name: str) -> str:
        """One op: its device, why, its cost on each device, its inputs and outputs. `name` as `OpGraph.find` takes it."""
        return str(self.view("explain", op=name))

    def __str__(self) -> str:
        return self.summary()

    def __rich__(self) -> str:
        return str(self.view("rich"))

    def _repr_html_(self) -> str:
        return str(self.view("notebook"))

    def __repr__(self) -> str:
        result = f"{self.objective} {format_ns(self.objective_ns)}, {self.status}"
        return f"<Placement of {self.graph.name!r}: {len(self.ops)} ops on {self.machine}, {result}>"

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    # -- saving ----------------------------------------------------------------------------------------------------

    def bound_to(self, graph: OpGraph) -> Placement:
        """The same plan over `graph`, an equal graph read in another process. Raises PlanError if it is not equal."""
        if self.fingerprint == graph.fingerprint:
            return replace(self, graph=graph)
        raise PlanError(
            f"the plan is for {self.graph.name!r} ({len(self.ops)} ops, {self.fingerprint[:12]}), not for {graph.name!r} "
            f"({len(graph)} ops, {graph.fingerprint[:12]}): {self.graph.difference(graph)}. Plan this function anew."
        )

    def to_json(self) -> dict[str, Any]:
        """The plan and its graph as plain JSON types, with a checksum; placer/common/plan.schema.json describes the fields."""
        return plan_to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], origin: str = "the data") -> Placement:
        """The plan that `to_json` wrote.

        Raises:
            PlanError: it is something else, broken, edited, or of another version; the message starts with `origin`.
        """
        return plan_from_json(cls, data, origin)

    def save(self, path: str | Path) -> None:
        """Writes the plan and its graph as JSON, with a checksum. Raises PlanError if the file cannot be written."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path, graph: OpGraph | None = None) -> Placement:
        """Reads the plan that `save` wrote.

        Raises:
            PlanError: the file is missing, broken, edited or of another version; or `graph` is given and is another graph.
        """
        placement = cls.from_json(read_json(path), str(path))
        return placement if graph is None else placement.bound_to(graph)
