"""`placer calibrate`: measures this machine's constants."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placer.common.units import check_seconds
from placer.errors import PlacerError

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
    parser.add_argument(
        "--cluster",
        metavar="FILE",
        help="measure the network between the hosts of a cluster's file, in the place of this machine",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the machine there, for --devices FILE or a cluster")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from cost_models.files import write_whole
    from placer.tf.run.starting import start
    from placer.verbs.calibrate import calibrate
    from placer.verbs.calibrate_network import calibrate_network
    from placer.views.shared.machine import describe

    check_seconds("--budget-s", args.budget_s)
    start()
    machine = calibrate_network(args.cluster, budget_s=args.budget_s) if args.cluster else calibrate(args.budget_s)
    if args.out:
        try:
            write_whole(args.out, machine.to_toml().encode())
        except (OSError, ValueError) as error:
            raise PlacerError(f"{args.out} cannot be written: {error}. The calibration itself is saved.") from error
    return {"machine": asdict(machine)}, describe(machine) + (f"\n\nwrote {args.out}" if args.out else "")
