"""`placer solve`: plans a TARGET, and saves the plan; or solves the problem that it names, and saves the answer."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.command.arguments import add_option_flags, add_target, options_given, own_problem_of
from placer.common.progress import progress
from placer.errors import OptionError
from placer.options import Options
from placer.verbs.read_target import read_target

HELP = "Plan a function, a SavedModel or a saved graph; or solve a problem of placer compare."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser, problems=True)
    parser.add_argument("--out", type=Path, metavar="PLAN", help="save the plan there, or the answer to a problem")
    add_option_flags(parser)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.verbs.solve import look_up, solve
    from placer.views.shared.facts import plan_facts

    overrides = options_given(args)
    if args.out is not None:
        _check_writable(args.out)
    with progress(f"reading {args.target}"):
        own = own_problem_of(args, overrides)
    if own is not None:
        return _solve_own(args, own, overrides)
    look_up(Options.of(overrides))
    with progress(f"reading {args.target}"):
        graph, options = read_target(args.target, args.signature, overrides)
        options = replace(options, **overrides)
        if options.devices is None:
            from placer.tf.run.starting import start

            start()
            if args.target.endswith((".json", ".onnx")):
                print("placer: planned for what TensorFlow sees here; --devices names another machine", file=sys.stderr)
    with progress(f"placing {len(graph)} ops"):
        placement = solve(graph, options=options)
    saved = ""
    if args.out is not None:
        placement.save(args.out)
        saved = f"\n\nsaved; see more with placer show {args.out} --explain OP"
    return plan_facts(placement), placement.summary() + saved


def _solve_own(args: argparse.Namespace, problem: Any, given: dict[str, Any]) -> tuple[Any, str]:
    """Solves a problem that is no graph."""
    from placer.research.arena.one_run import save_answer, solve_own, summary

    if args.signature is not None:
        raise OptionError(f"--signature is for functions and SavedModels; {args.target} is a problem already.")
    with progress(f"solving {args.target}"):
        record = solve_own(args.target, problem, given)
    if args.out is not None:
        save_answer(problem, record, args.out)
    return record, summary(record) + (f"\n\nsaved in {args.out}" if args.out is not None else "")


def _check_writable(path: Path) -> None:
    """Raises OptionError where no file can be written at `path`, before the time for planning is spent."""
    from cost_models.files import check_writable

    try:
        check_writable(path)
    except OSError as error:
        raise OptionError(f"--out {path} cannot be written: {error.strerror}.") from error
