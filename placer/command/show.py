"""`placer show`: a saved plan as a summary, as one op explained, as a table of ops, or in any view."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placer.command.arguments import load_plan
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError
from placer.plan.views import views

if TYPE_CHECKING:
    from placer.plan.model_plans import ModelPlans
    from placer.plan.placement import Placement

HELP = "Show a saved plan: a summary, one op, a table of ops, or any view."
FILTERS = ("device", "op_type", "scope", "crossing", "flagged", "moved", "sort", "limit")
"""Flags of the table of ops."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    places = "a file that solve --out or Placement.save wrote, or the folder that placer place wrote"
    parser.add_argument("plan", metavar="PLAN", type=Path, help=places)
    parser.add_argument("--signature", metavar="NAME", help="of a SavedModel: the signature whose plan is shown")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--explain", metavar="OP", help="one op: its device, why, and what it costs elsewhere")
    choice.add_argument("--view", metavar="NAME", help=f"one of {', '.join(views())}")
    parser.add_argument("--out", type=Path, metavar="PATH", help="write the view there: a file, or a folder for tensorboard")
    filters = parser.add_argument_group("a table of the ops that pass every filter given")
    filters.add_argument("--device", metavar="SPEC", help="only ops on this device, such as GPU or GPU:0")
    filters.add_argument("--type", dest="op_type", metavar="GLOB", help="only ops of these types, such as MatMul or '*Grad*'")
    filters.add_argument("--scope", metavar="SCOPE", help="only ops whose names begin with this scope, or match this glob")
    filters.add_argument("--crossing", action="store_true", default=None, help="only ops with tensors to or from another device")
    filters.add_argument(
        "--flagged", action="store_true", default=None, help="only ops that are stateful or depend on the device"
    )
    filters.add_argument("--moved", action="store_true", default=None, help="only ops elsewhere than TensorFlow would put them")
    filters.add_argument("--sort", metavar="BY", help="sort by order (of execution), time, bytes or name")
    filters.add_argument("--limit", type=int, metavar="N", help="show the first N")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.views.ops import rows
    from placer.views.shared.facts import op_facts, plan_facts

    filters = {name: value for name in FILTERS if (value := getattr(args, name)) is not None}
    if args.view == "explain":
        raise OptionError("the view 'explain' is of one op: use --explain OP.")
    if filters and (args.explain is not None or args.view not in (None, "ops")):
        raise OptionError(f"--{next(iter(filters)).replace('op_type', 'type')} is for the table of ops alone.")
    if args.out is not None and args.view is None:
        raise OptionError("--out is for a view: name it with --view.")
    if args.plan.is_dir() and args.signature is None and not (filters or args.view or args.explain):
        return _of_all_signatures(_model_plans(args.plan))
    placement = _plan(args.plan, args.signature)
    if args.explain is not None:
        return op_facts(placement, args.explain), placement.explain(args.explain)
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
    return plan_facts(placement), placement.summary()


def _plan(path: Path, signature: str | None) -> Placement:
    """The plan in a file, or of a signature of a SavedModel."""
    if not path.is_dir():
        if signature is not None:
            raise OptionError(f"--signature is for SavedModels: {path} has one plan.")
        return load_plan(path)
    placed = _model_plans(path)
    if signature is None and len(placed.plans) > 1:
        raise OptionError(f"{path} has several plans: choose one of {', '.join(placed.plans)} with --signature.")
    name = next(iter(placed.plans), "") if signature is None else signature
    if name not in placed.plans:
        reason = f": {placed.unplaced[name]}" if name in placed.unplaced else did_you_mean(name, placed.plans)
        raise OptionError(f"{path} has no plan of a signature {name!r}{reason}")
    return placed.plans[name]


def _model_plans(folder: Path) -> ModelPlans:
    from placer.plan.model_plans import ModelPlans

    placed = ModelPlans.load(folder)
    if not (placed.plans or placed.unplaced):
        raise OptionError(f"{folder} has no plans: placer place writes a SavedModel with plans.")
    return placed


def _of_all_signatures(placed: ModelPlans) -> tuple[Any, str]:
    from placer.views.shared.facts import model_facts

    texts = [f"signature {name}\n{plan.summary()}" for name, plan in placed.plans.items()]
    texts += [f"signature {name}: left as it is: {reason}" for name, reason in placed.unplaced.items()]
    return model_facts(placed), "\n\n".join(texts)
