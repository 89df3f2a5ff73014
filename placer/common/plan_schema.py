"""The JSON Schema of saved plans and graphs, `plan.schema.json`, and the check of data against it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

from placer.errors import PlanError

Part: TypeAlias = Literal["plan", "graph"]


def check_schema(data: Any, part: Part, origin: str) -> None:
    """Checks the types, ranges and keys of a part of a saved plan.

    Args:
        data: the part, as parsed JSON.
        part: which part it is.
        origin: where the data is from, for errors.

    Raises:
        PlanError: the data does not follow the schema.
    """
    from fastjsonschema import JsonSchemaValueException

    try:
        _validator(part)(data)
    except JsonSchemaValueException as error:
        problem = error.message.replace("data", part, 1)
        raise PlanError(f"{origin} holds a broken {part}: {problem}. Save it again.") from error


@cache
def _validator(part: Part) -> Callable[[Any], Any]:
    import fastjsonschema

    whole = json.loads(resources.files("placer.common").joinpath("plan.schema.json").read_text("utf-8"))
    schema = {**whole["properties"][part], "$schema": whole["$schema"], "definitions": whole["definitions"]}
    validator: Callable[[Any], Any] = fastjsonschema.compile(schema)
    return validator
