"""`plan_then_create`: variables that take memory only after their places are planned."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from placer.errors import OptionError
from placer.placed.decorators import checked_options
from placer.placed.function import PlacedFunction


def plan_then_create(build: Callable[[], Any], example_args: Sequence[Any], **options: Any) -> Any:
    """Makes variables and the function that uses them, plans it, and only then creates the variables, each where the plan has it.

    While `build` runs and the function is traced, variables take no memory. There are two exceptions, which take host memory: a
    variable whose value `build` uses, and a variable that a function captures which `build` traces. Initial values are computed
    in host memory, too, as if all had been made under `tf.device("CPU:0")`.

    A function that gives an initial value runs once, in a graph. If that graph has ops with state other than draws by op seeds,
    the function runs a second time and the second value is kept. Then it should not draw from a generator of your own, such as
    `np.random.default_rng()`, or count calls.

    Args:
        build: makes the variables (models, layers, optimizers) and returns the function, or a tuple that starts with it.
        example_args: arguments or TensorSpecs of the function.
        **options: the fields of `placer.Options`. ``variables`` is "move" and cannot be changed.

    Returns:
        The function, placed and planned as by `place`. If `build` returned a tuple, a tuple of it and the other items.

    Raises:
        OptionError: an unknown option, a value that cannot be used, or `build` returned no function.
        TraceError: a function that is being traced calls it.
        PlacerError: planning failed; the variables get values when they are first used.
    """
    from placer.tf.state.creating import Deferred

    checked = checked_options({"variables": "move", **options})
    if checked.variables != "move":
        raise OptionError(
            'plan_then_create decides where variables are made: leave out variables="fixed", which is for existing variables.'
        )
    if reason := _no_builder(build):
        raise OptionError(
            f"build={build!r:.80} {reason}: pass a callable without arguments that makes the variables and returns the function "
            "that uses them."
        )
    if not isinstance(example_args, (list, tuple)):
        raise OptionError(
            f"example_args={example_args!r:.80} is no list or tuple: give the function's arguments as one, [images, labels]."
        )
    deferred = Deferred()
    with deferred.building():
        built = build()
    fn, *others = built if isinstance(built, tuple) and built else (built,)
    if not callable(fn):
        raise OptionError(
            f"build returned {built!r:.80}, no function: return that, or a tuple that starts with it, such as (step, model)."
        )
    placed = PlacedFunction(fn, checked)
    if reason := _misfit(placed, example_args):
        raise OptionError(f"{placed.__name__} cannot be called with the {len(example_args)} of example_args: {reason}.")
    with placed.signatures.lock:
        try:
            placed.signatures.plan_and_create(deferred, tuple(example_args), {})
        except BaseException:
            deferred.abandon()
            raise
    return (placed, *others) if others else placed


def _no_builder(build: Any) -> str:
    """The reason why an object cannot be the `build` of `plan_then_create`; "" if none is known before it is called."""
    if not callable(build):
        return "cannot be called"
    if hasattr(build, "get_concrete_function"):
        return "is a tf.function, in whose graph the variables would be"
    if hasattr(build, "trainable_variables") and not isinstance(build, type):
        return "is a model, layer or module itself"
    reason = _misfit(build, ())
    return reason and f"cannot be called without arguments, {reason}"


def _misfit(fn: Callable[..., Any], args: Sequence[Any]) -> str:
    """The reason why a function cannot be called with these arguments; "" if none is known."""
    try:
        inspect.signature(fn).bind(*args)
    except TypeError as error:
        return str(error)
    except ValueError:  # it has no signature
        return ""
    return ""
