"""`placer solve`: plans a TARGET, and saves the plan."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.command.arguments import add_option_flags, add_target, options_given
from placer.common.progress import progress
from placer.errors import OptionError
from placer.options import Options
from placer.verbs.read_target import read_target

HELP = "Plan a function, a SavedModel or a saved graph."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--out", type=Path, metavar="PLAN", help="save the plan there")
    add_option_flags(parser)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.verbs.solve import look_up, solve
    from placer.views.shared.facts import plan_facts

    overrides = options_given(args)
    look_up(Options.of(overrides))
    if args.out is not None:
        _check_writable(args.out)
    with progress(f"reading {args.target}"):
        graph, options = read_target(args.target, args.signature, overrides)
        options = replace(options, **overrides)
        if options.devices is None:
            from placer.tf.run.starting import start

            start()
            if args.target.endswith(".json"):
                print("placer: planned for what TensorFlow sees here; --devices names another machine", file=sys.stderr)
    with progress(f"placing {len(graph)} ops"):
        placement = solve(graph, options=options)
    saved = ""
    if args.out is not None:
        placement.save(args.out)
        saved = f"\n\nsaved; see more with placer show {args.out} --explain OP"
    return plan_facts(placement), placement.summary() + saved


def _check_writable(path: Path) -> None:
    """Raises OptionError where no file can be written at `path`, before the time for planning is spent."""
    from cost_models.files import check_writable

    try:
        check_writable(path)
    except OSError as error:
        raise OptionError(f"--out {path} cannot be written: {error.strerror}.") from error
