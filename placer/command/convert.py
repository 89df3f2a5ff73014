"""`placer convert`: writes the problem of a TARGET to a file of another format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from placer.command.arguments import add_option_flags, add_target, options_given
from placer.errors import OptionError
from placer.options import OF_A_RUN

HELP = "Write the placement problem of a graph or another problem to a file."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser, problems=True)
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="the file to write; its name ends in .npz, .graphml, .dax, .stg, .wfcommons.json or .saga.json",
    )
    add_option_flags(parser, without=(*OF_A_RUN, "objective"))  # the search does not change a problem


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.research.arena.problems import problem_of
    from placer.research.formats.registry import write_problem
    from placer.research.instances.instance import Instance

    problem = problem_of(args.target, options_given(args), args.signature, args.data)
    if isinstance(problem, Instance):
        raise OptionError(f"{args.target} is a split or pairwise problem; only placement problems are written to files.")
    missing = write_problem(problem, args.file)
    text = "\n".join(["the file does not hold:", *(f"  {what}" for what in missing)]) if missing else "the file holds all of it"
    return {"file": str(args.file), "missing": list(missing)}, f"{args.file}: {problem.num_ops} ops; {text}"
