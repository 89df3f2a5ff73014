"""JSON and TOML text. Its depth is checked before it is parsed: the time, memory and stack of the parsers grow with it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import Any

import numpy as np

from cost_models.files import MAX_BYTES, FileError, read_whole

MAX_DEPTH = 100
"""The most arrays and objects of JSON, or arrays and tables of TOML, inside each other. A saved plan has less than ten."""
MAX_TOML_BYTES = 2**20
"""The largest TOML text that is read. The description of a machine has a few KiB; with 64 GPUs it has half a MiB."""
MAX_KEY_PARTS = 16
"""The most parts of a dotted key of TOML: the parser takes time and memory that grow with their square."""

_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TOML_STRING_OR_COMMENT = re.compile(
    r'''
      """ (?: [^\\] | \\. )*? (?: """ | \Z )
    | \'{3} .*? (?: \'{3} | \Z )
    | " (?: [^"\\\n] | \\. )* (?: " | \n | \Z )
    | ' [^'\n]* (?: ' | \n | \Z )
    | \# [^\n]*
    ''',
    re.DOTALL | re.VERBOSE,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}")


def read_json(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Any:
    """The parsed JSON of a file, which may be packed by gzip.

    Raises:
        FileError: the file cannot be read, is too large or too deep, or is not JSON.
    """
    return parse_json(read_whole(path, max_bytes), str(path))


def parse_json(text: bytes, source: str) -> Any:
    """Parses JSON text in UTF-8.

    Args:
        text: the text.
        source: a name for it in error messages.

    Raises:
        FileError: the text is not JSON, or is too deep.
    """
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    _check_depth(b"".join(without_escapes.split(b'"')[::2]), source)
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise FileError(f"{source} is not JSON ({error}). Was it written whole?") from error


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Parses TOML text; arguments and errors as of `parse_json`."""
    if len(text) > MAX_TOML_BYTES:
        raise FileError(f"{source} is larger than {MAX_TOML_BYTES} bytes, the most that is read.")
    bare = _TOML_STRING_OR_COMMENT.sub("s", text)
    _check_depth(bare.encode("utf-8", "replace"), source)
    if _LONG_KEY.search(bare):
        raise FileError(f"{source} has a key of more than {MAX_KEY_PARTS} parts.")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{source} is not valid TOML: {error}.") from error


def _check_depth(text_outside_strings: bytes, source: str) -> None:
    """Raises FileError if more than `MAX_DEPTH` brackets are open at once."""
    brackets = np.frombuffer(text_outside_strings.translate(None, _ALL_BUT_BRACKETS), np.uint8)
    change = (brackets & 2).astype(np.int8) - 1  # the codes of "[" and "{" have this bit, those of "]" and "}" do not
    if np.cumsum(change, dtype=np.int64).max(initial=0) > MAX_DEPTH:
        raise FileError(f"{source} has more than {MAX_DEPTH} brackets inside each other.")
