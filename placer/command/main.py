"""The `placer` command: its parser, its exit codes, and how results, errors and warnings are printed.

Exit codes: 0, done; 1, failed, also for a broken file; 2, wrong usage (an option, a target or a device does not exist or cannot
be read); 3, no placement meets the limits, pins and kernels. With --json an error is printed as JSON too:
{"error": {"type": ..., "message": ...}}. Warnings and progress go to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, TextIO

from placer import __version__
from placer.command import (
    cache,
    calibrate,
    check,
    compare,
    convert,
    demo,
    devices,
    diff,
    examples,
    measurements,
    place,
    predict,
    profile,
    scale,
    show,
    solve,
    solvers,
    tune,
    worker,
)
from placer.common.escaping import printable
from placer.errors import ConstraintError, DeviceError, InfeasibleError, OptionError, PlacementWarning, PlacerError
from placer.views.shared.terminal import print_text

DONE, FAILED, USAGE, INFEASIBLE = range(4)
EXIT_CODES: dict[type[PlacerError], int] = {
    OptionError: USAGE,
    DeviceError: USAGE,
    ConstraintError: INFEASIBLE,
    InfeasibleError: INFEASIBLE,
}
INTERRUPTED, BROKEN_PIPE = 130, 141  # as a shell reports them


class Command(Protocol):
    """A module of this room: one command."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Adds what the command takes; --json is added for all."""

    def run(self, args: argparse.Namespace, /) -> tuple[Any, str]:
        """Runs it. Returns the result as plain JSON types, and the same as text."""


COMMANDS: dict[str, Command] = {
    "demo": demo,
    "examples": examples,
    "devices": devices,
    "solvers": solvers,
    "solve": solve,
    "place": place,
    "compare": compare,
    "convert": convert,
    "predict": predict,
    "scale": scale,
    "tune": tune,
    "calibrate": calibrate,
    "profile": profile,
    "measurements": measurements,
    "worker": worker,
    "cache": cache,
    "show": show,
    "diff": diff,
    "check": check,
}
"""By name, in the order in which --help lists them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            args = _parser().parse_args(argv)
            plain, text = args.run(args)
            if args.json:
                print(json.dumps(plain, indent=2), flush=True)
            else:
                print_text(text)
        except PlacerError as error:
            if "--json" in argv:
                print(json.dumps({"error": {"type": type(error).__name__, "message": str(error)}}, indent=2))
            else:
                print(printable(f"placer: error: {error}"), file=sys.stderr)
            return EXIT_CODES.get(type(error), FAILED)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # the reader closed the pipe; the rest of the buffer must not raise once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
    return DONE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Reports arguments that cannot be read as any other error."""
        raise OptionError(f"{message}; {self.prog} --help lists what it takes.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="placer", description="Decides which device every op of a TensorFlow function runs on.")
    parser.add_argument("--version", action="version", version=f"placer {__version__}")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = added.add_parser(name, help=command.HELP, description=command.HELP)
        subparser.add_argument("--json", action="store_true", help="print JSON instead of text, also for errors")
        subparser.set_defaults(run=command.run)
        command.add_arguments(subparser)
    return parser


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    from cost_models.cache import CacheWarning

    if issubclass(category, PlacementWarning | CacheWarning):
        print(printable(f"placer: warning: {message}"), file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)
