"""Functions and argument types that a command line names: types as text, and signatures of SavedModels."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from placer.errors import OptionError, TraceError

_SPEC = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*(?:,|$)")
_UNKNOWN_SIZES = ("?", "None", "-1")
USAGE = "--signature gives a tensor type for each positional argument; dicts, lists, keywords and Python values cannot be given"


def parse_specs(text: str) -> tuple[tf.TensorSpec, ...]:
    """Parses types such as "float32[8,224,224,?], int32[]", where "?", "None" or "-1" is an unknown size.

    Raises:
        OptionError: the text is no such list, or has an unknown element type.
    """
    specs, position = [], 0
    while position < len(text):
        match = _SPEC.match(text, position)
        if match is None:
            rest = text[position:].strip()
            scalar = f"; a scalar is written {rest.partition(',')[0].strip()}[]" if re.match(r"\w+\s*(,|$)", rest) else ""
            raise OptionError(f"cannot read a type at {rest!r} of {text!r}: write 'float32[8,?,3], int32[]'{scalar}. {USAGE}.")
        name, dims = match.groups()
        try:
            sizes = [dim.strip() for dim in dims.split(",")] if dims.strip() else []
            shape = [None if size in _UNKNOWN_SIZES else int(size) for size in sizes]
            specs.append(tf.TensorSpec(shape, tf.dtypes.as_dtype(name)))
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"{match.group().strip(' ,')!r} in {text!r} is not a tensor type ({error}): "
                "write an element type and its sizes, '?' for an unknown one."
            ) from error
        position = match.end()
    return tuple(specs)


def check_call(fn: Any, specs: Sequence[tf.TensorSpec], target: str) -> None:
    """Checks that `fn`, which `target` names, can be called with as many arguments as there are types.

    Raises:
        OptionError: it is no function, or takes other arguments.
    """
    if not callable(fn):
        raise OptionError(f"{target!r} is {fn!r}, which is not a function.")
    if getattr(fn, "input_signature", None) is not None and not specs:
        return
    if hasattr(fn, "structured_input_signature"):
        if specs:
            raise OptionError(f"{target!r} is a ConcreteFunction, whose types are its own: leave --signature out.")
        return
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # an error while tracing will show it
    try:
        signature.bind(*specs)
    except TypeError as error:
        count = f"{len(specs) or 'no'} type{'' if len(specs) == 1 else 's'}"
        raise OptionError(
            f"{target!r} takes {signature}, and --signature gives {count}: {error}. {USAGE}: wrap the function in one of tensors."
        ) from error


def load_model(folder: Path) -> Any:
    """What `tf.saved_model.load` gives. It owns the variables of its signatures.

    Raises:
        OptionError: there is no SavedModel.
        TraceError: it cannot be loaded.
    """
    if not tf.saved_model.contains_saved_model(str(folder)):
        raise OptionError(f"{folder} is not the folder of a SavedModel.")
    try:
        model = tf.saved_model.load(str(folder))
    except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
        raise TraceError(f"{folder} cannot be loaded as a SavedModel: {error}") from error
    for name, concrete in model.signatures.items():
        concrete.graph.name = name  # TensorFlow names it after a wrapper: signature_wrapper_f
    return model


def load_signature(folder: Path, signature: str) -> tuple[Any, Any]:
    """Loads a SavedModel for one of its signatures.

    Returns:
        The model, which owns the variables, and the ConcreteFunction of the signature.

    Raises:
        OptionError: there is no SavedModel, or it has no such signature.
        TraceError: it cannot be loaded.
    """
    model = load_model(folder)
    if signature not in model.signatures:
        names = ", ".join(model.signatures) or "none; save it with signatures=..."
        raise OptionError(f"{folder} has no signature {signature!r}; it has {names}")
    return model, model.signatures[signature]
