"""Settings of Sphinx, which makes the site: `make docs`."""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]

project = _PROJECT["name"]
version = release = _PROJECT["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["images"]
default_role = "py:obj"  # single backticks in docstrings are names
html_theme = "furo"
html_title = f"placer {version}"
html_static_path = ["images"]
html_show_copyright = False

myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]*)\)")


def _with_links_out(_: Any, name: str, source: list[str]) -> None:
    """Makes links of pages to files outside of docs/ lead to the repository, if pyproject.toml names one; else removes them."""
    repository = _PROJECT.get("urls", {}).get("Repository", "").rstrip("/")
    folder = posixpath.dirname(posixpath.join("docs", name))

    def replaced(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return link.group()
        return f"[{text}]({repository}/blob/main/{path})" if repository else text

    source[0] = _LINK.sub(replaced, source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _with_links_out)
