"""XML text from others: no document type, no entities, and bounded depth."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # as its documentation names it
from typing import Any, NoReturn
from xml.parsers import expat

from cost_models.documents import MAX_DEPTH
from placer.errors import PlanError

_NOT_ALLOWED = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_xml(content: bytes, source: str) -> ET.Element:
    """The root element.

    An entity of a document type can expand to any size, or to the content of other files, so a document type is refused.

    Args:
        content: XML text.
        source: a name for it in error messages.

    Raises:
        PlanError: it is not XML, has a document type, or more than `MAX_DEPTH` elements inside each other.
    """
    depth = 0

    def refuse(*_: Any) -> NoReturn:
        raise PlanError(f"{source} has a document type (<!DOCTYPE …>), which is not read. Remove it.")

    def enter(*_: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise PlanError(f"{source} has more than {MAX_DEPTH} elements inside each other.")

    def leave(_: str) -> None:
        nonlocal depth
        depth -= 1

    checker = expat.ParserCreate()
    checker.StartDoctypeDeclHandler, checker.EntityDeclHandler = refuse, refuse
    checker.StartElementHandler, checker.EndElementHandler = enter, leave
    try:
        checker.Parse(content, True)
        return ET.fromstring(content)
    except (expat.ExpatError, ET.ParseError, ValueError, LookupError) as error:
        raise PlanError(f"{source} is not XML ({error}).") from error


def local_name(element: ET.Element) -> str:
    """The name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def xml_name(text: str) -> str:
    """The text without characters that XML does not allow."""
    return _NOT_ALLOWED.sub("\ufffd", text)
