"""`placer check`: whether a function's plan is still as good as a saved one."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from placer.command.arguments import add_option_flags, add_target, load_plan, options_given
from placer.common.escaping import printable
from placer.common.units import format_ns
from placer.errors import OptionError, WorsePlanError
from placer.verbs.read_target import of_plan, read_target

HELP = "Plan a function anew, and fail if its step is predicted to take longer than in a saved plan."
DEFAULT_TOLERANCE = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="the saved plan")
    add_target(parser)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=DEFAULT_TOLERANCE,
        metavar="SHARE",
        help="how much longer the step may take, as a share of the saved plan's step time (default: %(default)s)",
    )
    parser.add_argument(
        "--devices",
        metavar="NAME",
        help="the machine to plan for: a shipped one's name or a TOML file; by default the machine of the saved plan if it is "
        "a shipped one, otherwise the devices of this process, on which the saved plan must have been made",
    )
    add_option_flags(parser, without=("devices",))


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.graph.assumptions import assumed_in_short
    from placer.verbs.solve import solve

    saved = load_plan(args.plan)
    _, options_of_plan = of_plan(saved)
    given = {"devices": options_of_plan.devices, **options_given(args)}
    graph, options = read_target(args.target, args.signature, given)
    if (assumed := assumed_in_short(graph)) and not assumed_in_short(saved.graph):
        raise OptionError(
            f"{args.target} is planned {assumed}, and {args.plan} assumes nothing, so their step times cannot be compared: "
            "give the sizes and rounds that the saved plan was made with, such as --sizes x=128."
        )
    new = solve(graph, options=replace(options, **given))
    if new.machine != saved.machine and not args.devices:
        raise OptionError(
            f"{args.plan} is for the machine {printable(saved.machine)!r}, and the new plan for {printable(new.machine)!r}, so "
            "their step times cannot be compared: give --devices, with the file that describes the machine of the saved plan."
        )
    difference = saved.diff(new)
    change = new.step_time_ns / saved.step_time_ns - 1
    text = (
        f"a step is predicted to take {format_ns(new.step_time_ns)}; in {args.plan} it is {format_ns(saved.step_time_ns)} "
        f"({change:+.1%}, at most {args.tolerance:+.1%} is allowed)"
    )
    if change > args.tolerance:
        raise WorsePlanError(f"{text}\n\n{difference}")
    return {"change": change, "tolerance": args.tolerance, "difference": asdict(difference)}, f"{text}\n\n{difference}"
