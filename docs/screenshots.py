"""Takes the pictures of docs/images: the report in both themes, the SVG, TensorBoard.

    python -m docs.screenshots

Needs matplotlib, tensorboard, selenium and Chromium with chromedriver.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from placer.graph.shipped import shipped_graph
from placer.verbs.solve import solve
from tests.helpers.browser import ALL, chromium, open_report, wait
from tests.helpers.browser import tensorboard as served_by_tensorboard

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
        save(browser, "report")
        browser.execute_script("app.theme('dark'); app.tab('tab-timeline')")
        save(browser, "timeline")
        solve(shipped_graph("lstm_then_wide"), "h100").to_tensorboard(Path(folder) / "logs")
        tensorboard(browser, Path(folder) / "logs")


def save(browser: Any, name: str) -> None:
    """The window as it is once nothing moves."""
    time.sleep(STILL)
    browser.save_screenshot(str(IMAGES / f"{name}.png"))


def tensorboard(browser: Any, logs: Path) -> None:
    """TensorBoard's graph page, coloured by device."""
    choose = f"""{ALL}
        const found = [...all(document)].find(e => e.tagName === 'PAPER-RADIO-BUTTON' && e.textContent.trim() === 'Device');
        if (found) found.click();
        return !!found"""
    with served_by_tensorboard(logs) as address:
        browser.get(f"{address}#graphs")
        wait(lambda: browser.execute_script(choose))
        save(browser, "tensorboard")


if __name__ == "__main__":
    main()
