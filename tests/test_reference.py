"""The reference pages follow the code, every link leads somewhere, and the commands of the pages are commands."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import placer
from docs import reference
from placer.command.main import _parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
RAW = REPOSITORY.replace("github.com", "raw.githubusercontent.com")


@pytest.mark.parametrize("page", reference.pages(), ids=lambda page: page.stem)
def test_the_reference_is_as_the_code_says(page: Path) -> None:
    assert page.read_text() == reference.pages()[page], "python -m docs.reference writes the page"


def test_every_option_has_a_section() -> None:
    sections = re.findall(r"^## `(\w+)`$", reference.OPTIONS.read_text(), re.MULTILINE)
    assert sections == [option.name for option in reference.fields(reference.Options)]


def test_the_page_of_environment_variables_names_those_that_are_read_or_set() -> None:
    sources = [path for package in ("placer", "cost_models") for path in (ROOT / package).rglob("*.py")]
    used = {name for path in sources for name in _environment_variables(ast.parse(path.read_text()))}
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "environment.md").read_text(), re.MULTILINE)
    assert set(listed) == used


def test_the_page_of_the_api_has_every_public_name() -> None:
    listed = re.findall(r"^\.\. auto\w+:: placer\.([\w.]+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    errors = {name for name in placer.__all__ if getattr(placer, name).__module__ == "placer.errors"}
    assert set(listed) - {"errors", "keras.optimize"} == set(placer.__all__) - errors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(page.read_text())):
        path, _, anchor = _in_checkout(page, link).partition("#")
        target = Path(path)
        if path and (not target.exists() or (anchor and anchor not in _anchors(target))):
            broken.append(link)
    assert broken == []


def test_every_link_of_the_readme_is_absolute_so_that_it_holds_on_a_package_index() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text())
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_read(page: Path) -> None:
    if page == reference.COMMAND_LINE:
        return  # made from the parsers
    text = page.read_text()
    fenced = "".join(re.findall(r"^```(?:sh)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^placer \w.*$", fenced, re.MULTILINE) + re.findall(r"^ {4}(placer \w.*)$", text, re.MULTILINE)
    for line in lines:
        command = re.split(r" # | \| ", line)[0]
        if not re.search(r"[A-Z]{4}|…", command):
            _parser().parse_args(shlex.split(command)[1:])


def _in_checkout(page: Path, link: str) -> str:
    """The file that a link of a page leads to, with its anchor; empty for a link to another site."""
    for prefix in (f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/tree/main/", f"{RAW}/main/"):
        if link.startswith(prefix):
            return str(ROOT / link.removeprefix(prefix))
    if re.match(r"\w+:", link):
        return ""
    return str(page) + link if link.startswith("#") else str(page.parent / link)


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", _without_code(page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain]
    seen: Counter[str] = Counter()
    anchors = set()
    for slug in slugs:
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def _without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _environment_variables(module: ast.Module) -> set[str]:
    """The names of variables that a module reads or sets in os.environ."""
    constants = {
        node.targets[0].id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
    }
    named: list[ast.expr] = []
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(attr="getenv")) if node.args:
                named.append(node.args[0])
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="environ"))) if node.args:
                named.append(node.args[0])
            case ast.Subscript(value=ast.Attribute(attr="environ")):
                named.append(node.slice)
            case ast.Compare(comparators=[ast.Attribute(attr="environ")]):
                named.append(node.left)
    return {str(constants[name.id] if isinstance(name, ast.Name) else ast.literal_eval(name)) for name in named}
