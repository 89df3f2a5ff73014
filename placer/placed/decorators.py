"""What makes a function a placed one: `optimized_placement`, `place` and `apply`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

from placer.errors import OptionError
from placer.options import Options, with_options_listed
from placer.placed.function import PlacedFunction
from placer.plan.placement import Placement
from placer.verbs.solve import look_up

_NOT_GIVEN: Any = object()
"""Stands for the function where the decorator is used with parentheses."""


def checked_options(given: Mapping[str, Any]) -> Options:
    """Options from keywords.

    Raises:
        OptionError: an unknown option, a value that cannot be used, or a name of a machine, cost model or solver that does not
            exist.
    """
    options = Options.of(given)
    look_up(options)
    return options


@overload
def optimized_placement(fn: Callable[..., Any], /) -> PlacedFunction: ...


@overload
def optimized_placement(**options: Any) -> Callable[[Callable[..., Any]], PlacedFunction]: ...


@with_options_listed
def optimized_placement(fn: Callable[..., Any] = _NOT_GIVEN, /, **options: Any) -> Any:
    """Decorates a function, tf.function or method so that its ops run where a solved plan says.

    Args:
        fn: given where the decorator is used without parentheses.
        **options: the fields of `placer.Options`.

    Raises:
        OptionError: an unknown option, or a value that cannot be used.

    Example:
        >>> @optimized_placement(memory_limits={"GPU:0": "8GiB"})  # doctest: +SKIP
        ... def step(images, labels): ...
    """
    checked = checked_options(options)
    if fn is _NOT_GIVEN:
        return lambda function: PlacedFunction(function, checked)
    return PlacedFunction(fn, checked)


@with_options_listed
def place(fn: Callable[..., Any], *args: Any, **options: Any) -> PlacedFunction:
    """Wraps a function so that its calls run where a solved plan says; plans at once if example arguments are given.

    Args:
        fn: a callable, a tf.function or a method.
        *args: example arguments or TensorSpecs. Without any, each signature is planned at its first call; a ConcreteFunction,
            which has only one signature, is planned at once.
        **options: the fields of `placer.Options`.

    Raises:
        OptionError: an unknown option, or a value that cannot be used.
        PlacerError: planning failed; the function is unchanged.
    """
    placed = PlacedFunction(fn, checked_options(options))
    if args or hasattr(fn, "structured_input_signature"):
        with placed.signatures.lock:
            placed.signatures.plan(args, {})
    return placed


def apply(fn: Callable[..., Any], *placements: Placement) -> PlacedFunction:
    """Wraps a function so that its calls run by plans that were made before.

    Args:
        fn: the function that the plans were made for.
        *placements: one for each input signature that is called. Calls under a tape have their own plans.

    Raises:
        OptionError: `fn` is no function, or one of `placements` is no Placement.

    Raises (at the first call):
        PlanError: no plan was made for the function's graph.
        DeviceError: the plan uses devices that this process does not have.
    """
    for placement in placements or (None,):
        if not isinstance(placement, Placement):
            raise OptionError(f"apply takes a Placement, not {placement!r}: placer.Placement.load(path) reads a saved one.")
    return PlacedFunction(fn, Options(), plans=placements)
