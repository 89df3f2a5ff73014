"""`placer predict`: compares predicted step times of a function with measured ones."""

from __future__ import annotations

import argparse
from typing import Any

from placer.command.arguments import add_option_flags, example_call
from placer.common.units import check_seconds

HELP = "Run a function under several placements, and say how true the predicted times are."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="MODULE:FUNCTION")
    parser.add_argument("--signature", metavar="TYPES", help="as for solve; every size must be known")
    parser.add_argument("--budget-s", type=float, default=30.0, metavar="SECONDS", help="how long to measure (default: 30)")
    add_option_flags(parser)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    check_seconds("--budget-s", args.budget_s)
    with example_call(args) as (function, arguments, options):
        from placer.placed.predict import predict

        prediction = predict(function, *arguments, budget_s=args.budget_s, options=options)
    return prediction.to_json(), str(prediction)
