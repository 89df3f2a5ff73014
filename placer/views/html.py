"""A placement as one HTML file that needs no network: graph, explanation of each op, timeline, memory, transfers, baselines.

The page is in `page/`: a template, its style, its script, and the JavaScript libraries that draw and lay out the graph.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any, TypeAlias

from placer.common.escaping import markup
from placer.plan.parts import BASELINE_NAMES
from placer.plan.placement import Placement
from placer.plan.why import decisive_op
from placer.views.shared.colours import colour, for_dark_page
from placer.views.shared.glossary import TERMS
from placer.views.shared.scopes import Part, scopes
from placer.views.shared.words import (
    against,
    cost_source,
    cost_sources,
    headline,
    optimality,
    predicted_step,
    solver_words,
)
from placer.views.timeline import memory_over_time

SCRIPTS = ("units.js", "plan.js", "layout.js", "graph.js", "outline.js", "tables.js", "timeline.js", "details.js", "main.js")
LIBRARIES = ("cytoscape.min.js", "dagre.min.js")
STAYS, CROSSES, SHARES = range(3)
"""Kinds of edges: nothing crosses; the tensor is copied for this reader; the reader uses a copy made for an earlier reader."""

Tree: TypeAlias = int | list[Any]


def html(placement: Placement) -> str:
    """The whole page. It needs a browser of 2023 or later, as it unpacks its data with DecompressionStream."""
    page = resources.files("placer.views") / "page"
    packed = gzip.compress(json.dumps(payload(placement), separators=(",", ":")).encode(), 6, mtime=0)
    parts = {
        "title": markup(f"{placement.graph.name} on {placement.machine}"),
        "style": (page / "report.css").read_text(),
        "libraries": "".join(f"<script>{_script((page / 'vendor' / name).read_text())}</script>\n" for name in LIBRARIES),
        "script": _script("\n".join((page / name).read_text() for name in SCRIPTS)),
        "data": base64.b64encode(packed).decode(),
    }
    text = (page / "report.html").read_text()
    for name, content in parts.items():
        text = text.replace(f"<!-- {name} -->", content)
    return text


def _script(code: str) -> str:
    """Code without the texts that would end a script element."""
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def payload(placement: Placement) -> dict[str, Any]:
    """The data of the page. Ops are stored by column; texts that repeat are indices into `strings`."""
    p, graph = placement, placement.graph
    number = {name: i for i, name in enumerate(p.ops)}
    on = {device: i for i, device in enumerate(p.devices)}
    strings = _Strings()
    outputs: dict[tuple[str, int], int] = {}
    columns: dict[str, list[Any]] = {"name": list(p.ops)}
    for op, plan in zip(graph, p.ops.values(), strict=True):
        reason = p.why(op.name)
        refusals = [f"{kind}: {why}" for kind, why in op.refusals.items() if kind not in op.kernels]
        row = {
            "type": strings(op.op_type),
            "role": strings(op.role),
            "body": strings(op.body),
            "flags": strings(", ".join(op.flags)),
            "count": op.count,
            "device": on[plan.device],
            "default": on.get(plan.default, -1),
            "unit": plan.unit,
            "group": strings(graph.group_reasons.get(op.group, "")),
            "sources": [strings(cost_source(plan, op.op_type, device)) for device in p.devices],
            "start": plan.start_ns,
            "length": plan.end_ns - plan.start_ns,
            "streamed": int(plan.streamed),
            "time": [plan.time_ns.get(device, -1) for device in p.devices],
            "refusals": strings("; ".join(refusals)),
            "reason": strings(reason.kind),
            "why": strings(reason.text),
            "outputs": [outputs.setdefault((str(s), s.nbytes), len(outputs)) for s in op.signature.outputs],
        }
        for key, value in row.items():
            columns.setdefault(key, []).append(value)
    shown = {number[op.name]: op.name for op in graph if op.role != "constant" and not (op.role == "capture" and op.resource)}
    return {
        "title": graph.name,
        "headline": headline(p),
        "decisive": number.get(decisive_op(p), -1),
        "machine": p.machine,
        "figures": {
            **{
                key: getattr(p, key)
                for key in ("step_time_ns", "total_cost_ns", "objective", "gap", "copied_bytes", "transfer_ns")
            },
            "solver": solver_words(p),
            "status": p.status.value,
            "step_time": predicted_step(p),
            "optimality": optimality(p),
            "costs": cost_sources(p),
        },
        "devices": [_device(p, name) for name in p.devices],
        "baselines": [
            {
                "name": BASELINE_NAMES.get(name, name),
                "feasible": b.feasible,
                "step_time_ns": b.step_time_ns,
                "total_cost_ns": b.total_cost_ns,
                "note": against(p, b),
            }
            for name, b in p.baselines.items()
        ],
        "verdict": {"rows": p.verdict.rows, "end": p.verdict.cost} if p.verdict is not None else None,
        "notes": list(p.notes),
        "terms": [[term.name, term.meaning, term.example] for term in TERMS if term.in_report],
        "ops": columns,
        "units": {
            i: [[strings(r.kind), number.get(r.op, -1), strings(r.text)] for r in u.reasons]
            for i, u in enumerate(p.units)
            if u.reasons
        },
        "outputs": [list(key) for key in outputs],
        "edges": list(_edges(p, number)),
        "transfers": [
            [
                *(number[t.producer], t.output),
                *(on[t.src], on[t.dst], int(t.dst_memory == "host"), t.nbytes, t.count, t.time_ns, t.start_ns, t.end_ns),
            ]
            for t in p.transfers
        ],
        "tree": _tree(scopes(shown, graph.name)),
        "strings": strings.texts,
    }


class _Strings:
    """Distinct texts, numbered in order of first use."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        number = self._known.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


def _device(placement: Placement, name: str) -> dict[str, Any]:
    total = placement.totals[name]
    return {
        "name": name,
        "day": colour(name),
        "night": for_dark_page(colour(name)),
        "ops": total.ops,
        "time_ns": total.time_ns,
        "peak_bytes": total.peak_bytes,
        "persistent_bytes": total.persistent_bytes,
        "limit_bytes": total.limit_bytes,
        "memory": [number for step in memory_over_time(placement, name) for number in step],
    }


def _edges(placement: Placement, number: dict[str, int]) -> Iterable[int]:
    """Four numbers per edge, sorted: producer, reader, output (-1 for a control edge or a predicate), and kind."""
    rows = []
    copied: set[tuple[int, int, str]] = set()
    for reader, plan in placement.ops.items():  # in execution order, so that the first reader on a device gets the copy
        for name, _, data in placement.graph.graph.in_edges(reader, data=True):
            constant = placement.graph.op(name).role == "constant"
            for output in dict.fromkeys(t.src_index if t.dst_index >= 0 else -1 for t in data["tensors"]) or (-1,):
                kind = STAYS
                if placement.ops[name].device != plan.device and not constant:
                    tensor = (number[name], output, plan.device)
                    kind = SHARES if tensor in copied else CROSSES
                    copied.add(tensor)
                rows.append((number[name], output, number[reader], kind))
    for producer, output, reader_number, kind in sorted(rows):
        yield from (producer, reader_number, output, kind)


def _tree(part: Part) -> Tree:
    return part if isinstance(part, int) else [part.label, *map(_tree, part.parts)]
