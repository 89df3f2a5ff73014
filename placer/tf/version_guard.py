"""A warning where TensorFlow is a version that placer was not checked with, naming the private names that changed."""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models.auto import installed_tensorflow
from placer.errors import PlacementWarning

CHECKED_VERSIONS = ("2.20", "2.21")
"""TensorFlow versions with which all tests pass. Private names of TensorFlow may change with any version."""


def warn_of_unchecked_version() -> None:
    """Warns once if the installed TensorFlow is none of `CHECKED_VERSIONS`. Imports TensorFlow only then."""
    version = installed_tensorflow()
    if not version or version.startswith(tuple(f"{checked}." for checked in CHECKED_VERSIONS)):
        return
    files = sorted(Path(__file__).parent.rglob("*.py"))
    warnings.warn(message(version, changed_names(file.read_text() for file in files)), PlacementWarning, stacklevel=2)


def message(version: str, changed: Iterable[str]) -> str:
    """The warning for a version of TensorFlow and the private names that changed in it."""
    names = ", ".join(changed)
    effect = (
        f"It lacks private names that placer uses, or takes other arguments for them: {names}. Expect errors."
        if names
        else "It has all private names that placer uses, but what they do may have changed."
    )
    checked = " and ".join(CHECKED_VERSIONS)
    return (
        f"placer was not checked with TensorFlow {version}, only with {checked}. {effect} "
        f"Way out: pip install 'tensorflow=={CHECKED_VERSIONS[-1]}.*'"
    )


@dataclass(frozen=True, slots=True)
class _Use:
    """A use of ``module.attribute``, and the number of arguments and the keywords if it is called."""

    module: str
    attribute: str
    called: tuple[int, tuple[str, ...]] | None = None


def changed_names(sources: Iterable[str]) -> list[str]:
    """Names from TensorFlow's private modules that Python sources use and that are missing, or cannot be called as there.

    Args:
        sources: Python code, one text for each module.
    """
    uses = dict.fromkeys(use for source in sources for use in _private_uses(ast.parse(source)))
    return sorted({f"{use.module}.{use.attribute}" for use in uses if not _is_as_expected(use)})


def _private_uses(tree: ast.Module) -> Iterator[_Use]:
    """The names that a module imports from ``tensorflow.python`` and ``tensorflow.core``, and the attributes it takes of them."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("tensorflow.python", "tensorflow.core")):
            for alias in node.names:
                yield _Use(str(node.module), alias.name)
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield _Use(modules[node.value.id], node.attr, _arguments(called.get(id(node))))


def _arguments(call: ast.Call | None) -> tuple[int, tuple[str, ...]] | None:
    if call is None or any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return None
    return len(call.args), tuple(str(keyword.arg) for keyword in call.keywords)


def _is_as_expected(use: _Use) -> bool:
    try:
        value = getattr(_imported(use.module), use.attribute)
    except (ImportError, AttributeError):
        return _is_module(f"{use.module}.{use.attribute}")
    if use.called is None:
        return True
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # compiled code has none
        return True
    count, keywords = use.called
    try:
        signature.bind(*[None] * count, **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def _imported(path: str) -> Any:
    """A module, or a class of one."""
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _is_module(path: str) -> bool:
    try:
        importlib.import_module(path)
    except ImportError:
        return False
    return True
