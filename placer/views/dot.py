"""A placement as Graphviz DOT: boxes in their device's colour, grouped by scope; thick edges for crossings, with their cost."""

from __future__ import annotations

from placer.common.escaping import printable
from placer.common.units import format_bytes, format_ns
from placer.plan.placement import Placement
from placer.views.shared.colours import CROSSING, QUIET, colours
from placer.views.shared.folding import Box, Flow, fold, without_repeats


def dot(placement: Placement, *, boxes: int = 40) -> str:
    """DOT text of the graph folded to at most `boxes` boxes, in clusters by outermost scope.

    An edge that crosses nothing is left out if a longer path connects its ends too.
    """
    folded = without_repeats(fold(placement, boxes))
    colour = colours(placement.devices)
    clusters: dict[str, list[int]] = {}
    for number, data in folded.nodes(data=True):
        clusters.setdefault(data["box"].scope.partition("/")[0], []).append(number)
    lines = [
        f"digraph {_quote(placement.graph.name)} {{",
        '  graph [rankdir=TB, fontname="Helvetica", compound=true];',
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];',
        '  edge [fontname="Helvetica", fontsize=9];',
    ]
    for scope, members in clusters.items():
        clustered = bool(scope) and len(members) > 1
        if clustered:
            lines += [f"  subgraph {_quote('cluster_' + scope)} {{", f"    label={_quote(scope)}; color={_quote(QUIET)};"]
        for number in members:
            box: Box = folded.nodes[number]["box"]
            fill, line = colour[box.device]
            text = f"{box.label}\n{box.content}\n{box.device}" + (f", {format_ns(box.time_ns)}" if box.time_ns else "")
            indent = "    " if clustered else "  "
            lines.append(f"{indent}n{number} [label={_quote(text)}, fillcolor={_quote(fill)}, color={_quote(line)}];")
        if clustered:
            lines.append("  }")
    for src, dst, data in folded.edges(data=True):
        flow: Flow = data["flow"]
        style = f"color={_quote(CROSSING if flow.crosses else QUIET)}"
        if not flow.nbytes:
            style += ", style=dashed"
        elif flow.crosses:
            label = f"{format_bytes(flow.nbytes)}, {format_ns(flow.time_ns)}"
            style += f", fontcolor={_quote(CROSSING)}, penwidth=3, label={_quote(label)}"
        lines.append(f"  n{src} -> n{dst} [{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quote(text: str) -> str:
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
