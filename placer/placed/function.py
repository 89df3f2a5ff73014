"""PlacedFunction: the call path of a decorated function, and what its user can ask of it."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from placer.common.escaping import brief
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError, PlanError, TraceError
from placer.options import Options
from placer.placed.background import BackgroundPlanning
from placer.placed.lost_workers import naming_lost_workers, tasks_of
from placer.placed.many_plans import warn_of_many_plans
from placer.placed.signatures import Signatures
from placer.placed.tf_function import TfFunction
from placer.placed.untraceable import why_untraceable

if TYPE_CHECKING:
    from cost_models.machines import Machine
    from placer.graph.seen import Seen
    from placer.placed.signature import Prepared
    from placer.placed.tuned import Tuned
    from placer.plan.placement import Placement
    from placer.tf.run.harvesting import Harvest
    from placer.tf.run.observing import Observation
    from placer.verbs.profile import Profile


class PlacedFunction(TfFunction):
    """A function whose ops run where a solved plan says.

    It is called like the function it wraps, with the same results, side effects and gradients. There is one trace and one plan
    for each input signature; signatures are distinguished as `tf.function` does.
    """

    __wrapped__: Callable[..., Any]

    def __init__(self, fn: Callable[..., Any], options: Options, plans: Sequence[Placement] = ()) -> None:
        if not callable(fn):
            raise OptionError(f"cannot place {brief(fn)}, which is not a function: pass a callable or a tf.function.")
        if kind := why_untraceable(fn):
            raise OptionError(f"cannot place {brief(fn)}, which is {kind}.")
        self.__name__: str = getattr(fn, "__name__", "") or str(getattr(getattr(fn, "graph", None), "name", type(fn).__name__))
        functools.update_wrapper(self, fn, updated=())
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(fn)  # `inspect` takes an object with a __get__ for a descriptor without one
        self.signatures = Signatures(fn, self.__name__, options, plans)
        self._background = BackgroundPlanning(self.signatures) if options.planning == "background" and not plans else None
        self._methods: dict[int, tuple[Any, PlacedFunction]] = {}
        """By id of an instance: a weak reference to it, or the instance if it can have none, and its placed method."""

    def __repr__(self) -> str:
        count = len(self.signatures.known())
        return f"<PlacedFunction {self.__name__!r}: {count} signature{'s' if count != 1 else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle the placed function {self.__name__!r}: its traces and variables belong to one process. Send a plan: "
            f"save it with {self.__name__}.placement.save(path), and use placer.apply(fn, placer.Placement.load(path)) there."
        )

    def __copy__(self) -> PlacedFunction:
        """Another object for the same placed function."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> PlacedFunction:
        """A placed copy of the function, with its own plans. A method of a copied instance belongs to the copy."""
        return PlacedFunction(copy.deepcopy(self.signatures.function, memo), self.options, self.signatures.plans)

    @property
    def options(self) -> Options:
        """The options of its plans, without the lower limits of signatures that ran out of memory."""
        return self.signatures.options

    # -- methods ---------------------------------------------------------------------------------------------------

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        from placer.tf.run.calling import is_composite

        if is_composite(instance):
            return MethodType(self, instance)  # an argument like any other, as for tf.function
        key = id(instance)
        with self.signatures.lock:
            if key not in self._methods:
                self._methods[key] = self._bind(instance, owner)
            return self._methods[key][1]

    def _bind(self, instance: Any, owner: type | None) -> tuple[Any, PlacedFunction]:
        from placer.tf.trace.tracing import traceable

        key, fn = id(instance), self.signatures.function
        try:
            # Of a plain function, one tf.function for each instance: a shared one would take equal instances for the same.
            method = traceable(fn).__get__(instance, owner)
            keeper = weakref.ref(instance, lambda _: self._methods.pop(key, None))
        except TypeError:  # the instance has no hash, or no weak reference can refer to it
            method, keeper = fn.__get__(instance, owner), instance
        return keeper, PlacedFunction(method, self.options, self.signatures.plans)

    # -- calling ---------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._tasks:
            return self._call(*args, **kwargs)
        with naming_lost_workers(self.signatures, self._tasks):
            return self._call(*args, **kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if self._parameters is not None:
            args, kwargs = _with_defaults(self._parameters, args, kwargs)
        signatures = self.signatures
        key = self._call_key(args, kwargs)
        prepared = signatures.by_call.get(key) if key is not None else None
        if prepared is None:
            from placer.placed import learn, unplaced
            from placer.placed.strategy.replicated_signatures import in_place_of_call, signatures_of_one_device

            if (of_replica := signatures_of_one_device(signatures)) is not None:
                return self._with(of_replica)(*args, **kwargs)
            if signatures.of_replicas and (tune := in_place_of_call.get()) is not None:
                return tune(signatures, args, kwargs)
            if (run := unplaced.function_for_call(signatures, args, kwargs)) is not None:
                return run(*args, **kwargs)
            if (
                self._background is not None
                and not signatures.of_replicas
                and (run := self._background.plain_function(key, args, kwargs)) is not None
            ):
                return run(*args, **kwargs)
            with signatures.lock:  # a second thread waits until the first has initialised the variables
                try:
                    prepared = learn.first_call(signatures, args, kwargs) or signatures.prepare(args, kwargs, key)
                except TraceError as error:
                    return unplaced.initialising_function(signatures, error)(*args, **kwargs)
                warn_of_many_plans(signatures)
        signatures.latest = prepared
        call = prepared.run
        if (timing := prepared.timing) is not None:  # a key is that of an eager call
            call = timing if key is None else timing.alone if timing.no_tape() else timing.taped
        try:
            if (gate := signatures.unasked.gate) is None:
                return call(*args, **kwargs)
            with gate:
                return call(*args, **kwargs)
        except Exception as error:
            from placer.placed import learn, out_of_memory

            if timing is not None and timing.races:
                raise
            recover = out_of_memory.replanned if prepared.trace is not None else learn.is_made_again
            if not recover(signatures, prepared, error, args, kwargs):
                raise
        return self._call(*args, **kwargs)

    @functools.cached_property
    def _tasks(self) -> frozenset[str]:
        """The tasks of a cluster among the devices that are planned for."""
        return tasks_of(self.signatures)

    @functools.cached_property
    def _parameters(self) -> inspect.Signature | None:
        """The function's parameters if one has a default value, which a ConcreteFunction needs as an argument; otherwise None."""
        signature = getattr(self, "__signature__", None)
        return signature if signature and any(p.default is not p.empty for p in signature.parameters.values()) else None

    @functools.cached_property
    def _call_key(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Hashable | None]:
        from placer.tf.run.call_keys import call_key

        return call_key

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Sequence[str] = ()
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call, with default values.

        Args:
            args, kwargs: of the call.
            options: keywords that a method takes beside them.

        Raises:
            OptionError: a keyword that is neither a parameter of the function nor an option.
        """
        parameters = getattr(self, "__signature__", None) if options and kwargs else None
        if parameters and not any(each.kind is each.VAR_KEYWORD for each in parameters.parameters.values()):
            for name in kwargs:
                if name not in parameters.parameters:
                    raise OptionError(
                        f"{name!r} is no parameter of {self.__name__} and no option{did_you_mean(name, options)} "
                        f"The options are {', '.join(options)}."
                    )
        return (args, kwargs) if self._parameters is None else _with_defaults(self._parameters, args, kwargs)

    # -- plans -----------------------------------------------------------------------------------------------------

    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        """Makes a call with these arguments ready to run, without running it: what observing and measuring start from.

        Raises:
            PlacerError: planning failed, the function is left as it is, or the plan's devices are not here.
            TypeError: it cannot be called with these arguments, as from a call.
        """
        args, kwargs = self.arguments(args, kwargs)
        self.signatures.unasked.end_trial()
        prepared = self.signatures.prepare(args, kwargs)
        _ = prepared.planned
        self.signatures.latest = prepared
        return prepared

    def plan(self, *args: Any, devices: Machine | str | None = None, **kwargs: Any) -> Placement:
        """The plan for a call with these arguments or TensorSpecs, without running it.

        Args:
            *args: of the call.
            **kwargs: of the call.
            devices: another machine to plan for from now on, unless the function has a parameter of this name. If this call
                raises an error, the function keeps its machine.

        Raises:
            OptionError: `devices` is given for a function that runs by plans made before.
            PlacerError: planning failed, or the function is left as it is.
            TypeError: it cannot be called with these arguments, as from a call.
        """
        if devices is not None and "devices" in getattr(getattr(self, "__signature__", None), "parameters", ()):
            kwargs["devices"], devices = devices, None
        signatures = self.signatures if devices is None else self._signatures_for(devices)
        with signatures.lock:
            prepared = signatures.plan(args, kwargs)
            prepared.signature.asked_for = True
            plan = prepared.plan
        if signatures is not self.signatures:
            self.signatures = signatures
            self._background = BackgroundPlanning(signatures) if self.options.planning == "background" else None
            self._methods.clear()
            self.__dict__.pop("_tasks", None)
        return plan

    def _signatures_for(self, devices: Machine | str) -> Signatures:
        """Signatures without plans, to be planned for another machine."""
        before = self.signatures
        if before.plans:
            raise OptionError(f"{self.__name__} runs by plans made before: place it anew for other devices.")
        return Signatures(before.function, before.name, replace(self.options, devices=devices), ())

    @property
    def placement(self) -> Placement:
        """The plan of the latest call; under a tape, of the call and its gradient, whose ops are below "backward".

        Raises:
            PlanError: nothing has been called or planned yet, or the latest call's function is left as it is.
        """
        if self.signatures.latest is None:
            raise PlanError(f"{self.__name__} has no plan yet: call it, or use .plan(*args) to plan without running")
        return self.signatures.latest.plan

    @property
    def placements(self) -> Mapping[str, Placement]:
        """Plans by input signature, such as "float32[8,224,224,3], int32[8]".

        Calls under a tape have their own plans, each for the call and its gradient: "float32[8] (taped)". Under several tapes
        or a persistent one it is "float32[8] (taped, higher order)". Calls under a device scope have their own plans, too:
        "float32[8] (on GPU:0)".
        """
        return MappingProxyType({text: plan.placement for text, plan in self.signatures.call_plans().items()})

    def warm_up(self, calls: Iterable[Any]) -> None:
        """Makes calls until calls like them are planned and their races are over; see `placer.placed.warm_up.warm_up`.

        Variables are put back. Other effects of the calls are not.

        Args:
            calls: an example of each kind: a tuple of arguments, a dict of keyword arguments, or one argument of another type.
                A TensorSpec of known size stands for a tensor.

        Raises:
            OptionError: `calls` is no list of examples, or a size is not known.
            PlacerError: a call cannot be planned, or the plan's devices are not here.
        """
        from placer.placed.warm_up import warm_up

        warm_up(self, calls)

    def observe(self, *args: Any, **kwargs: Any) -> Observation:
        """Runs one call for real and reports where each op ran; see `placer.placed.observe`."""
        from placer.placed.observe import observe

        args, kwargs = self.arguments(args, kwargs)
        return observe(self.signatures, self.prepare(*args, **kwargs), args, kwargs)

    def observe_gradient(self, *args: Any, **kwargs: Any) -> Observation:
        """Like `observe`, of a call under a tape and the gradient of all its results, by the plan for both."""
        from placer.placed.observe import observe_gradient

        args, kwargs = self.arguments(args, kwargs)
        return observe_gradient(self.signatures, self.prepare(*args, **kwargs), args, kwargs)

    def profile(self, *args: Any, budget_s: float = 60.0, **kwargs: Any) -> Profile:
        """Measures the ops of a call with these arguments on the devices here; see `placer.verbs.profile.profile`.

        If the call was not planned before, its plan uses what was measured. Earlier plans stay as they are.
        """
        from placer.verbs.profile import profile

        args, kwargs = self.arguments(args, kwargs, ("budget_s",))
        with self.signatures.provisional_plan(args, kwargs) as plan:
            measured = profile(plan.graph, budget_s)
        self.plan(*args, **kwargs)
        return measured

    def learn(self, *args: Any, keep_state: bool = False, **kwargs: Any) -> Seen:
        """Runs one call of the plain function and notes what the graph does not say; see `placer.placed.learn.learn`.

        Noted are the sizes that data decides, how often loops run, how often branches are taken, and how many elements loops over
        datasets have. The next call or `plan` with such arguments makes a plan from them. Variables are put back unless
        `keep_state` is True.

        Raises:
            PlacerError: the function is left as it is, or it cannot be copied.
            Exception: the run fails, as a call would.
        """
        from placer.placed.learn import learn

        args, kwargs = self.arguments(args, kwargs, ("keep_state",))
        return learn(self.signatures, args, kwargs, keep_state)

    def harvest(self, *args: Any, steps: int = 5, **kwargs: Any) -> Harvest:
        """Runs real calls with these arguments under TensorFlow's profiler and stores the times of their ops on their devices.

        See `placer.placed.harvest.harvest`.

        Raises:
            OptionError: `steps` is no positive number of steps.
            PlacerError: the function fails, or the times cannot be stored.
        """
        from placer.placed.harvest import harvest

        args, kwargs = self.arguments(args, kwargs, ("steps",))
        return harvest(self.signatures, self.prepare(*args, **kwargs), args, kwargs, steps)

    def tune(
        self,
        *args: Any,
        budget_s: float = 30.0,
        compile: Literal["try", "off"] = "try",  # noqa: A002
        side_effects: Literal["refuse", "allow"] = "refuse",
        **kwargs: Any,
    ) -> Tuned:
        """Finds the fastest way to run calls with these arguments; later calls use it. See `placer.placed.tune.tune`.

        It takes about `budget_s` seconds. With ``compile="try"`` XLA's program is a candidate, too. Variables are put back. A
        function with other side effects is refused unless ``side_effects="allow"``. In a strategy's scope all replicas run.

        Raises:
            OptionError: an option that cannot be used, or effects that cannot be put back.
            PlacerError: the function is left as it is, or it fails.
        """
        from placer.placed.tune_in_scope import tune_where_called

        args, kwargs = self.arguments(args, kwargs, ("budget_s", "compile", "side_effects"))
        return tune_where_called(self, args, kwargs, budget_s, compile, side_effects)

    # -- saving ----------------------------------------------------------------------------------------------------

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """The ConcreteFunction for a call with these arguments or TensorSpecs: calls of it run by plan.

        `tf.saved_model.save` accepts it as a signature or as an attribute of the saved object. It is written without devices, so
        that it runs on other machines. The same holds for the placed function itself, and for a tf.function that calls it.

        Raises:
            PlacerError: planning failed, or the plan's devices are not here.
            TypeError: it cannot be called with these arguments, as from a call.
        """
        from placer.placed.saving import exportable

        return exportable(self.signatures, args, kwargs)


def _with_defaults(
    parameters: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with default values; unchanged where they do not fit, since TensorFlow's error says what is wrong."""
    try:
        bound = parameters.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs
    bound.apply_defaults()
    return bound.args, bound.kwargs
