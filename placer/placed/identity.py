"""Text that stands for an object of the user's in every process: for its code and its state."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import sys
from io import BytesIO
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


def identity(value: Any) -> str | None:
    """Text that changes with the code or the state of a function or object; None where none can be made.

    The code is the file that defines the function or the object's class. Code that this file imports is not looked at.
    """
    try:
        if not isinstance(value, FunctionType):
            return _hashed(_file(type(value)), _pickled(value))
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        state = _pickled((value.__defaults__, value.__kwdefaults__, cells))
        return _hashed(_file(value), value.__qualname__.encode(), repr(_code(value.__code__)).encode(), state)
    except Exception:  # pickling runs code of the user's, which may raise anything
        return None


class _Pickler(pickle.Pickler):
    """Refuses objects of TensorFlow: pickling a variable reads its value, which it may not have before it is planned."""

    def reducer_override(self, value: Any) -> Any:
        if any(base.__module__.partition(".")[0] in ("tensorflow", "keras") for base in type(value).__mro__):
            raise pickle.PicklingError(f"{type(value).__name__} is an object of TensorFlow")
        return NotImplemented


def _pickled(value: Any) -> bytes:
    file = BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _hashed(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _file(defined: Any) -> bytes:
    """The content of the file that defines a function or class; what is known of one that was typed in."""
    file = getattr(sys.modules.get(defined.__module__), "__file__", None)
    if file is not None:
        return Path(file).read_bytes()
    return b"" if isinstance(defined, FunctionType) else inspect.getsource(defined).encode()


def _code(code: CodeType) -> tuple[object, ...]:
    constants = [_code(constant) if isinstance(constant, CodeType) else constant for constant in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames
