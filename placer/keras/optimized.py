"""`optimize`: lets a Keras model's own training, evaluation and prediction run by plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from placer.common.environment import is_disabled
from placer.common.warning import warn
from placer.errors import OptionError
from placer.keras.distributed_step import DistributedStep
from placer.keras.keras_model import KerasModel, Runner, keras_model
from placer.keras.model_placement import ModelPlacement
from placer.keras.placed_step import PlacedStep, peeked
from placer.keras.step_race import KERAS, PLACED, UNCOMPILED, StepRace
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
    """Lets `fit`, `evaluate`, `predict` and their `…_on_batch` forms of a Keras model run by plan.

    The model may be compiled before or after. Its losses, metrics, weights and files are those of the plain model. Calls time the
    placed step against what Keras does by default, which is compiling it by XLA where there is a GPU, and run the faster. With
    pins, memory limits, ``race="off"``, a chosen solver or objective, or ``variables="move"``, they run by the plan.

    Args:
        model: a model of Keras 3 on TensorFlow, or of tf_keras. It is changed: it gets the attribute `placement`, a
            `ModelPlacement`.
        train, test, predict: options of one step alone, which replace the others: of `fit`, of `evaluate`, of `predict`, and of
            their `…_on_batch` forms.
        **options: the fields of `placer.Options`. A pin may name a layer; then its variables go where its ops do, as with
            ``variables="move"``.

    Returns:
        The model.

    Raises:
        OptionError: the model is no Keras model on TensorFlow or runs eagerly, or an option cannot be used.
    """
    of_keras = keras_model(model)
    if of_keras.runs_eagerly:
        raise OptionError(f"cannot optimize {model.name!r}: {EAGER}")
    of_step = {}
    for step, own in {"train": train, "test": test, "predict": predict}.items():
        if not (own is None or isinstance(own, Mapping)):
            raise OptionError(f'{step}={own!r} is no mapping of options: write {step}={{"solver": "all_cpu"}}.')
        of_step[step] = _options({**options, **(own or {})})
    if isinstance(earlier := getattr(model, "placement", None), ModelPlacement):
        earlier.release()
    placement = ModelPlacement(model.name)
    for step, chosen in of_step.items():
        _replace_maker(of_keras, step, chosen, placement)
    object.__setattr__(model, "placement", placement)
    return model


def _options(given: Mapping[str, Any]) -> Options:
    options = checked_options(given)
    return replace(options, variables="move") if options.pins and options.variables == "auto" else options


def _replace_maker(of_keras: KerasModel, step: str, options: Options, placement: ModelPlacement) -> None:
    """Replaces the method by which Keras makes the function that runs a step."""
    model, name, attribute = of_keras.model, f"make_{step}_function", f"{step}_function"
    maker = getattr(type(model), name)

    def make(force: bool = False) -> Any:
        if getattr(model, attribute) is None or force:
            maker(model, force=True)
            setattr(model, attribute, _function(of_keras, step, options, placement, maker))
        return getattr(model, attribute)

    if maker is not getattr(of_keras.base, name):
        warn(f"the {step} step of {model.name} is left as it is: {type(model).__name__} has its own {name}")
        return
    object.__setattr__(model, name, make)
    setattr(model, attribute, None)


def _function(of_keras: KerasModel, step: str, options: Options, placement: ModelPlacement, maker: Callable[..., Any]) -> Runner:
    """What runs a step of a model from now on.

    Args:
        of_keras: the model; Keras has just made its own function for the step.
        step: "train", "test" or "predict".
        options: of the plans.
        placement: records what runs the step.
        maker: the method by which Keras makes its function.
    """
    model = of_keras.model
    keras_function: Runner = getattr(model, f"{step}_function")
    if of_keras.runs_eagerly:
        raise OptionError(f"cannot optimize {model.name!r}: {EAGER}")
    if is_disabled():
        return keras_function
    if of_keras.is_distributed:
        return _under_strategy(of_keras, step, options, placement)
    elsewhere, asked_for = _missing_devices(options), _is_asked_for(options)
    if not (elsewhere or asked_for or _may_race(options)):
        return keras_function
    placed = PlacedStep(of_keras, step, options)
    if elsewhere:
        placement.set(step, placed, None)
        plan = of_keras.runner(step, placed.plan_only)
        here = f"the {step} step of {model.name} is planned for {', '.join(elsewhere)}, which this process does not have"

        def run_here(batches: Any) -> Any:
            if placed.is_planned:
                return keras_function(batches)
            results = plan(batches)
            warn(f"{here}. So it runs as Keras runs it. model.placement.{step} has the plan.")
            return results

        return run_here
    run = of_keras.runner(step, placed)
    if asked_for:
        placement.set(step, placed, None)
        return run
    ways = {KERAS: keras_function, PLACED: run}
    if (without_xla := of_keras.without_xla(step, maker)) is not None:
        ways[UNCOMPILED] = without_xla

    def reason_against(batches: Any) -> tuple[str, Any]:
        anew, batches = peeked(placed, batches)
        what = f"the {step} step of {model.name} runs as Keras runs it"
        why = "each other function would begin anew with its own state, such as the position of a random seed"
        return f'{what}: {why}. Way out: race="off" lets it run by plan.' if anew else "", batches

    race = StepRace(ways, placed, reason_against)
    placement.set(step, placed, race)
    return race


def _under_strategy(of_keras: KerasModel, step: str, options: Options, placement: ModelPlacement) -> Runner:
    """What runs a step under a distribution strategy. Batches do not race: it is Keras's function if the plan moves no op.

    Args:
        of_keras, step, options, placement: as for `_function`.
    """
    from placer.tf.trace.replicas import is_planned_for

    model = of_keras.model
    keras_function: Runner = getattr(model, f"{step}_function")
    if elsewhere := _missing_devices(options):
        warn(f"{model.name} is left as it is under its distribution strategy: this process does not have {', '.join(elsewhere)}")
        return keras_function
    if not is_planned_for(of_keras.strategy):
        warn(f"{model.name} is left as it is: its distribution strategy, {type(of_keras.strategy).__name__}, decides the devices")
        return keras_function
    placed = DistributedStep(of_keras, step, options)
    placement.set(step, placed, None)
    run = of_keras.runner(step, placed)

    def run_next(batches: Any) -> Any:
        return (keras_function if placed.is_left_alone else run)(batches)

    return run_next


def _may_race(options: Options) -> bool:
    """Whether calls may run in several ways: several devices are planned for, and results may differ in last bits."""
    from placer.tf.devices import process_devices
    from placer.tf.run.calling import is_deterministic

    machine = machine_named(options.devices)
    devices = process_devices() if machine is None else machine.devices
    return options.race == "force" or (len(devices) > 1 and not is_deterministic())


def _is_asked_for(options: Options) -> bool:
    """Whether the options ask for a plan, so that calls run by it without a comparison."""
    demands = options.pins or options.memory_limits or options.variables == "move"
    return bool(demands) or not asks_for_race(options)


def _missing_devices(options: Options) -> list[str]:
    """The devices of the machine to plan for that this process does not have."""
    from placer.tf.devices import connected_devices

    machine = machine_named(options.devices)
    return [] if machine is None else sorted({device.name for device in machine.devices}.difference(connected_devices()))
