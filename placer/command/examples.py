"""`placer examples`: lists the example programs that come with placer, prints one, or writes all of them to a folder."""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

import placer
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError, PlacerError

HELP = "List the example programs, print one, or write all of them to a folder."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="print this one")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write all of them to the folder `examples` in this one")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    found = {path.stem: path for path in sorted(_folder().iterdir()) if path.suffix in (".py", ".ipynb")}
    if args.name and args.out:
        raise OptionError("--out writes all examples: give no NAME with it.")
    if args.out:
        return _written([*found.values()], args.out / "examples")
    if not args.name:
        lines = {name: _first_line(path) for name, path in found.items()}
        width = max(map(len, lines))
        return lines, "\n".join(f"{name:{width}}  {line}" for name, line in lines.items())
    if args.name not in found:
        raise OptionError(f"no example is called {args.name!r}{did_you_mean(args.name, found)} There are {', '.join(found)}.")
    text = found[args.name].read_text()
    return {"name": args.name, "text": text}, text


def _folder() -> Path:
    """The examples. A wheel has them inside this package; the repository has them beside it."""
    package = Path(placer.__file__).parent
    return next(folder for folder in (package / "examples", package.parent / "examples") if folder.is_dir())


def _first_line(path: Path) -> str:
    """The first line of a program's docstring, or the title of a notebook."""
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
    first, *_ = json.loads(path.read_text())["cells"][0]["source"]
    return f"{first.strip().removeprefix('# ')} (a notebook)"


def _written(files: list[Path], folder: Path) -> tuple[Any, str]:
    from cost_models.files import write_whole

    if folder.exists():
        raise OptionError(f"{folder} exists: give another folder with --out.")
    try:
        folder.mkdir(parents=True)
        for file in files:
            write_whole(folder / file.name, file.read_bytes())
    except OSError as error:
        raise PlacerError(f"{folder} cannot be written: {error.strerror}.") from error
    written = [str(folder / file.name) for file in files]
    return {"written": written}, "\n".join(written)
