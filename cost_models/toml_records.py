"""Dataclasses to and from tables of TOML. Each key is a field, and the field's annotation is the type of its value."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

_Record = TypeVar("_Record")


class RecordError(ValueError):
    """A table is no record. `key` is the key at fault, "" where it is none in particular."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


_TYPE_WORDS = {"int": "a whole number", "str": "a string", "bool": "true or false"}


def records_of(record: type[_Record], table: Mapping[str, Any], key: str, where: str) -> tuple[_Record, ...]:
    """The records in the array of tables under `key`; ValueError as in `record_of`."""
    rows = table.get(key, [])
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise ValueError(f"{where}: {key} must be tables, each under its own [[{key}]]")
    return tuple(record_of(record, row, f"{where}: {key}[{i}]") for i, row in enumerate(rows))


def record_of(record: type[_Record], table: Mapping[str, Any], where: str) -> _Record:
    """The dataclass `record` made from a table.

    Args:
        record: a dataclass in a module with postponed annotations.
        table: values by field name. Fields with a default may be left out.
        where: a name for the table in error messages.

    Raises:
        RecordError: a key is unknown or missing, a value has the wrong type, or the dataclass refuses its values.
    """
    declared = {f.name: f for f in fields(record)}  # type: ignore[arg-type]  # mypy has no type for the class of a dataclass
    if unknown := [key for key in table if key not in declared]:
        raise RecordError(f"{where}: unknown key {unknown[0]!r}; allowed are {', '.join(declared)}", unknown[0])
    required = [name for name, f in declared.items() if f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in required if name not in table]:
        raise RecordError(f"{where}: key {missing[0]!r} is missing; required are {', '.join(required)}", missing[0])
    key, values = "", dict[str, Any]()
    try:
        for key, value in table.items():
            values[key] = _checked(value, declared[key].type, key)
        key = ""
        return record(**values)
    except ValueError as error:
        raise RecordError(f"{where}: {error}", getattr(error, "key", key)) from error


def _checked(value: Any, annotation: Any, where: str) -> Any:
    """The value, if it has the annotated type. A whole number may stand for a float, and is converted."""
    if annotation == "float":
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) if abs(value) <= sys.float_info.max else value
        raise ValueError(f"{where} must be a number, not {value!r}")
    if annotation in _TYPE_WORDS:
        if type(value).__name__ == annotation:
            return value
        raise ValueError(f"{where} must be {_TYPE_WORDS[annotation]}, not {value!r}")
    if annotation.startswith("Mapping"):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a table, not {value!r}")
        item = "float" if annotation.endswith("float]") else "int"
        return {key: _checked(v, item, f"{where}.{key}") for key, v in value.items()}
    return value


def toml_scalars(record: Any) -> list[str]:
    """A line "key = value" for each field of a dataclass that is a number, a string or a bool."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return _assignments((name, value) for name, value in values.items() if isinstance(value, (bool, int, float, str)))


def toml_pairs(mapping: Mapping[str, int] | Mapping[str, float]) -> list[str]:
    """A text "key = value" for each item of a mapping, its key quoted."""
    return _assignments((_quoted(key), value) for key, value in mapping.items())


def _assignments(items: Iterable[tuple[str, bool | int | float | str]]) -> list[str]:
    return [f"{key} = {_toml_value(value)}" for key, value in items]


def _toml_value(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
