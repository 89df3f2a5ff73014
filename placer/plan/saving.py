"""The JSON of a saved plan: written, checked and read. placer/common/plan.schema.json is its schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from placer.common.garbage_collection import paused_collection
from placer.common.json_files import check_format
from placer.common.plan_schema import check_schema
from placer.errors import PlanError
from placer.graph.op_graph import OpGraph
from placer.plan.contradictions import contradictions
from placer.plan.parts import AtEnd, Baseline, DeviceTotals, OpPlan, Transfer, UnitPlan
from placer.plan.verdict import Verdict
from placer.problem.reasons import Reason
from placer.solvers.base import Status

if TYPE_CHECKING:
    from placer.plan.placement import Placement

FORMAT = "placer.plan"
VERSION = 4
_PLAIN = (
    "machine",
    "objective",
    "objective_ns",
    "lower_bound_ns",
    "total_cost_ns",
    "step_time_ns",
    "solver",
    "solver_seconds",
    "stop_reason",
    "chosen_because",
)
"""Fields of a Placement that are plain JSON values."""


def plan_to_json(placement: Placement) -> dict[str, Any]:
    """The plan and its graph as plain JSON types, with a checksum."""
    content = {"plan": _plan(placement), "graph": placement.graph.to_json()}
    return {"format": FORMAT, "version": VERSION, "checksum": _checksum(content), **content}


def plan_from_json(kind: type[Placement], data: Mapping[str, Any], origin: str) -> Placement:
    """The Placement that `plan_to_json` wrote.

    Args:
        kind: the class to make.
        data: the parsed JSON.
        origin: a name for the data in messages, such as the file's path.

    Raises:
        PlanError: it is something else, broken, edited, or of another version.
    """
    check_format(data, FORMAT, VERSION, origin)
    content = {key: data.get(key) for key in ("plan", "graph")}
    if data.get("checksum") != _checksum(content):
        raise PlanError(f"{origin} was changed after it was saved: its checksum does not match. Save the plan again.")
    graph = OpGraph.from_json(content["graph"] or {}, origin)
    check_schema(content["plan"], "plan", origin)
    try:
        with paused_collection():
            plan = kind(**_fields(content["plan"] or {}, graph))
        contradiction = next(contradictions(plan), "")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"{origin} holds a broken plan ({type(error).__name__}: {error}). Save it again.") from error
    if contradiction:
        raise PlanError(f"{origin} holds a broken plan: {contradiction}. Save it again.")
    return plan


def _plan(p: Placement) -> dict[str, Any]:
    return {
        **{name: getattr(p, name) for name in _PLAIN},
        "status": p.status.value,
        "devices": list(p.devices),
        "ops": [[getattr(plan, f.name) for f in fields(OpPlan)] for plan in p.ops.values()],
        "units": [[u.ops, [[r.kind, r.op, r.text] for r in u.reasons], u.time_ns, u.transfer_ns] for u in p.units],
        "transfers": [asdict(t) for t in p.transfers],
        "totals": {name: asdict(t) for name, t in p.totals.items()},
        "memory": {name: list(held) for name, held in p.memory.items()},
        "baselines": {name: asdict(b) for name, b in p.baselines.items()},
        "notes": list(p.notes),
        "options": dict(p.options),
        "at_ends": [asdict(each) for each in p.at_ends],
        **({} if p.assigned is None else {"assigned": dict(p.assigned)}),
        **({} if p.verdict is None else {"verdict": p.verdict.to_json()}),
    }


def _fields(data: Mapping[str, Any], graph: OpGraph) -> dict[str, Any]:
    return {
        **data,
        "graph": graph,
        "status": Status(data["status"]),
        "devices": tuple(data["devices"]),
        "ops": {op.name: OpPlan(*row) for op, row in zip(graph, data["ops"], strict=True)},
        "units": tuple(
            UnitPlan(ops, tuple(Reason(*reason) for reason in reasons), time_ns, transfer_ns)
            for ops, reasons, time_ns, transfer_ns in data["units"]
        ),
        "transfers": tuple(Transfer(**row) for row in data["transfers"]),
        "totals": {name: DeviceTotals(**row) for name, row in data["totals"].items()},
        "memory": {name: tuple(held) for name, held in data["memory"].items()},
        "baselines": {name: Baseline(**row) for name, row in data["baselines"].items()},
        "notes": tuple(data["notes"]),
        "at_ends": tuple(AtEnd(**row) for row in data["at_ends"]),
        "verdict": Verdict.from_json(data["verdict"]) if "verdict" in data else None,
    }


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
