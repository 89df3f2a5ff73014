"""Command-line arguments that several commands share: the flags of `Options`, TARGET, --signature and PLAN."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placer.errors import OptionError
from placer.options import Options
from placer.research.arena.target_forms import GRAPHS, PROBLEMS
from placer.verbs.read_target import DEFAULT_SIGNATURE, SHIPPED, called_as, check_there, target_function

if TYPE_CHECKING:
    from placer.plan.placement import Placement
    from placer.problem.problem import PlacementProblem
    from placer.research.instances.instance import Instance


def add_option_flags(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Adds one flag for each field of `Options`, except for those named in `without`."""
    for option in fields(Options):
        if option.name not in without:
            parser.add_argument("--" + option.name.replace("_", "-"), **_flag_settings(option))


def options_given(args: argparse.Namespace) -> dict[str, Any]:
    """The options that the command line sets, as keywords of `Options`.

    Raises:
        OptionError: one key of a mapping is given twice.
    """
    given = {f.name: value for f in fields(Options) if (value := getattr(args, f.name, None)) is not None}
    return {name: _mapping(name, value) if isinstance(value, list) else value for name, value in given.items()}


def add_target(parser: argparse.ArgumentParser, *, problems: bool = False) -> None:
    """Adds TARGET, the thing to plan, and --signature, which completes it; also --data if targets can be problems."""
    parser.add_argument("target", metavar="TARGET", help=f"{GRAPHS}; or {PROBLEMS}" if problems else GRAPHS)
    if problems:
        add_data(parser)
    parser.add_argument(
        "--signature",
        metavar="TYPES",
        help="of a function: a type for each argument, as 'float32[8,?,3], int32[]', where ? is an unknown size; "
        f"of a SavedModel: the name of one of its signatures (default: {DEFAULT_SIGNATURE})",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    """Adds --data, the folder of published instances."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="where published instances are (default: the environment variable PLACER_DATA)",
    )


def own_problem_of(args: argparse.Namespace, given: dict[str, Any]) -> PlacementProblem | Instance | None:
    """The problem that TARGET names if it names no graph, else None. Errors as of `own_problem`."""
    if args.target.startswith(SHIPPED):
        return None
    from placer.research.arena.own_targets import own_problem

    return own_problem(args.target, given, args.data)


@contextmanager
def example_call(args: argparse.Namespace) -> Iterator[tuple[Any, tuple[Any, ...], Options]]:
    """The plain function that TARGET names, arguments with ordinary values, and its options with those of the command line.

    Starts TensorFlow. An error of the block that says that the function does not take its arguments becomes an OptionError.
    """
    from placer.verbs.solve import look_up

    overrides = options_given(args)
    look_up(Options.of(overrides))
    if args.target.startswith(SHIPPED) or Path(args.target).exists():
        raise OptionError(f"{args.target!r} is no function that can be run: name one as MODULE:FUNCTION.")
    function, specs, options = target_function(args.target, args.signature)
    from placer.tf.run.example_arguments import example_arguments

    with called_as(args.target, args.signature):
        yield function, example_arguments(function, specs), replace(options, **overrides)


def load_plan(path: Path) -> Placement:
    """The plan in the file that PLAN names. Raises OptionError where there is no such file, and PlanError where it is broken."""
    from placer.plan.placement import Placement

    check_there(path)
    if path.is_dir():
        raise OptionError(f"{path} is a folder; PLAN is the file of one plan, which placer solve TARGET --out PLAN writes.")
    return Placement.load(path)


def comma_separated(kind: type) -> Callable[[str], list[Any]]:
    """A type for argparse: values of `kind` between commas."""

    def read(text: str) -> list[Any]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no {kind.__name__},{kind.__name__},...") from error

    return read


def _flag_settings(option: Field[Any]) -> dict[str, Any]:
    """Keywords of `add_argument` for one option. A mapping is a repeated KEY=VALUE; an absent flag is the option's default."""
    text = option.metadata["help"].replace("%", "%%")
    if option.default_factory is not MISSING:
        return {"action": "append", "type": _key_and_value, "metavar": "KEY=VALUE", "help": f"{text}; repeatable"}
    if isinstance(option.default, bool):
        return {"action": argparse.BooleanOptionalAction, "help": text}
    types = str(option.type)
    kind = float if types.startswith("float") else int if types.startswith("int") else str
    default = "" if option.default is None else f" (default: {option.default})"
    return {"type": kind, "metavar": kind.__name__.upper() if kind is not str else "NAME", "help": text + default}


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.rpartition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _mapping(option: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for key, value in pairs:
        if key in mapping:
            raise OptionError(f"{option} has {key!r} twice, as {mapping[key]!r} and as {value!r}: keep one.")
        mapping[key] = value
    return mapping
