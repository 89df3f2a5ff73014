"""HTML for the output of a notebook's cell. It inherits the notebook's colours, so it suits a dark theme too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placer.common.escaping import markup

_LEFT, _RIGHT = 'style="text-align:left;padding:1px 8px"', 'style="text-align:right;white-space:nowrap;padding:1px 8px"'


class Html(str):
    """Text that is HTML already. All other text is escaped where it is put into HTML."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """The text as HTML; HTML as it is.

    >>> escaped("<b>"), escaped(Html("<b>one</b>"))
    ('&lt;b&gt;', '<b>one</b>')
    """
    return text if isinstance(text, Html) else Html(markup(text))


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ("",)) -> Html:
    """A table. The first column and those whose head is in `left` are aligned left, the others right, as in a text table."""
    styles = [_LEFT if k == 0 or name in left else _RIGHT for k, name in enumerate(head)]

    def line(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag} {style}>{escaped(c)}</{tag}>' for c, style in zip(cells, styles, strict=True))}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return Html(f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>")


def folded(summary: str, *parts: str) -> Html:
    """Parts below a line that opens and closes them; closed at first."""
    return Html(f"<details><summary>{escaped(summary)}</summary>{stacked(*parts)}</details>")


def listed(texts: Iterable[str]) -> Html:
    """A list with an item for each text."""
    return Html(f"<ul>{''.join(f'<li>{escaped(text)}</li>' for text in texts)}</ul>")


def bold(text: str) -> Html:
    """The text in bold."""
    return Html(f"<b>{escaped(text)}</b>")


def joined(*parts: str) -> Html:
    """Parts in one line."""
    return Html("".join(map(escaped, parts)))


def stacked(*parts: str) -> Html:
    """Parts below each other."""
    return Html("".join(f'<div style="margin:3px 0">{escaped(part)}</div>' for part in parts))
