"""Takes the pictures of docs/images: the report in both themes, the SVG, TensorBoard.

    python -m docs.screenshots

Needs matplotlib, tensorboard, selenium and Chromium with chromedriver.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from placer.graph.shipped import shipped_graph
from placer.verbs.solve import solve
from tests.helpers.browser import chromium, open_report, wait
from tests.views.test_tensorboard import ALL, address

IMAGES = Path(__file__).parent / "images"
STILL = 1.5
"""Seconds until nothing moves any more."""


def main() -> None:
    """Draws them all."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    detector = solve(shipped_graph("detector"), "h100")
    detector.write("svg", IMAGES / "picture.svg", boxes=14)
    with tempfile.TemporaryDirectory() as folder, chromium(1360, 1000) as browser:
        detector.write("html", Path(folder) / "report.html")
        open_report(browser, Path(folder) / "report.html")
        show(browser, next(t.producer for t in detector.transfers if t.src != "CPU:0" and t.nbytes))
        save(browser, "report")
        browser.execute_script("app.theme('dark'); app.tab('tab-timeline')")
        save(browser, "timeline")
        solve(shipped_graph("lstm_then_wide"), "h100").to_tensorboard(Path(folder) / "logs")
        tensorboard(browser, Path(folder) / "logs")


def show(browser: Any, op: str) -> None:
    """Selects an op and brings it into sight."""
    browser.execute_script("app.selectOp(app.plan.ops.name.indexOf(arguments[0]))", op)


def save(browser: Any, name: str) -> None:
    """The window as it is once nothing moves."""
    time.sleep(STILL)
    browser.save_screenshot(str(IMAGES / f"{name}.png"))


def tensorboard(browser: Any, logs: Path) -> None:
    """TensorBoard's graph page, coloured by device."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--port", "0", "--host", "127.0.0.1"]
    process = subprocess.Popen([*command, "--load_fast", "false"], stderr=subprocess.PIPE, text=True)
    choose = f"""{ALL}
        const found = [...all(document)].find(e => e.tagName === 'PAPER-RADIO-BUTTON' && e.textContent.trim() === 'Device');
        if (found) found.click();
        return !!found"""
    try:
        browser.get(f"{address(process)}#graphs")
        wait(lambda: browser.execute_script(choose))
        save(browser, "tensorboard")
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
