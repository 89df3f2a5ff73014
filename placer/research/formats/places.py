"""Errors that say where in a file something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from placer.errors import PlanError


@contextmanager
def reading(place: str, expected: str) -> Iterator[None]:
    """Turns an error in the block, which reads a part of a file, into one that names the part.

    Args:
        place: the file and the part, such as "montage.dax, job 3".
        expected: what the part has, as a sentence.

    Raises:
        PlanError: the part has something else.
    """
    try:
        yield
    except KeyError as error:
        raise PlanError(f"{place} has no {error.args[0]!r}. {expected}") from error
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise PlanError(f"{place} cannot be read: {error}. {expected}") from error
