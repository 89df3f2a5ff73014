"""`placer show`: a saved plan as a summary, as one op explained, as a table of ops, or in any view."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from placer.command.arguments import load_plan
from placer.errors import OptionError
from placer.plan.views import views

HELP = "Show a saved plan: a summary, one op, a table of ops, or any view."
FILTERS = ("device", "op_type", "scope", "crossing", "flagged", "moved", "sort", "limit")
"""Flags of the table of ops."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="a file that solve --out or Placement.save wrote")
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
    placement = load_plan(args.plan)
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
