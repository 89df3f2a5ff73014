"""Types of arrays, and dataclasses of read-only arrays whose shapes are checked and whose defaults are filled in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

DTYPES = {"Ints": np.dtype(np.int64), "Floats": np.dtype(np.float64), "Bools": np.dtype(np.bool_)}
"""By annotation of a field."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Grouped:
    """Positions in an array of group numbers, by group."""

    order: Ints
    start: Ints
    """[groups + 1]: the positions of group g are order[start[g]:start[g + 1]], ascending."""

    @classmethod
    def by(cls, group: Ints, groups: int) -> Grouped:
        """The positions of each of so many groups.

        Args:
            group: the group number at each position.
        """
        order = np.argsort(group, kind="stable")
        return cls(order, np.searchsorted(group[order], np.arange(groups + 1)))

    def of(self, groups: Ints) -> Ints:
        """The positions of several groups, one group after the other."""
        first, count = self.start[groups], self.start[groups + 1] - self.start[groups]
        gaps = np.repeat(first - np.cumsum(count) + count, count)
        return self.order[gaps + np.arange(len(gaps))]


def array(axes: str, default: Any = MISSING) -> Any:
    """A field of a `Part` that is an array, or a tuple of names.

    Args:
        axes: a letter for each axis. Axes of one letter have the same size in all parts of a problem.
        default: one number for all elements; a tuple of the elements; the name of a field with the same value; or a function from
            the length of the first axis to the array. Without a default the field must be given.
    """
    metadata = {"axes": axes, "default": default}
    return field(metadata=metadata) if default is MISSING else field(default=None, metadata=metadata)


class Frozen:
    """A dataclass that is copied and pickled without the values that were derived from its fields."""

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, **state)


@dataclass(frozen=True, eq=False)
class Part(Frozen):
    """A part of a problem: fields made by `array`, and plain values. An array is a copy that nobody can write into.

    Raises ValueError where the arrays do not fit together, or hold numbers of another kind.
    """

    def __post_init__(self) -> None:
        declared = [f for f in fields(self) if "axes" in f.metadata]
        sizes: dict[str, int] = {}
        for f in declared:
            if (value := getattr(self, f.name)) is not None:
                self._fix(f, value, sizes)
        for f in declared:
            if getattr(self, f.name) is None:
                self._fix(f, self._default(f, sizes), sizes)

    def _fix(self, f: Field[Any], value: Any, sizes: dict[str, int]) -> None:
        name, axes = f"{type(self).__name__.lower()}.{f.name}", f.metadata["axes"]
        dtype = _dtype(f)
        fixed = tuple(value) if dtype is None else _read_only_copy(value, dtype, name)
        if dtype is None and not all(isinstance(each, str) for each in fixed):
            raise ValueError(f"{name} holds something else than names.")
        shape = _shape(fixed)
        if len(shape) != len(axes) or any(sizes.setdefault(axis, size) != size for axis, size in zip(axes, shape, strict=True)):
            expected = ", ".join(f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in axes)
            raise ValueError(f"{name} has shape {shape} where ({expected}) is expected.")
        object.__setattr__(self, f.name, fixed)

    def _default(self, f: Field[Any], sizes: dict[str, int]) -> Any:
        default, axes = f.metadata["default"], f.metadata["axes"]
        if isinstance(default, str):
            return getattr(self, default)
        if callable(default):
            return default(sizes[axes[0]])
        if isinstance(default, tuple):
            return np.array(default, _dtype(f))
        return np.full([sizes[axis] for axis in axes], default, _dtype(f))

    def sizes(self) -> dict[str, int]:
        """The size of each axis by its letter."""
        size_by_axis: dict[str, int] = {}
        for f in fields(self):
            if "axes" in f.metadata:
                size_by_axis |= zip(f.metadata["axes"], _shape(getattr(self, f.name)), strict=True)
        return size_by_axis

    def take(self, axis: str, positions: Ints) -> Self:
        """The part with only these positions of the axes of one letter, in this order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for f in fields(self):
            for number, letter in enumerate(f.metadata.get("axes", "")):
                if letter == axis:
                    value = values[f.name]
                    whole = isinstance(value, tuple)
                    values[f.name] = tuple(value[i] for i in positions) if whole else np.take(value, positions, axis=number)
        return type(self)(**values)


class derived(cached_property[T]):  # noqa: N801  # a decorator
    """A `functools.cached_property` of a frozen value. If it is an array, nobody can make it writeable."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(lambda owner: _fixed(function(owner)))
        self.__doc__ = function.__doc__


def read_only(value: T) -> T:
    """Makes an array, or all arrays of a dataclass, read-only. Other values stay as they are."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif is_dataclass(value):
        for f in fields(value):
            read_only(getattr(value, f.name))
    return value


def _fixed(value: T) -> T:
    """An array as one that nobody can make writeable; another value as of `read_only`."""
    fixed: Any = _of_bytes(value) if isinstance(value, np.ndarray) else read_only(value)
    result: T = fixed
    return result


def _of_bytes(array: NDArray[Any]) -> NDArray[Any]:
    """A copy whose memory is a bytes object, so that `setflags` cannot make it writeable."""
    return np.ndarray(array.shape, array.dtype, buffer=array.tobytes())


def _dtype(f: Field[Any]) -> np.dtype[Any] | None:
    """Of the elements of a field; None where it is a tuple of names."""
    return DTYPES.get(str(f.type))


def _shape(value: NDArray[Any] | tuple[str, ...]) -> tuple[int, ...]:
    return (len(value),) if isinstance(value, tuple) else value.shape


def _read_only_copy(value: Any, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    array = np.asarray(value)
    owner: object = array.base
    if array.dtype == dtype and isinstance(owner, bytes):
        return array
    if array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"{name} holds {array.dtype} where {dtype} is expected.")
    return _of_bytes(array.astype(dtype))
