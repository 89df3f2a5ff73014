"""Measures the HTML report: its size, and the time to write it and to open it in headless Chromium.

    python -m tests.benchmarks.bench_report

"Opened" is the time from navigation to the first drawn frame, "expanded" the time to open one more scope.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from placer.graph.shipped import shipped_graph
from placer.verbs.solve import solve
from tests.helpers.browser import chromium, open_report
from tests.helpers.graphs import stacked

EXPAND = """
const { plan, graph } = app;
const node = plan.nodes.find((node) => node.op < 0 && node.parent && !graph.isOpen(node) && graph.isOpen(node.parent));
const started = performance.now();
app.toggle(node);
return performance.now() - started;
"""


def main() -> None:
    graphs = {name: shipped_graph(name) for name in ("detector", "resnet50_training", "encoder_training")}
    graphs["100,000 ops"] = stacked(5_000)
    rows = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, graph in graphs.items():
            plan = solve(graph, "h100", objective="total_cost")
            path = Path(folder) / "report.html"
            started = time.perf_counter()
            plan.write("html", path)
            written = time.perf_counter() - started
            open_report(browser, path)
            opened = int(browser.execute_script("return document.documentElement.dataset.ready"))
            expanded = browser.execute_script(EXPAND)
            figures = (path.stat().st_size / 1e6, written, opened / 1000)
            rows.append([name, len(graph), *(f"{figure:.2f}" for figure in figures), f"{expanded:.0f}"])
    print("| plan | ops | MB | written, s | opened, s | a scope expanded, ms |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
