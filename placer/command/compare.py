"""`placer compare`: runs many solvers on many problems and tabulates how they did."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from placer.command.arguments import add_data, add_option_flags, comma_separated, options_given
from placer.errors import OptionError
from placer.options import OF_A_RUN
from placer.research.arena.table_styles import STYLES
from placer.research.arena.target_forms import GRAPHS, PROBLEMS

HELP = "Run many solvers on many problems, each run in a process of its own."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        metavar="TARGET",
        nargs="+",
        help=f"{GRAPHS}; or {PROBLEMS}",
    )
    add_data(parser)
    parser.add_argument("--signature", metavar="TYPES", help="as for solve, of every target that is a function or a SavedModel")
    parser.add_argument(
        "--solvers", type=comma_separated(str), metavar="NAME,...", help="the solvers, also as MODULE:FUNCTION (default: all)"
    )
    parser.add_argument(
        "--seeds", type=comma_separated(int), default=[0], metavar="INT,...", help="seeds of searches (default: 0)"
    )
    parser.add_argument(
        "--time-limits-s",
        type=comma_separated(float),
        metavar="SECONDS,...",
        help="time limits, with a run for each; several show the gap over time (default: 10, if there are no efforts)",
    )
    parser.add_argument(
        "--efforts",
        type=comma_separated(int),
        metavar="INT,...",
        help="limits in evaluations of a step, with a run for each: the same answers on every machine",
    )
    parser.add_argument(
        "--memory-share",
        type=float,
        metavar="FLOAT",
        help="let each accelerator hold what it must and this share of what it holds without a limit",
    )
    parser.add_argument("--jobs", type=int, metavar="INT", help="runs at a time (default: half of the processors)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="add each record there; what is there is not run again")
    parser.add_argument(
        "--tests", choices=["problems", "seeds"], help="also test which solvers differ, over problems or over problems and seeds"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="write records, tables in LaTeX and pictures there (needs placer[research])"
    )
    parser.add_argument("--style", choices=STYLES, default="text", help="how tables are printed (default: text)")
    add_option_flags(parser, without=OF_A_RUN)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.research.arena.arena import arena
    from placer.research.arena.comparison import Comparison

    if args.report is not None or args.tests is not None:  # what is missing is reported before the runs, not after them
        Comparison([]).pairs()
    if args.report is not None:
        Comparison([]).profiles()
        _check_writable(args.report)
    comparison = arena(
        args.targets,
        args.solvers,
        seeds=args.seeds,
        time_limits_s=args.time_limits_s,
        efforts=args.efforts,
        results=args.results,
        jobs=args.jobs,
        signature=args.signature,
        memory_share=args.memory_share,
        data=args.data,
        **options_given(args),
    )
    tables = [comparison.table(args.style), comparison.summary(args.style)]
    if args.tests is not None:
        tables.append(comparison.tests(args.tests, style=args.style))
    if args.report is not None:
        comparison.write(args.report, args.tests or "problems")
    return comparison.to_json(), "\n\n".join(tables)


def _check_writable(folder: Path) -> None:
    """Raises OptionError if the folder cannot be written. Leaves nothing behind."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise OptionError(f"--report {folder} cannot be written: {error.strerror}.") from error
