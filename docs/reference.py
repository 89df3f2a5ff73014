"""Writes the parts of the reference that follow from the code: options, commands.

    python -m docs.reference

A test compares the pages with the code.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

from placer.command.main import COMMANDS
from placer.options import Options
from placer.research.arena.target_forms import GRAPHS, PROBLEMS

DOCS = Path(__file__).parent
OPTIONS, COMMAND_LINE = DOCS / "options.md", DOCS / "command_line.md"
FROM_HERE = "<!-- python -m docs.reference writes the rest -->\n"
UNBROKEN = "\0"
"""Stands for a space at which no line ends."""
OPTION_FLAGS = {"--" + option.name.replace("_", "-") for option in fields(Options)}


def main() -> None:
    """Writes the pages anew."""
    for page, text in pages().items():
        page.write_text(text)


def pages() -> dict[Path, str]:
    """The text of each page as it is to be."""
    written = COMMAND_LINE.read_text().partition(FROM_HERE)[0]
    return {
        OPTIONS: re.sub(r"^(## `(\w+)`\n\n)(?:.+\n)+", _option, OPTIONS.read_text(), flags=re.MULTILINE),
        COMMAND_LINE: written + FROM_HERE + "\n" + "\n\n".join(_command(name) for name in COMMANDS) + "\n",
    }


def _option(heading: re.Match[str]) -> str:
    """The heading of an option, and its first paragraph."""
    (option,) = (option for option in fields(Options) if option.name == heading[2])
    default = {} if option.default is MISSING else option.default
    meaning = option.metadata["help"]
    paragraph = f"`{option.type}`, by default `{default!r}`: {meaning}."
    return heading[1] + textwrap.fill(paragraph, 140, break_long_words=False, break_on_hyphens=False) + "\n"


def _command(name: str) -> str:
    """The section of a command: what it does, how it is called, and its arguments."""
    parser = argparse.ArgumentParser(prog=f"placer {name}", add_help=False)
    COMMANDS[name].add_arguments(parser)
    own = [action for action in parser._actions if not OPTION_FLAGS.intersection(action.option_strings)]
    takes_options = len(own) < len(parser._actions)
    call = " ".join([f"placer {name}", *(_shown(action) for action in own), *(["[OPTION...]"] if takes_options else [])])
    lines = textwrap.wrap(call, 110, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
    rows = [f"| `{_escaped(_name(action))}` | {_help(action)} |" for action in own]
    if takes_options:
        left_out = OPTION_FLAGS.difference(*(action.option_strings for action in parser._actions))
        without = f", without {', '.join(f'`{flag}`' for flag in sorted(left_out))}" if left_out else ""
        rows.append(f"| `OPTION` | the flags of all [options](options.md){without} |")
    table = ["| argument | meaning |", "|---|---|", *rows]
    written = [f"### placer {name}", "", COMMANDS[name].HELP, "", *lines, *(["", *table] if rows else [])]
    return "\n".join(written).replace(UNBROKEN, " ")


def _shown(action: argparse.Action) -> str:
    """An argument as a call has it."""
    values = " ".join(_values(action))
    if not action.option_strings:
        return values
    return f"[{UNBROKEN.join(filter(None, [action.option_strings[0], values]))}]"


def _values(action: argparse.Action) -> Iterator[str]:
    """The values that an argument takes, as a call has them."""
    name = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if action.nargs is None:
        yield str(name)
    elif action.nargs in ("?", "*"):
        yield f"[{name}]" if action.nargs == "?" else f"[{name}...]"
    elif action.nargs == "+":
        yield f"{name}..."


def _name(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else " ".join(_values(action))


def _help(action: argparse.Action) -> str:
    """What an argument means. The forms of targets are on the page once."""
    meaning = str(action.help)
    if meaning.startswith(GRAPHS):
        return "a [target](#targets)" if PROBLEMS in meaning else "a [target](#targets) that has a graph"
    return _escaped(meaning % {"default": action.default})


def _escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    main()
