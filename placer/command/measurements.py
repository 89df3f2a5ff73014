"""`placer measurements`: counts the stored measurements, and carries them from one machine to another."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from placer.errors import PlacerError

HELP = "Count the stored measurements; export them, or import those of a machine of the same kind."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import", dest="add", type=Path, metavar="FILE", help="add the measurements of an export that are not stored here yet"
    )
    parser.add_argument("--export", type=Path, metavar="FILE", help="write all measurements as JSON")


def run(args: argparse.Namespace) -> tuple[Any, str]:
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
