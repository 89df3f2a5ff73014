"""What a command line can name: argument types in words, and a signature of a SavedModel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tensorflow as tf

from placer.errors import OptionError, TraceError

_SPEC = re.compile(r"\s*(\w+)\s*\[([\d\s,?]*)\]\s*(?:,|$)")


def parse_specs(text: str) -> tuple[tf.TensorSpec, ...]:
    """Specs from text such as "float32[8,224,224,?], int32[]", where "?" is an unknown dimension.

    Raises:
        OptionError: anything else, or an unknown element type.
    """
    specs, at = [], 0
    while at < len(text):
        match = _SPEC.match(text, at)
        if match is None:
            raise OptionError(f"cannot read a type at {text[at:].strip()!r} of {text!r}: write 'float32[8,224,224,3], int32[]'")
        name, dims = match.groups()
        try:
            dtype = tf.dtypes.as_dtype(name)
            shape = [None if dim.strip() == "?" else int(dim) for dim in dims.split(",")] if dims.strip() else []
        except (TypeError, ValueError) as error:
            raise OptionError(f"{match.group().strip(' ,')!r} in {text!r} is not a tensor type: {error}") from error
        specs.append(tf.TensorSpec(shape, dtype))
        at = match.end()
    return tuple(specs)


def load_saved_model(folder: Path, signature: str) -> tuple[Any, Any]:
    """A loaded SavedModel, which owns its variables, and the ConcreteFunction of one of its signatures.

    Raises:
        TraceError: no SavedModel can be loaded from there.
        OptionError: it has no such signature.
    """
    try:
        model = tf.saved_model.load(str(folder))
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        raise TraceError(f"{folder} cannot be loaded as a SavedModel: {error}") from error
    if signature not in model.signatures:
        there = ", ".join(model.signatures) or "none; save it with signatures=..."
        raise OptionError(f"{folder} has no signature {signature!r}; it has {there}")
    return model, model.signatures[signature]
