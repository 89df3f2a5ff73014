"""The `placer` command: the pipeline from a shell, readable or as JSON.

Exit codes: 0 done; 1 failed; 2 wrong usage, which is an option, a target or a device that is not there or cannot be read;
3 nothing meets the limits, pins and kernels. With --json what failed is printed as JSON too:
{"error": {"type": ..., "message": ...}}. Warnings and progress go to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from cost_models.cache import CacheWarning
from placer import __version__
from placer.command.targets import DEFAULT_SIGNATURE, SHIPPED, called_as, check_there, read_target, target_function
from placer.common.progress import progress
from placer.common.units import check_seconds
from placer.errors import ConstraintError, DeviceError, InfeasibleError, OptionError, PlacementWarning, PlacerError
from placer.options import OF_A_RUN, Options
from placer.views.registry import views
from placer.views.terminal import show

if TYPE_CHECKING:
    from placer.plan.placement import Placement
    from placer.research.arena.comparison import Comparison

DONE, FAILED, USAGE, INFEASIBLE = range(4)
CODES: dict[type[PlacerError], int] = {
    OptionError: USAGE,
    DeviceError: USAGE,
    ConstraintError: INFEASIBLE,
    InfeasibleError: INFEASIBLE,
}
INTERRUPTED, BROKEN_PIPE = 130, 141  # as a shell reports them
FILTERS = ("device", "op_type", "scope", "crossing", "flagged", "moved", "sort", "limit")  # of show's table of ops


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
                show(text)
        except PlacerError as error:
            if "--json" in argv:
                print(json.dumps({"error": {"type": type(error).__name__, "message": str(error)}}, indent=2))
            else:
                print(f"placer: error: {error}", file=sys.stderr)
            return CODES.get(type(error), FAILED)
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # who read has enough; what is still in the buffer must not fail once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
    return DONE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Arguments that cannot be read fail like everything else."""
        raise OptionError(f"{message}; {self.prog} --help says what there is.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="placer", description="Decides which device every op of a TensorFlow function runs on.")
    parser.add_argument("--version", action="version", version=f"placer {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON instead of text, also where it fails")
        added.set_defaults(run=run)
        return added

    demo = command("demo", _demo, "Plan two functions for a GPU machine, run both here by plan and check them.")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for plans and a picture (default: demo)")
    command("devices", _devices, "Show what TensorFlow sees here and which machines can be planned for.")
    listed = command("solvers", _solvers, "List the solvers and where each algorithm comes from.")
    listed.add_argument("--cite", metavar="NAME", help="what to cite for one of them, a reference a line")

    solve = command("solve", _solve, "Plan a function, a SavedModel or a saved graph.")
    solve.add_argument(
        "target", metavar="TARGET", help="a SavedModel's folder, a saved graph or plan (.json), MODULE:FUNCTION, or shipped:NAME"
    )
    solve.add_argument(
        "--signature",
        metavar="TYPES",
        help="of a function: a type for each argument, as 'float32[8,?,3], int32[]', where ? is an unknown size; "
        f"of a SavedModel: the name of one of its signatures (default: {DEFAULT_SIGNATURE})",
    )
    solve.add_argument("--out", type=Path, metavar="PLAN", help="save the plan there")
    for option in fields(Options):
        solve.add_argument(_flag(option), **_reading(option))

    compare = command("compare", _compare, "Run many solvers on many problems, each run in a process of its own.")
    compare.add_argument(
        "targets",
        metavar="TARGET",
        nargs="+",
        help="as for solve; or family:SHAPE,KEY=NUMBER,... for a made-up problem, adversarial:LOSER,WINNER,KEY=NUMBER,... for "
        "one on which a solver loses most to another, a saved problem (.npz)",
    )
    compare.add_argument("--signature", metavar="TYPES", help="as for solve, of every target that is a function or a SavedModel")
    compare.add_argument("--solvers", type=_listed(str), metavar="NAME,...", help="which (default: every registered one)")
    compare.add_argument("--seeds", type=_listed(int), default=[0], metavar="INT,...", help="of searches (default: 0)")
    compare.add_argument(
        "--time-limits-s",
        type=_listed(float),
        default=[10.0],
        metavar="SECONDS,...",
        help="a run for each; several show the gap over time (default: 10)",
    )
    compare.add_argument(
        "--memory-share",
        type=float,
        metavar="FLOAT",
        help="let each accelerator hold what it must and this share of what it holds without a limit",
    )
    compare.add_argument("--jobs", type=int, metavar="INT", help="runs at a time (default: half of the processors)")
    compare.add_argument("--results", type=Path, metavar="FILE", help="add each record there; what is there is not run again")
    compare.add_argument("--plots", type=Path, metavar="FOLDER", help="draw profiles.svg and gaps.svg there (with matplotlib)")
    compare.add_argument("--markdown", action="store_true", help="tables in markdown")
    for option in fields(Options):
        if option.name not in OF_A_RUN:
            compare.add_argument(_flag(option), **_reading(option))

    predict = command("predict", _predict, "Run a function under several placements, and say how true the predicted times are.")
    predict.add_argument("target", metavar="TARGET", help="MODULE:FUNCTION")
    predict.add_argument("--signature", metavar="TYPES", help="as for solve; every size must be known")
    predict.add_argument("--budget-s", type=float, default=30.0, metavar="SECONDS", help="how long to measure (default: 30)")
    for option in fields(Options):
        predict.add_argument(_flag(option), **_reading(option))

    calibrate = command("calibrate", _calibrate, "Measure this machine; every later plan for it uses what was found.")
    least = "the machine's constants are measured however short it is, at least some 10 s, longer on a busy machine or with GPUs"
    told = f"how long to measure (default: 60); {least}; common ops take the rest"
    calibrate.add_argument("--budget-s", type=float, default=60.0, metavar="SECONDS", help=told)

    profile = command("profile", _profile, "Measure the ops of functions on the devices here; started again, it goes on.")
    profile.add_argument("targets", metavar="TARGET", nargs="+", help="as for solve")
    profile.add_argument("--signature", metavar="TYPES", help="as for solve")
    profile.add_argument("--budget-s", type=float, default=60.0, metavar="SECONDS", help="how long to measure (default: 60)")

    measurements = command("measurements", _measurements, "Count what was measured; take it to another machine of the kind.")
    measurements.add_argument("--import", dest="add", type=Path, metavar="FILE", help="add what another store's export has more")
    measurements.add_argument("--export", type=Path, metavar="FILE", help="write everything as JSON")

    show = command("show", _show, "Show a saved plan: a summary, one op, a table of ops, or any view.")
    show.add_argument("plan", metavar="PLAN", type=Path, help="a file that solve --out or Placement.save wrote")
    shown = show.add_mutually_exclusive_group()
    shown.add_argument("--explain", metavar="OP", help="one op: its device, why, and what it costs elsewhere")
    shown.add_argument("--view", metavar="NAME", help=f"one of {', '.join(views())}")
    show.add_argument("--out", type=Path, metavar="PATH", help="write the view there: a file, or a folder for tensorboard")
    chosen = show.add_argument_group("a table of ops, of those that all filters let through")
    chosen.add_argument("--device", metavar="SPEC", help="such as GPU or GPU:0")
    chosen.add_argument("--type", dest="op_type", metavar="GLOB", help="of the op type, such as MatMul or '*Grad*'")
    chosen.add_argument("--scope", metavar="SCOPE", help="what names begin with, or a glob of names")
    chosen.add_argument("--crossing", action="store_true", default=None, help="only ops with tensors to or from another device")
    chosen.add_argument("--flagged", action="store_true", default=None, help="only ops that are stateful or depend on the device")
    chosen.add_argument("--moved", action="store_true", default=None, help="only ops elsewhere than TensorFlow would put them")
    chosen.add_argument("--sort", metavar="BY", help="order (of execution), time, bytes or name")
    chosen.add_argument("--limit", type=int, metavar="N", help="show the first N")

    diff = command("diff", _diff, "Compare two saved plans: which ops move, and what that does to time, transfers and memory.")
    diff.add_argument("first", metavar="A", type=Path)
    diff.add_argument("second", metavar="B", type=Path)
    return parser


# -- commands: each gives what it found as plain JSON types and as text ------------------------------------------------


def _demo(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.command.demo import run

    return run(args.out, tell=lambda text: None if args.json else print(text, flush=True))


def _devices(_: argparse.Namespace) -> tuple[Any, str]:
    from cost_models.machines import shipped_machines
    from placer.tf.run.starting import start
    from placer.views.machine import describe

    start()
    from placer.tf.devices import local_machine

    machine = local_machine()
    shipped = f"shipped    {', '.join(shipped_machines())}: machines to plan for, as in placer solve --devices h100"
    return {"machine": asdict(machine), "shipped": shipped_machines()}, f"{describe(machine)}\n{shipped}"


def _solvers(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.solvers.registry import solver, solvers

    if args.cite is not None:
        cited = solver(args.cite).cite()
        return {args.cite: cited}, cited
    sources = {name: solver(name).cite() for name in solvers()}
    width = max(map(len, sources))
    return sources, "\n".join(
        f"{name if k == 0 else '':{width}}  {line}"
        for name, source in sources.items()
        for k, line in enumerate(source.splitlines())
    )


def _solve(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.verbs.solve import look_up, solve
    from placer.views.plain import overview

    given = _given(args)
    look_up(Options.of(given))
    if args.out is not None:
        _check_writable(args.out)
    with progress(f"reading {args.target}"):
        graph, options = read_target(args.target, args.signature)
        options = replace(options, **given)
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
    return overview(placement), placement.summary() + saved


def _compare(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.research.arena.arena import arena
    from placer.research.arena.comparison import Comparison

    if args.plots is not None:
        _draw(Comparison([]), args.plots)  # whether it can be is told before the work, not after it
    found = arena(
        args.targets,
        args.solvers,
        seeds=args.seeds,
        time_limits_s=args.time_limits_s,
        results=args.results,
        jobs=args.jobs,
        signature=args.signature,
        memory_share=args.memory_share,
        **_given(args),
    )
    if args.plots is not None:
        _draw(found, args.plots)
    tables = (found.table(markdown=args.markdown), found.summary(markdown=args.markdown))
    return found.to_json(), "\n\n".join(tables)


def _predict(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.tf.run.starting import start
    from placer.verbs.solve import look_up

    given = _given(args)
    look_up(Options.of(given))
    check_seconds("--budget-s", args.budget_s)
    if args.target.startswith(SHIPPED) or Path(args.target).exists():
        raise OptionError(f"{args.target!r} is no function that can be run: name one as MODULE:FUNCTION.")
    start()
    from placer.tf.run.running import made_up
    from placer.verbs.predict import predict

    function, specs, options = target_function(args.target, args.signature)
    with called_as(args.target, args.signature):
        found = predict(function, *made_up(function, specs), budget_s=args.budget_s, options=replace(options, **given))
    return found.to_json(), str(found)


def _calibrate(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.tf.run.starting import start
    from placer.verbs.calibrate import calibrate
    from placer.views.machine import describe

    check_seconds("--budget-s", args.budget_s)
    start()
    machine = calibrate(args.budget_s)
    return {"machine": asdict(machine)}, describe(machine)


def _profile(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.tf.run.starting import start
    from placer.verbs.profile import profile

    check_seconds("--budget-s", args.budget_s)
    start()
    graphs = []
    for target in args.targets:
        with progress(f"reading {target}"):
            graphs.append(read_target(target, args.signature)[0])
    found = profile(graphs, args.budget_s)
    return asdict(found), str(found)


def _measurements(args: argparse.Namespace) -> tuple[Any, str]:
    from cost_models.exports import export_json, import_json
    from cost_models.store import Store, StoreError

    store = Store()
    try:
        added = store.add_missing(import_json(args.add)) if args.add else 0
        if args.export:
            export_json(store.rows(), args.export)
    except StoreError as error:
        raise PlacerError(str(error)) from error
    rows = [{"device_model": model, "tensorflow": version, "ops": ops} for (model, version), ops in store.counts().items()]
    lines = [f"{row['ops']:6} ops on {row['device_model']} under TensorFlow {row['tensorflow']}" for row in rows]
    lines += [f"{added} of them new"] if args.add else []
    return {"store": str(store.path), "measured": rows, "new": added}, "\n".join(
        [str(store.path), *(lines or ["nothing is measured yet"])]
    )


def _show(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.views.listing import rows
    from placer.views.plain import overview, story

    filters = {name: value for name in FILTERS if (value := getattr(args, name)) is not None}
    if args.view == "explain":
        raise OptionError("the view 'explain' is of one op: use --explain OP.")
    if filters and (args.explain is not None or args.view not in (None, "ops")):
        raise OptionError(f"--{next(iter(filters)).replace('op_type', 'type')} is for the table of ops alone.")
    if args.out is not None and args.view is None:
        raise OptionError("--out is for a view: name it with --view.")
    placement = _plan(args.plan)
    if args.explain is not None:
        return story(placement, args.explain), placement.explain(args.explain)
    if args.out is not None:
        placement.write(args.view, args.out, **filters)
        return {"view": args.view, "out": str(args.out)}, f"wrote {args.out}"
    if filters or args.view == "ops":
        limit = filters.pop("limit", None)
        return rows(placement, **filters)[:limit], str(placement.view("ops", limit=limit, **filters))
    if args.view is not None:
        drawn = placement.view(args.view)
        if not isinstance(drawn, str):
            raise OptionError(f"the view {args.view!r} is not text: say where to write it with --out.")
        return {"view": args.view, "text": drawn}, drawn
    return overview(placement), placement.summary()


def _diff(args: argparse.Namespace) -> tuple[Any, str]:
    first, second = (_plan(path) for path in (args.first, args.second))
    found = first.diff(second)
    return asdict(found), str(found)


# -- arguments ---------------------------------------------------------------------------------------------------------


def _flag(option: Field[Any]) -> str:
    return "--" + option.name.replace("_", "-")


def _reading(option: Field[Any]) -> dict[str, Any]:
    """How argparse reads one option: mappings as repeated KEY=VALUE; absent means the option's own default."""
    text = option.metadata["help"].replace("%", "%%")
    if option.default_factory is not MISSING:
        return {"action": "append", "type": _pair, "metavar": "KEY=VALUE", "help": f"{text}; repeatable"}
    kind = int if isinstance(option.default, int) else float if "float" in str(option.type) else str
    default = "" if option.default is None else f" (default: {option.default})"
    return {"type": kind, "metavar": kind.__name__.upper() if kind is not str else "NAME", "help": text + default}


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The options on the command line, as keywords."""
    found = {f.name: value for f in fields(Options) if (value := getattr(args, f.name, None)) is not None}
    return {name: _mapping(name, value) if isinstance(value, list) else value for name, value in found.items()}


def _listed(kind: type) -> Callable[[str], list[Any]]:
    """How argparse reads values between commas."""

    def read(text: str) -> list[Any]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no {kind.__name__},{kind.__name__},...") from error

    return read


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.rpartition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _mapping(option: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in found:
            raise OptionError(f"{option} has {key!r} twice, as {found[key]!r} and as {value!r}: keep one.")
        found[key] = value
    return found


def _plan(path: Path) -> Placement:
    from placer.plan.placement import Placement

    check_there(path)
    return Placement.load(path)


def _check_writable(path: Path) -> None:
    """OptionError unless a file can be written there: told before the work, not after it."""
    new = not path.exists()
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise OptionError(f"--out {path} cannot be written: {error.strerror}.") from error
    if new:
        path.unlink()


# -- output ------------------------------------------------------------------------------------------------------------


def _draw(found: Comparison, folder: Path) -> None:
    pictures = {"profiles.svg": found.profiles(), "gaps.svg": found.gaps()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            (folder / name).write_text(picture)
    except OSError as error:
        raise OptionError(f"--plots {folder} cannot be written: {error.strerror}.") from error


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, PlacementWarning | CacheWarning):
        print(f"placer: warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)
