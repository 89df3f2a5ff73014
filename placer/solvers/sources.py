"""How solvers state their sources: one reference a line, with authors, title, where, when, and a DOI or an address.

A publication stands in the module of the algorithm that is taken from it.
"""

from __future__ import annotations

from placer import __version__


def own_work(description: str) -> str:
    """The reference for a method that this package introduces."""
    return f"placer {__version__}, 2026: {description}"


def references(*sources: str) -> str:
    """Joins sources, one a line."""
    return "\n".join(sources)
