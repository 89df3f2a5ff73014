"""`optimize`: lets a Keras model's own training, evaluation and prediction run by plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from placer.common.environment import is_disabled
from placer.common.escaping import brief
from placer.common.warning import warn
from placer.errors import OptionError
from placer.keras.model_placement import ModelPlacement
from placer.keras.placed_step import PlacedStep, on_batches, on_iterator, peeked
from placer.keras.step_race import KERAS, PLACED, UNCOMPILED, Runner, StepRace
from placer.options import Options
from placer.placed.decorators import checked_options
from placer.placed.race.begin import asks_for_race
from placer.verbs.solve import machine_named

EAGER = "run_eagerly=True runs it op by op, without a graph to plan: compile it with run_eagerly=False."


def optimize(
    model: Any,
    *,
    train: Mapping[str, Any] | None = None,
    test: Mapping[str, Any] | None = None,
    predict: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Lets `fit`, `evaluate`, `predict` and their `…_on_batch` forms of a Keras 3 model run by plan.

    The model may be compiled before or after. Its losses, metrics, weights and files are those of the plain model. Calls time the
    placed step against what Keras does by default, which is compiling it by XLA where there is a GPU, and run the faster. With
    pins, memory limits, ``race="off"``, a chosen solver or objective, or ``variables="move"``, they run by the plan.

    Args:
        model: a model of Keras 3 on TensorFlow. It is changed: it gets the attribute `placement`, a `ModelPlacement`.
        train, test, predict: options of one step alone, which replace the others: of `fit`, of `evaluate`, of `predict`, and of
            their `…_on_batch` forms.
        **options: the fields of `placer.Options`. A pin may name a layer; then its variables go where its ops do, as with
            ``variables="move"``.

    Returns:
        The model.

    Raises:
        OptionError: the model is no Keras 3 model on TensorFlow or runs eagerly, or an option cannot be used.
    """
    _check(model)
    of_step = {}
    for step, own in {"train": train, "test": test, "predict": predict}.items():
        if not (own is None or isinstance(own, Mapping)):
            raise OptionError(f'{step}={own!r} is no mapping of options: write {step}={{"solver": "all_cpu"}}.')
        of_step[step] = _options({**options, **(own or {})})
    if isinstance(earlier := getattr(model, "placement", None), ModelPlacement):
        earlier.release()
    placement = ModelPlacement(model.name)
    for step, chosen in of_step.items():
        _replace_maker(model, step, chosen, placement)
    object.__setattr__(model, "placement", placement)
    return model


def _options(given: Mapping[str, Any]) -> Options:
    options = checked_options(given)
    return replace(options, variables="move") if options.pins and options.variables == "auto" else options


def _check(model: Any) -> None:
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    if any(cls.__module__.partition(".")[0] == "tf_keras" for cls in type(model).__mro__):
        raise OptionError(f"{kind} is a model of tf_keras, which is not supported: make it with Keras 3.")
    import keras

    if not isinstance(model, keras.Model):
        way_out = "placer.optimized_placement places functions" if callable(model) else "pass a keras.Model"
        raise OptionError(f"cannot optimize {brief(model)}, which is no Keras model: {way_out}.")
    if (backend := keras.config.backend()) != "tensorflow":
        raise OptionError(f"cannot optimize {model.name!r}: Keras runs it on {backend}, and only TensorFlow's ops have plans.")
    if model.compiled and model.run_eagerly:
        raise OptionError(f"cannot optimize {model.name!r}: {EAGER}")


def _replace_maker(model: Any, step: str, options: Options, placement: ModelPlacement) -> None:
    """Replaces the method by which Keras makes the function that runs a step."""
    import keras

    maker, attribute = f"make_{step}_function", f"{step}_function"
    own = getattr(type(model), maker)

    def make(force: bool = False) -> Any:
        if getattr(model, attribute) is None or force:
            own(model, force=True)
            setattr(model, attribute, _function(model, step, options, placement, own))
        return getattr(model, attribute)

    if own is not getattr(keras.Model, maker):
        warn(f"the {step} step of {model.name} is left as it is: {type(model).__name__} has its own {maker}")
        return
    object.__setattr__(model, maker, make)
    setattr(model, attribute, None)


def _function(model: Any, step: str, options: Options, placement: ModelPlacement, own: Callable[..., Any]) -> Runner:
    """What runs a step of a model from now on.

    Args:
        model: the Keras model; Keras has just made its own function for the step.
        step: "train", "test" or "predict".
        options: of the plans.
        placement: is told what runs the step.
        own: the method by which Keras makes its function.
    """
    attribute = f"{step}_function"
    keras_function: Runner = getattr(model, attribute)
    if model.run_eagerly:
        raise OptionError(f"cannot optimize {model.name!r}: {EAGER}")
    if model._distribute_strategy is not None:
        warn(f"{model.name} is left as it is: it is trained under a distribution strategy, which decides the devices")
        return keras_function
    if is_disabled():
        return keras_function
    asked_for = _is_asked_for(options)
    if not asked_for and not _may_race(options):
        return keras_function
    placed = PlacedStep(model, f"{step}_step", options)
    run = on_batches(placed) if step == "predict" else on_iterator(placed, model)
    if asked_for:
        placement.set(step, placed, None)
        return run
    ways = {KERAS: keras_function, PLACED: run}
    if model.jit_compile:
        model.jit_compile = False
        own(model, force=True)
        ways[UNCOMPILED] = getattr(model, attribute)
        model.jit_compile = True

    def reason_against(batches: Any) -> tuple[str, Any]:
        anew, batches = peeked(placed, batches)
        what = f"the {step} step of {model.name} runs as Keras runs it"
        why = "each other function would begin anew with its own state, such as the position of a random seed"
        return f'{what}: {why}. Way out: race="off" lets it run by plan.' if anew else "", batches

    race = StepRace(ways, placed.is_racing, reason_against)
    placement.set(step, placed, race)
    return race


def _may_race(options: Options) -> bool:
    """Whether calls may run in several ways: there are several devices, and results may differ in last bits."""
    from placer.tf.devices import process_devices
    from placer.tf.run.calling import is_deterministic

    return options.race == "force" or (len(process_devices()) > 1 and not is_deterministic())


def _is_asked_for(options: Options) -> bool:
    """Whether the options ask for the plan itself, so that it is not put to the test, or no call can run by it here."""
    from placer.tf.devices import process_devices

    machine = machine_named(options.devices)
    is_elsewhere = machine is not None and not {device.name for device in machine.devices} <= set(process_devices())
    demands = options.pins or options.memory_limits or options.variables == "move"
    return is_elsewhere or bool(demands) or not asks_for_race(options)
