"""Text that is shown: characters that a reader would obey, or that no encoding has, are replaced by escapes.

Names come from the user's program and from files, so they may have any character. Each format escapes them by a function of this
module: `printable` for text, `one_line` for a line or a cell of it, `identifier` where names identify, `markup` for HTML.
"""

from __future__ import annotations

from html import escape
from reprlib import Repr

_BRIEF = Repr()
_BRIEF.maxstring = _BRIEF.maxother = 200


def printable(text: str) -> str:
    r"""The text with each control or format character, and each lone surrogate, as an escape. Line ends stay.

    >>> printable("red\x1b[31m\nand \ud800")
    'red\\x1b[31m\nand \\ud800'
    """
    return _escaped(text, keep="\n")


def one_line(text: str) -> str:
    r"""As `printable`, with line ends as escapes too.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return _escaped(text, keep="")


def identifier(name: str) -> str:
    r"""As `one_line`, with backslashes doubled, so that different names stay different.

    >>> identifier("\x1b"), identifier("\\x1b")
    ('\\x1b', '\\\\x1b')
    """
    return one_line(name.replace("\\", "\\\\"))


def markup(text: str) -> str:
    r"""As `printable`, for the text or an attribute of HTML.

    >>> markup("<b>\x1b")
    '&lt;b&gt;\\x1b'
    """
    return escape(printable(text))


def brief(value: object) -> str:
    """The value as Python code, cut where it is long: for messages about values that a user gave.

    >>> brief(list(range(1000)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    return _BRIEF.repr(value)


def _escaped(text: str, keep: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
