"""`placer cache`: lists, shows and clears the plans that are remembered."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placer.common.tables import table
from placer.common.units import format_bytes
from placer.errors import OptionError, PlacerError

if TYPE_CHECKING:
    from placer.plan.plan_store import Listed, PlanStore

HELP = "List the plans that are remembered, show one, or clear all or some of them."
_KEY_DIGITS = 12
"""So many digits of a key are printed; any number that fits one entry names it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "show", "clear"), default="list", help="by default list")
    parser.add_argument("key", nargs="?", default="", metavar="KEY", help="the first digits of a key that the list has")
    parser.add_argument("--save", type=Path, metavar="FILE", help="with show: write the plan, for placer show FILE")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.plan.plan_store import PlanStore

    store = PlanStore()
    entries = store.listed(args.key)
    if args.key and not entries:
        raise OptionError(f"no remembered plan has a key that starts with {args.key!r}; placer cache lists them.")
    if args.save and args.action != "show":
        raise OptionError("--save is for placer cache show KEY.")
    if args.action == "list":
        return _list(store, entries)
    if args.action == "show":
        return _show(store, entries, args.save)
    return _clear(store, entries)


def _list(store: PlanStore, entries: list[Listed]) -> tuple[Any, str]:
    rows = [
        [e.key[:_KEY_DIGITS], e.function, e.signature, f"{e.ops} ops on {e.machine}", e.result, format_bytes(e.nbytes), e.made]
        for e in entries
    ]
    plain = {"store": str(store.path), "plans": [asdict(entry) for entry in entries]}
    if not entries:
        return plain, f"{store.path}\nno plan is remembered yet"
    return plain, f"{store.path}\n{table(['key', 'function', 'signature', 'plan', 'step', 'size', 'made (UTC)'], rows)}"


def _show(store: PlanStore, entries: list[Listed], save: Path | None) -> tuple[Any, str]:
    from placer.graph.seen import Seen
    from placer.plan.placement import Placement
    from placer.plan.plan_store import unpacked

    if len(entries) != 1:
        raise OptionError(
            f"{len(entries)} remembered plans have a key that begins so: give more digits. placer cache lists them."
        )
    entry = store.get(entries[0].key)
    if entry is None:
        raise PlacerError(f"the plan {entries[0].key[:_KEY_DIGITS]} is damaged; it is no longer remembered.")
    try:
        placement = Placement.from_json(unpacked(entry.plan), f"the remembered plan {entry.key[:_KEY_DIGITS]}")
        seen = unpacked(entry.call_plan)["seen"]
        seen_text = str(Seen.from_json(seen)) if seen else ""
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PlacerError(f"the remembered plan {entry.key[:_KEY_DIGITS]} is broken: {error}") from error
    if save:
        placement.save(save)
    text = f"{entry.function} ({entry.signature}), made {entry.made} UTC\n{placement.summary()}"
    return {**asdict(entries[0]), "seen": seen, "plan": placement.to_json()}, f"{text}\nseen:\n{seen_text}" if seen_text else text


def _clear(store: PlanStore, entries: list[Listed]) -> tuple[Any, str]:
    from cost_models.sqlite_file import FILE_ERRORS

    try:
        if entries:
            store.delete([entry.key for entry in entries])
    except FILE_ERRORS as error:
        raise PlacerError(f"{store.path} cannot be cleared: {error}") from error
    return {
        "store": str(store.path),
        "cleared": len(entries),
    }, f"{len(entries)} plan{' is' if len(entries) == 1 else 's are'} no longer remembered"
