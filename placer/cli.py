"""The `placer` command: the pipeline from a shell, readable or as JSON.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no placement fits.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import MISSING, Field, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from placer.errors import InfeasibleError, OptionError, PlacementWarning, PlacerError
from placer.options import Options
from placer.progress import progress

if TYPE_CHECKING:
    from placer.opgraph import OpGraph
    from placer.placement import Placement

DONE, FAILED, USAGE, INFEASIBLE = range(4)
DEFAULT_SIGNATURE = "serving_default"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; argparse exits by itself with 2 for arguments it cannot read."""
    args = _parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            plain, text = args.run(args)
            print(json.dumps(plain, indent=2) if args.json else text)
        except PlacerError as error:
            print(f"placer: error: {error}", file=sys.stderr)
            return INFEASIBLE if isinstance(error, InfeasibleError) else USAGE if isinstance(error, OptionError) else FAILED
        except KeyboardInterrupt:
            return 130  # as a shell reports an interrupt
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="placer", description="Decides which device every op of a TensorFlow function runs on.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON instead of text")
        added.set_defaults(run=run)
        return added

    demo = command("demo", _demo, "Plan two functions for a GPU machine, run both here by plan and check them.")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the plan and the picture (default: demo)")
    command("devices", _devices, "Show what TensorFlow sees here and which machines can be planned for.")
    command("solvers", _solvers, "List the solvers and where each algorithm comes from.")

    solve = command("solve", _solve, "Plan a function, a SavedModel or a saved graph.")
    solve.add_argument(
        "target", metavar="TARGET", help="a SavedModel's folder, a saved graph or plan (.json), or MODULE:FUNCTION"
    )
    solve.add_argument(
        "--signature",
        metavar="TYPES",
        help=f"a function's arguments, as 'float32[8,224,224,3], int32[]'; a SavedModel's by name ({DEFAULT_SIGNATURE})",
    )
    solve.add_argument("--out", type=Path, metavar="PLAN", help="save the plan there")
    for option in fields(Options):
        solve.add_argument(_flag(option), **_reading(option))

    show = command("show", _show, "Show a saved plan.")
    show.add_argument("plan", metavar="PLAN", type=Path, help="a file that solve --out or Placement.save wrote")
    shown = show.add_mutually_exclusive_group()
    shown.add_argument("--explain", metavar="OP", help="one op: its device, why, and what it costs elsewhere")
    shown.add_argument("--view", metavar="NAME", default="summary", help="a view by name, such as dot or svg (default: summary)")
    return parser


# -- commands: each gives what it found as plain JSON types and as text ------------------------------------------------


def _demo(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.demo import run

    return run(args.out, tell=lambda text: print(text, file=sys.stderr if args.json else sys.stdout, flush=True))


def _devices(_: argparse.Namespace) -> tuple[Any, str]:
    from cost_models.machines import shipped_machines
    from placer.tf.starting import start
    from placer.units import format_bytes
    from placer.views.text import table

    start()
    from placer.tf.devices import local_machine

    machine = local_machine()
    rows = [[d.name, d.model, format_bytes(d.memory_bytes), f"{d.flops['float32'] / 1e9:,.0f}"] for d in machine.devices]
    text = [
        table(["device", "model", "memory", "float32 GFLOP/s"], rows),
        f"\npriced as  {machine.provenance}",
        f"shipped    {', '.join(shipped_machines())}: machines to plan for, as in placer solve --devices h100",
    ]
    return {"machine": asdict(machine), "shipped": shipped_machines()}, "\n".join(text)


def _solvers(_: argparse.Namespace) -> tuple[Any, str]:
    from placer.solvers.registry import solver, solvers

    sources = {name: solver(name).cite() for name in solvers()}
    width = max(map(len, sources))
    return sources, "\n".join(f"{name:{width}}  {source}" for name, source in sources.items())


def _solve(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.solving import solve

    given = {f.name: value for f in fields(Options) if (value := getattr(args, f.name)) is not None}
    options = Options.of({name: dict(value) if isinstance(value, list) else value for name, value in given.items()})
    with progress(f"reading {args.target}"):
        graph = _graph(args.target, args.signature)
    with progress(f"placing {len(graph)} ops"):
        placement = solve(graph, options=options)
    saved = ""
    if args.out is not None:
        placement.save(args.out)
        saved = f"\n\nsaved; see more with placer show {args.out} --explain OP"
    return _plain(placement), placement.summary() + saved


def _show(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.placement import Placement

    placement = Placement.load(args.plan)
    if args.explain is None:
        return _plain(placement), placement.view(args.view)
    name = placement.graph.find(args.explain).name
    return next(row for row in placement.records() if row["name"] == name), placement.explain(name)


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


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.rpartition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _graph(target: str, signature: str | None) -> OpGraph:
    """The op graph of a saved graph or plan, of a SavedModel's signature, or of a function for the types in `signature`."""
    path = Path(target)
    if path.suffix == ".json":
        from placer.opgraph import OpGraph, read_json
        from placer.placement import FORMAT, Placement

        is_plan = read_json(path).get("format") == FORMAT
        return Placement.load(path).graph if is_plan else OpGraph.load(path)
    from placer.tf.starting import start

    start()
    from placer.planning import build_graph
    from placer.tf.targets import load_saved_model, parse_specs

    if path.is_dir():
        model, function = load_saved_model(path, signature or DEFAULT_SIGNATURE)
        graph = build_graph(function)
        del model  # its variables had to live until here
        return graph
    return build_graph(_function(target), *parse_specs(signature or ""))


def _function(target: str) -> Any:
    """The object that "package.module:name.name" names, importing from the working directory too."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise OptionError(f"{target!r} is no SavedModel folder, no .json file that exists, and not MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"{target!r} cannot be imported: {error}") from error
    from placer.decorator import PlacedFunction

    return inspect.unwrap(found) if isinstance(found, PlacedFunction) else found


# -- output ------------------------------------------------------------------------------------------------------------


def _plain(placement: Placement) -> dict[str, Any]:
    """A plan's figures and every op's device, as plain JSON types."""
    figures = ("machine", "objective", "objective_ns", "lower_bound_ns", "gap", "total_cost_ns", "step_time_ns")
    return {
        "graph": placement.graph.name,
        "fingerprint": placement.fingerprint,
        "status": placement.status.value,
        **{name: getattr(placement, name) for name in (*figures, "solver", "solver_seconds", "stop_reason", "notes")},
        "totals": {name: asdict(total) for name, total in placement.totals.items()},
        "baselines": {name: asdict(baseline) for name, baseline in placement.baselines.items()},
        "transfers": [asdict(transfer) for transfer in placement.transfers],
        "devices": {name: plan.device for name, plan in placement.ops.items()},
    }


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, PlacementWarning):
        print(f"placer: warning: {message}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)
