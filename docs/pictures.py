"""Draws the pictures of docs/images that no screenshot shows.

    python -m docs.pictures

Each has a white background, so that it can be read on a light page and on a dark one. Needs matplotlib.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import placer
from cost_models import OpSignature, TensorSpec, cost_model, load_machine
from placer.common.units import parse_bytes
from placer.graph.shipped import shipped_graph
from placer.placed.race.sequential_test import SequentialTest

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
BLUE, ORANGE, GREEN, GREY = "#3465a4", "#e07b39", "#4e8f5b", "#8a8f98"
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "placer",  # the same picture is the same file
}


def main() -> None:
    """Draws them all."""
    with plt.rc_context(STYLE):
        save(speedup(), "speedup.png")
        save(schedule(), "schedule.svg")
        save(bound(), "bound.svg")
        save(memory(), "memory.svg")
        save(race(), "race.svg")
        save(exactness(), "exact.svg")
        save(costs(), "costs.svg")


def save(figure: Figure, name: str) -> None:
    """The figure as a file of docs/images."""
    metadata = {"Date": None} if name.endswith(".svg") else None
    figure.savefig(IMAGES / name, dpi=160, metadata=metadata, bbox_inches="tight")
    plt.close(figure)


def speedup() -> Figure:
    """The steps of users in the table of docs/data/race.md: TensorFlow's default divided by the step after its race."""
    page = (DOCS / "data" / "race.md").read_text()
    rows = re.findall(r"^\| (\w+)(?: \*)? \|(.*)\|$", page[page.index("| step |") :], re.MULTILINE)
    cells = {name: [cell.strip(" *") for cell in line.split("|")] for name, line in rows}
    column = cells.pop("step").index("raced")
    steps = {name: (float(row[0]), float(row[column])) for name, row in list(cells.items())[:10]}
    ordered = sorted(steps, key=lambda name: steps[name][0] / steps[name][1])
    figure, axes = plt.subplots(figsize=(8, 4))
    gains = [steps[name][0] / steps[name][1] for name in ordered]
    axes.barh([name.replace("_", " ") for name in ordered], gains, color=BLUE)
    axes.axvline(1, color="black", linewidth=1)
    for k, name in enumerate(ordered):
        default, raced = steps[name]
        axes.text(gains[k] + 0.08, k, f"{default:.3g} ms → {raced:.3g} ms", va="center", fontsize=9.5)
    axes.set_xlim(0, 1.25 * max(gains))
    axes.set_xlabel("times as fast as TensorFlow's default (higher is better)")
    return figure


def schedule() -> Figure:
    """The plan of the shipped detector: what each device and the links do during a step."""
    placement = placer.solve(shipped_graph("detector"), "h100")
    rows = {
        "copies": ([(copy.start_ns, copy.end_ns) for copy in placement.transfers], ORANGE),
        "GPU:0": (_spans(placement, "GPU:0"), BLUE),
        "CPU:0": (_spans(placement, "CPU:0"), GREEN),
    }
    figure, axes = plt.subplots(figsize=(8, 2.6))
    for k, (spans, colour) in enumerate(rows.values()):
        axes.broken_barh([(start / 1e6, (end - start) / 1e6) for start, end in spans], (k - 0.32, 0.64), color=colour, alpha=0.75)
    last, end = max(end for spans, _ in rows.values() for _, end in spans) / 1e6, placement.step_time_ns / 1e6
    axes.axvspan(last, end, color=GREY, alpha=0.25)
    axes.text((last + end) / 2, 1, "what each call takes\nbesides its ops", ha="center", va="center", fontsize=10)
    axes.axvline(end, color="black", linewidth=1.5)
    axes.text(end, 2.55, f"step time {end:.2f} ms", ha="right")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("ms since the start of the step")
    return figure


def _spans(placement: placer.Placement, device: str) -> list[tuple[int, int]]:
    return [(op.start_ns, op.end_ns) for op in placement.ops.values() if op.device == device and op.end_ns > op.start_ns]


def bound() -> Figure:
    """The bound, the plan and TensorFlow's default of the shipped detector on one line."""
    placement = placer.solve(shipped_graph("detector"), "h100")
    low, plan = placement.lower_bound_ns / 1e6, placement.step_time_ns / 1e6
    default = placement.baselines["tf_default"].step_time_ns / 1e6
    figure, axes = plt.subplots(figsize=(8, 1.7))
    axes.axvspan(0, low, color=GREY, alpha=0.35)
    axes.axvspan(low, plan, color=ORANGE, alpha=0.45)
    axes.text(low / 2, 0.25, "no placement is here", ha="center", va="center", fontsize=10)
    for name, value, side in (("bound", low, "right"), ("plan", plan, "left"), ("TensorFlow's default", default, "left")):
        axes.axvline(value, color="black", linewidth=1.5)
        axes.text(value, 0.78, f"  {name}  \n  {value:.2f} ms  ", ha=side, va="center", fontsize=10)
    arrow = {"arrowstyle": "->"}
    text = "the gap: what a better\nplan could save at most"
    axes.annotate(text, ((low + plan) / 2, 0.12), (1.07 * plan, 0.25), fontsize=10, va="center", arrowprops=arrow)
    axes.set_xlim(0, 1.22 * default)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("predicted ms per step")
    return figure


def memory() -> Figure:
    """What the GPU holds while the shipped attention layer trains, without a limit and with one."""
    graph, limit = shipped_graph("attention_training"), "310MiB"
    figure, axes = plt.subplots(figsize=(8, 3))
    for label, limits, colour in (("no limit", {}, BLUE), (f"a limit of {limit}", {"GPU:0": limit}, ORANGE)):
        placement = placer.solve(graph, "h100", variables="move", memory_limits=limits)
        held = [nbytes / 2**20 for nbytes in placement.memory["GPU:0"]]
        axes.plot(held, color=colour, label=f"{label}: {placement.step_time_ns / 1e6:.1f} ms per step")
        axes.plot(held.index(max(held)), max(held), "o", color=colour)
    axes.axhline(parse_bytes(limit) / 2**20, color="black", linewidth=1, linestyle="--", label="the limit")
    axes.set_ylim(0, 540)
    axes.set_xlabel("ops of the step, in the order in which they start")
    axes.set_ylabel("MiB held by GPU:0")
    axes.legend(frameon=False, fontsize=10)
    return figure


def race() -> Figure:
    """A race of four candidates with made-up times: each call is a point, and slower candidates leave."""
    rng = random.Random(4)
    typical_ms = {"the plan": 1.25, "TensorFlow's default": 1.9, "all on CPU": 2.6, "a plan with fewer copies": 1.1}
    test, calls = SequentialTest(list(typical_ms)), []
    while not test.end:
        name = test.next()
        first = 1 + 2.5 * (len(test.entrants[name].seconds) == 0) + 0.6 * (len(test.entrants[name].seconds) == 1)
        calls.append((name, typical_ms[name] * first * rng.lognormvariate(0, 0.06)))
        test.add(name, calls[-1][1] / 1e3)
    colours = dict(zip(typical_ms, (BLUE, GREY, GREEN, ORANGE), strict=True))
    markers = dict(zip(typical_ms, "osD^", strict=True))
    figure, axes = plt.subplots(figsize=(8, 3.2))
    for name, colour in colours.items():
        at = [(k + 1, ms) for k, (called, ms) in enumerate(calls) if called == name]
        xs, ys = zip(*at, strict=True)
        axes.plot(xs[:2], ys[:2], markers[name], color=colour, fillstyle="none")
        axes.plot(xs[2:], ys[2:], markers[name], color=colour, label=name + (" (kept)" if name == test.fastest else ""))
    axes.axhline(test.entrants[test.fastest].median_s * 1e3, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("call of the function")
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes.minorticks_off()
    axes.set_xticks(range(2, len(calls) + 1, 2))
    axes.legend(frameon=False, fontsize=10)
    return figure


def exactness() -> Figure:
    """From a function to a call: which steps are exact, and which are estimates."""
    steps = [
        ("your function", "traced by\nTensorFlow", GREEN),
        ("costs", "measured, or\nfrom formulas", ORANGE),
        ("execution model", "predicts a step\nfrom costs", ORANGE),
        ("search", "shortest step\nfound, and a bound", BLUE),
        ("rewriting", "each op gets\nits device", GREEN),
        ("race", "real calls decide", GREEN),
    ]
    meanings = (("exact", GREEN), ("an estimate", ORANGE), ("exact for the predicted times, if proved optimal", BLUE))
    figure, axes = plt.subplots(figsize=(10.5, 2))
    for k, (name, text, colour) in enumerate(steps):
        box = FancyBboxPatch((k * 1.6, 0), 1.3, 1, boxstyle="round,pad=0.05", facecolor=colour, alpha=0.3, edgecolor=colour)
        axes.add_patch(box)
        axes.text(k * 1.6 + 0.65, 0.76, name, ha="center", va="center", fontsize=9.5, weight="bold")
        axes.text(k * 1.6 + 0.65, 0.32, text, ha="center", va="center", fontsize=8.5)
        if k:
            axes.annotate("", (k * 1.6 - 0.05, 0.5), (k * 1.6 - 0.25, 0.5), arrowprops={"arrowstyle": "->"})
    for k, (text, colour) in enumerate(meanings):
        axes.plot(0.3 + 1.5 * k, -0.45, "s", color=colour, alpha=0.5, markersize=10)
        axes.text(0.45 + 1.5 * k, -0.45, text, va="center", fontsize=9.5)
    axes.set_xlim(-0.1, 9.5)
    axes.set_ylim(-0.65, 1.1)
    axes.axis("off")
    return figure


def costs() -> Figure:
    """What an addition and a matrix product take on the shipped H100 and on its host by the formulas, over their size."""
    machine, formulas = load_machine("h100"), cost_model("analytic")
    ops = {"AddV2": "an addition of two n × n matrices", "MatMul": "a product of two n × n matrices"}
    sides = sorted({4 * round(2 ** (k / 6)) for k in range(66)})
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
    for axes, (op_type, title) in zip(panels, ops.items(), strict=True):
        times = {}
        for device, colour in zip(machine.devices, (GREEN, BLUE), strict=True):
            matrices = [TensorSpec("float32", (n, n)) for n in sides]
            signatures = [OpSignature(op_type, (each, each), (each,), (("T", "float32"),)) for each in matrices]
            times[device.kind] = [formulas.op_cost(signature, device).time_ns / 1e3 for signature in signatures]
            axes.plot(sides, times[device.kind], color=colour, label=device.kind)
        equal = next(n for n, cpu, gpu in zip(sides, times["CPU"], times["GPU"], strict=True) if cpu > gpu)
        axes.axvspan(sides[0], equal, color=GREY, alpha=0.2)
        axes.text(equal, 1.5, "  the GPU is faster", fontsize=9)
        axes.text(equal, 6e4, "the CPU is faster  ", ha="right", fontsize=9)
        axes.set_title(title, fontsize=11)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([4, 32, 256, 2048], ["4", "32", "256", "2,048"])
        axes.set_yticks([1, 10, 100, 1e3, 1e4, 1e5], ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms"])
        axes.minorticks_off()
        axes.set_xlabel("n")
    panels[0].legend(frameon=False, fontsize=10, loc="center left")
    return figure


if __name__ == "__main__":
    main()
