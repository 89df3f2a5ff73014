"""`placer tune`: finds the fastest way to run a function, and says what was learnt."""

from __future__ import annotations

import argparse
from typing import Any

from placer.command.arguments import add_option_flags, example_call
from placer.common.units import check_seconds

HELP = "Time a function under several placements and compiled as a whole, and report the fastest."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="MODULE:FUNCTION")
    parser.add_argument("--signature", metavar="TYPES", help="as for solve; every size must be known")
    parser.add_argument("--budget-s", type=float, default=30.0, metavar="SECONDS", help="how long it may take (default: 30)")
    parser.add_argument(
        "--compile",
        choices=("try", "off"),
        default="try",
        help="try: also time the function compiled as a whole by XLA, if results agree (default); off: do not",
    )
    parser.add_argument(
        "--side-effects",
        choices=("refuse", "allow"),
        default="refuse",
        help="what to do with a function whose effects cannot be put back: refuse it (default), or allow them",
    )
    add_option_flags(parser)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    check_seconds("--budget-s", args.budget_s)
    with example_call(args) as (function, arguments, options):
        from placer.placed.function import PlacedFunction

        placed = PlacedFunction(function, options)
        tuned = placed.tune(*arguments, budget_s=args.budget_s, compile=args.compile, side_effects=args.side_effects)
    return tuned.to_json(), str(tuned)
