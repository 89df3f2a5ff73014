"""`placer demo`: plans two functions for a GPU machine, runs both by plan and checks the results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

HELP = "Plan two functions for a GPU machine, run both here by plan and check them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for plans and a picture (default: demo)")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.command.tour import run

    return run(args.out, report=lambda text: None if args.json else print(text, flush=True))
