"""`placer place`: plans every signature of a SavedModel, and writes the model with its plans."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from placer.command.arguments import add_option_flags, options_given
from placer.common.escaping import one_line
from placer.common.progress import progress
from placer.options import Options

HELP = "Plan every signature of a SavedModel, and write the model with its plans."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, metavar="SAVED_MODEL", help="a SavedModel's folder, or the file of a frozen GraphDef"
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write, for placer.load and tf.saved_model.load")
    parser.add_argument(
        "--with-devices",
        action="store_true",
        help="write the planned devices into the graph, for programs that do not use placer; by default the graph has none",
    )
    add_option_flags(parser)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.tf.run.starting import start
    from placer.verbs.solve import look_up
    from placer.views.shared.facts import model_facts
    from placer.views.shared.words import headline

    options = options_given(args)
    look_up(Options.of(options))
    start()
    from placer.placed.saved_model import place_saved_model

    with progress(f"placing the signatures of {args.source}"):
        placed = place_saved_model(args.source, args.out, with_devices=args.with_devices, **options)
    lines = [one_line(f"{name}: {headline(plan)}") for name, plan in placed.plans.items()]
    lines += [one_line(f"{name}: left as it is: {reason}") for name, reason in placed.unplaced.items()]
    by = "its graph has the devices of these plans" if args.with_devices else "placer.load runs it by these plans"
    return model_facts(placed), "\n".join([*lines, "", f"saved as {args.out}; {by}"])
