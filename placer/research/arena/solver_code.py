"""A digest of the code of a solver, by which runs before and after a change are told apart."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions, version
from pathlib import Path

PACKAGE = "placer"
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of folders that distributions are installed in."""


def digest(modules: Iterable[str]) -> str:
    """The start of a SHA-256 of the code of these modules and of all that they import, directly or not, inside of functions too.

    The code of an installed distribution counts as its name and version, all other code as the content of its files. An editable
    installation counts as files. The standard library is left out. Nothing is imported.

    Args:
        modules: names of modules that are loaded.
    """
    files: dict[str, Path] = {}
    distributions: set[str] = set()
    names: set[str] = set()
    unread: list[tuple[str, Path]] = []

    def add(name: str, file: Path) -> None:
        if name not in files:
            files[name] = file
            unread.append((name, file))

    for name in modules:
        if origin := getattr(sys.modules.get(name), "__file__", None):
            add(name, Path(origin))
    while unread:
        importer, file = unread.pop()
        if file.suffix != ".py":
            continue
        new = _imported(file.read_bytes(), _package_of(importer, file)) - names
        names |= new
        for name in new:
            for spec in _specs(name):
                if installed := _distributions(spec):
                    distributions.update(installed)
                    break
                if spec.origin and spec.has_location:
                    add(spec.name, Path(spec.origin))
    hashed = hashlib.sha256()
    for name, file in sorted(files.items()):
        hashed.update(f"\0{name}\0".encode() + file.read_bytes())
    for distribution in sorted(distributions):
        hashed.update(f"\0{distribution}=={version(distribution)}".encode())
    return hashed.hexdigest()[:12]


def _package_of(module: str, file: Path) -> str:
    """The package that relative imports of a module start from."""
    if module == "__main__":
        return getattr(sys.modules["__main__"], "__package__", None) or ""
    return module if file.name == "__init__.py" else module.rpartition(".")[0]


@cache
def _imported(source: bytes, package: str) -> frozenset[str]:
    """The names of what code imports when it runs: modules, and names of modules that may be modules."""
    names: set[str] = set()
    lazy: set[str] = set()
    for node in _running(ast.parse(source)):
        match node:
            case ast.Import():
                names.update(alias.name for alias in node.names)
            case ast.ImportFrom():
                ancestors = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join(filter(None, [*ancestors, node.module or ""]))
                names.update([base, *(f"{base}.{alias.name}" for alias in node.names)])
            case ast.Call(
                func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[ast.Constant(str(name)), *_]
            ):
                names.add(name)
            case ast.Attribute(value=ast.Name("placer"), attr=name):
                lazy.add(name)
    if PACKAGE in names:  # its public names are loaded when they are used
        home = getattr(sys.modules.get(PACKAGE), "_HOME", {})
        names.update(home[name] for name in lazy if name in home)
    return frozenset(names)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers read."""
    unread = [tree]
    while unread:
        node = unread.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            unread.extend(node.orelse)
            continue
        yield node
        unread.extend(ast.iter_child_nodes(node))


def _specs(name: str) -> Iterator[ModuleSpec]:
    """The module of this name and the packages around it, outermost first, as far as there are such modules."""
    path: list[str] | None = None
    for k, _ in enumerate(parts := name.split("."), 1):
        spec = _spec(".".join(parts[:k]), path)
        if spec is None or parts[0] in sys.stdlib_module_names:
            return
        yield spec
        if spec.submodule_search_locations is None:
            return
        path = list(spec.submodule_search_locations)


def _spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            if (spec := finder.find_spec(name, path)) is not None:
                return spec
        except KeyError:  # a folder without an __init__ in a package that is not loaded
            spec = ModuleSpec(name, None, is_package=True)
            folders = [Path(folder, name.rpartition(".")[2]) for folder in path or ()]
            spec.submodule_search_locations = [str(folder) for folder in folders if folder.is_dir()]
            return spec
    return None


def _distributions(spec: ModuleSpec) -> list[str]:
    """The installed distributions that a module is of; empty for this package and for code that is not installed."""
    top = spec.name.partition(".")[0]
    where = spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None)
    if top == PACKAGE or where is None or INSTALLED.isdisjoint(Path(where).parts):
        return []
    return _installed().get(top, [])


@cache
def _installed() -> dict[str, list[str]]:
    """The distributions of each top-level module."""
    return {module: sorted(set(names)) for module, names in packages_distributions().items()}
