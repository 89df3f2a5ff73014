"""`placer diff`: the differences between two saved plans."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placer.command.arguments import load_plan

HELP = "Compare two saved plans: which ops move, and what that does to time, transfers and memory."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="PLAN", type=Path, help="the first saved plan")
    parser.add_argument("second", metavar="OTHER", type=Path, help="the second")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    first, second = load_plan(args.first), load_plan(args.second)
    difference = first.diff(second)
    return asdict(difference), str(difference)
