"""`placer profile`: measures the ops of functions on this machine's devices."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from placer.common.progress import progress
from placer.common.units import check_seconds
from placer.verbs.read_target import read_target

HELP = "Measure the ops of functions on the devices here. A second run continues where the first stopped."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", metavar="TARGET", nargs="+", help="as for solve")
    parser.add_argument("--signature", metavar="TYPES", help="as for solve")
    parser.add_argument("--budget-s", type=float, default=60.0, metavar="SECONDS", help="how long to measure (default: 60)")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.tf.run.starting import start
    from placer.verbs.profile import profile

    check_seconds("--budget-s", args.budget_s)
    graphs = []
    for target in args.targets:
        with progress(f"reading {target}"):
            graphs.append(read_target(target, args.signature)[0])
    start()
    measured = profile(graphs, args.budget_s)
    return asdict(measured), str(measured)
