"""Programs in a process of their own, and the scenarios that such a program runs.

A client of a cluster needs one: once connected, a process is no longer fit for other tests.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Generic, TypeVar

from tests.helpers.forked import Program

T = TypeVar("T")


class Scenarios(Generic[T]):
    """Functions that run one after the other, all with the same argument. Used as a decorator, it adds one."""

    def __init__(self) -> None:
        self.by_name: dict[str, Callable[[T], None]] = {}

    def __call__(self, run: Callable[[T], None]) -> Callable[[T], None]:
        self.by_name[run.__name__] = run
        return run

    def run_all(self, given: T) -> None:
        """Runs all, and prints a line of JSON for each: its name, and what failed, "" if nothing did."""
        for name, run in self.by_name.items():
            try:
                run(given)
                failure = ""
            except BaseException:
                failure = traceback.format_exc()
            print(json.dumps([name, failure]), flush=True)


def output_of(module: str, *arguments: str, timeout_s: float = 240.0, **environment: str) -> str:
    """What a module prints that runs as a program, without GPUs. If it takes too long, it is ended with all its children."""
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", **environment}
    with TemporaryFile("w+") as printed:
        Program("-m", module, *arguments, environment=variables, stdout=printed.fileno()).wait(timeout_s)
        printed.seek(0)
        return printed.read()


def failures_in(module: str, *arguments: str, **environment: str) -> dict[str, str]:
    """By scenario of a module that runs as a program: what failed, "" if nothing did."""
    printed = output_of(module, *arguments, **environment)
    return dict(json.loads(line) for line in printed.splitlines() if line.startswith("["))
