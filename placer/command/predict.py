"""`placer predict`: compares predicted step times of a function with measured ones."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.command.arguments import add_option_flags, options_given
from placer.common.units import check_seconds
from placer.errors import OptionError
from placer.options import Options
from placer.verbs.read_target import SHIPPED, called_as, target_function

HELP = "Run a function under several placements, and say how true the predicted times are."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="MODULE:FUNCTION")
    parser.add_argument("--signature", metavar="TYPES", help="as for solve; every size must be known")
    parser.add_argument("--budget-s", type=float, default=30.0, metavar="SECONDS", help="how long to measure (default: 30)")
    add_option_flags(parser)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.tf.run.starting import start
    from placer.verbs.solve import look_up

    overrides = options_given(args)
    look_up(Options.of(overrides))
    check_seconds("--budget-s", args.budget_s)
    if args.target.startswith(SHIPPED) or Path(args.target).exists():
        raise OptionError(f"{args.target!r} is no function that can be run: name one as MODULE:FUNCTION.")
    start()
    from placer.placed.predict import predict
    from placer.tf.run.example_arguments import example_arguments

    function, specs, options = target_function(args.target, args.signature)
    with called_as(args.target, args.signature):
        prediction = predict(
            function, *example_arguments(function, specs), budget_s=args.budget_s, options=replace(options, **overrides)
        )
    return prediction.to_json(), str(prediction)
