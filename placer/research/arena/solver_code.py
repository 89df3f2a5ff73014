"""A digest of the code of a solver, by which runs before and after a change are told apart."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = "placer"


def digest(modules: Iterable[str]) -> str:
    """The start of a SHA-256 of the files of these modules and of all that they import of this package, directly or not."""
    named = {name: Path(file) for name in modules if (file := getattr(sys.modules.get(name), "__file__", None))}
    files = {file for file in named.values() if file.suffix == ".py"}
    unread = list(files)
    while unread:
        new = _imported(unread.pop()) - files
        files |= new
        unread += new
    hashed = hashlib.sha256()
    for file in sorted(files):
        hashed.update(file.read_bytes())
    return hashed.hexdigest()[:12]


@cache
def _imported(file: Path) -> frozenset[Path]:
    """The files of this package that a file imports, inside of functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    paths = (ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names if name.startswith(f"{PACKAGE}."))
    return frozenset(path for path in paths if path.exists())
