"""`placer calibrate`: measures this machine's constants."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from placer.common.units import check_seconds

HELP = "Measure this machine; later plans for it use the measurements."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget-s",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="about how long to measure (default: 60). With less time, each constant is sampled for less; all of them take at "
        "least 10 s, longer on a busy machine or with GPUs.",
    )


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.tf.run.starting import start
    from placer.verbs.calibrate import calibrate
    from placer.views.shared.machine import describe

    check_seconds("--budget-s", args.budget_s)
    start()
    machine = calibrate(args.budget_s)
    return {"machine": asdict(machine)}, describe(machine)
