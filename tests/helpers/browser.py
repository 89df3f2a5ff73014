"""A headless Chromium for tests of what people look at."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""Reaches this machine only, whatever a page asks for."""
QUIET = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")

ALL = (
    "function* all(root) { for (const e of root.querySelectorAll('*')) { yield e; if (e.shadowRoot) yield* all(e.shadowRoot); } }"
)
"""JavaScript: all elements below one, those of shadow trees too."""


@contextmanager
def chromium(width: int = 1500, height: int = 1000) -> Iterator[Any]:
    """A Selenium driver. Skips the test where Selenium or Chromium with its driver is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium with chromedriver here; Debian has them as chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (*QUIET, ALONE, "--disable-component-update", "--disable-sync", f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address of a server of the files in a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def tensorboard(logdir: Path) -> Iterator[str]:
    """The address of a TensorBoard that shows the runs in a folder."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"]
    process = subprocess.Popen([*command, "--load_fast", "false"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield next(match[0] for line in process.stderr if (match := re.search(r"http://\S+", line)))
    finally:
        process.terminate()
        process.wait()


@contextmanager
def open_in_netron(browser: Any, path: Path) -> Iterator[None]:
    """Opens a file in Netron and waits until it is drawn. Skips the test where Netron is not installed."""
    netron = pytest.importorskip("netron")
    host, port = netron.start(str(path), address=("127.0.0.1", 0), browse=False)
    try:
        browser.get(f"http://{host}:{port}/")
        wait(lambda: browser.find_element("id", "message-button").is_displayed())
        browser.find_element("id", "message-button").click()  # accepts that it counts its users
        wait(lambda: browser.execute_script("return document.body.className") == "default")
        yield
    finally:
        netron.stop((host, port))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def open_report(browser: Any, path: Path) -> None:
    """Opens a report and waits until it is drawn."""
    browser.get(path.as_uri())
    wait(lambda: browser.execute_script("return document.documentElement.dataset.ready"))


def wait(found: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `found` gives once that is true."""
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return result
