"""PlacedFunction: one plan for each input signature, made at its first call, and the dispatch between them."""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, overload

from placer.errors import (
    DeviceError,
    InfeasibleError,
    MoveError,
    OptionError,
    PlacementWarning,
    PlacerError,
    PlanError,
    RewriteError,
    TraceError,
)
from placer.options import Options

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.plan.placement import Placement
    from placer.tf.rewrite.taping import Taping
    from placer.tf.run.harvesting import Harvest
    from placer.tf.run.observing import Observation
    from placer.tf.state.creating import Deferred
    from placer.tf.trace.tracing import Trace
    from placer.verbs.profile import Profile


_MOVING = threading.RLock()
"""Of all functions whose plans may move variables: while one is planned it holds those that another would move."""


@dataclass(frozen=True, eq=False)
class _Entry:
    """What is known of one traced signature."""

    signature: str
    concrete: Any
    """The plain ConcreteFunction."""
    trace: Trace | None
    """Of it; None for a function that is left as it is."""
    placement: Placement | None
    """None too for a function that is left as it is."""
    run: Any
    """The ConcreteFunction that calls go to; None until the plan's devices are needed."""


class PlacedFunction:
    """A function whose ops run where a solved plan says.

    Called like the function it wraps, with the same results, side effects and gradients. Calls are told apart as
    `tf.function` tells them apart: one trace and one plan per input signature.
    """

    autograph_info__ = None
    """By having it, called inside a tf.function, it is run as it is: AutoGraph would else rewrite all of this package."""
    __wrapped__: Callable[..., Any]

    def __init__(self, fn: Callable[..., Any], options: Options, plans: Sequence[Placement] = ()) -> None:
        if not callable(fn):
            raise OptionError(f"cannot place {fn!r}, which is not a function: pass a callable or a tf.function.")
        if kind := _untraceable(fn):
            raise OptionError(f"cannot place {fn!r}, which is {kind}.")
        self._fn = fn
        self._options = options
        self._plans = plans
        self._lock = _MOVING if self._moving else threading.RLock()
        self._calls: dict[Hashable, _Entry] = {}
        self._entries: dict[Hashable, _Entry] = {}
        self._exportable: dict[Hashable, Any] = {}
        self._taped: dict[str, Placement] = {}
        self._told: set[str] = set()
        self._traced: set[Hashable] = set()
        """Keys of calls that were traced, where plans may move variables."""
        self._short: set[str] = set()
        """Signatures that ran out of memory and were planned again, or for which no plan with less was found."""
        self._less: dict[str, Mapping[str, Any]] = {}
        """By signature: the limits it was planned again with."""
        self._latest: _Entry | None = None
        self._bound: dict[int, tuple[Any, PlacedFunction]] = {}  # by id of the instance, which lives on only where it has to
        self.__name__: str = getattr(fn, "__name__", "") or str(getattr(getattr(fn, "graph", None), "name", type(fn).__name__))
        functools.update_wrapper(self, fn, updated=())
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(fn)  # `inspect` takes what has a __get__ for a descriptor without one

    def __repr__(self) -> str:
        count = len(self._entries)
        return f"<PlacedFunction {self.__name__!r}: {count} signature{'s' if count != 1 else ''}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> PlacedFunction:
        """Of the function's copy, which for a method is that of the copied instance; it makes plans of its own."""
        return PlacedFunction(copy.deepcopy(self._fn, memo), self._options, self._plans)

    @property
    def options(self) -> Options:
        """What its calls are planned with, save the lower limits of signatures that ran out of memory."""
        return self._options

    def __tf_tracing_type__(self, context: Any) -> Any:
        """As an argument of a tf.function it is itself, not what it wraps."""
        from placer.tf._private.functions import trace_type_by_identity

        return trace_type_by_identity(self)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        from placer.tf._private.runtime import is_saving
        from placer.tf.run.calling import is_composite

        if is_composite(instance):
            return MethodType(self, instance)  # an argument like any other, as it is to tf.function
        key = id(instance)
        with self._lock:
            if key not in self._bound:
                self._bound[key] = self._bind(instance, owner)
            bound = self._bound[key][1]
            return bound._method_to_save() if is_saving() else bound

    def _bind(self, instance: Any, owner: type | None) -> tuple[Any, PlacedFunction]:
        from placer.tf.trace.tracing import traceable

        key = id(instance)
        try:
            # Of a plain function, a tf.function for each instance: one alone takes instances that are equal for the same.
            method = traceable(self._fn).__get__(instance, owner)
            keeper = weakref.ref(instance, lambda _: self._bound.pop(key, None))
        except TypeError:  # it has no hash or cannot be referred to weakly
            method, keeper = self._fn.__get__(instance, owner), instance
        return keeper, PlacedFunction(method, self._options, self._plans)

    @functools.cached_property
    def _traceable(self) -> Any:
        from placer.tf.trace.tracing import traceable

        return traceable(self._fn)

    # -- calling ---------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._signature is not None:
            args, kwargs = self._filled(self._signature, args, kwargs)
        key = self._call_key(args, kwargs)
        entry = self._calls.get(key) if key is not None else None
        if entry is None:
            from placer.tf._private import runtime
            from placer.tf.run import calling

            if calling.runs_eagerly():
                return self._traceable(*args, **kwargs)
            if calling.in_replica():
                return self._replicated()(*args, **kwargs)
            if runtime.in_dataset_function():
                self._left("a dataset calls it, in functions that run beside the step, on the host")
                return self._traceable(*args, **kwargs)
            if runtime.is_saving():
                return self._to_save(args, kwargs)(*args, **kwargs)
            with self._lock:  # who comes second finds the variables initialised
                try:
                    entry = self._prepared(args, kwargs, key)
                except TraceError as error:
                    return self._initialising(error)(*args, **kwargs)
        self._latest = entry
        try:
            return entry.run(*args, **kwargs)
        except Exception as error:
            if not self._planned_for_less(entry, error, args, kwargs):
                raise
        return self(*args, **kwargs)

    def _planned_for_less(self, entry: _Entry, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call that failed is to be made again, by a plan for less memory; raises what there is to say of it if not."""
        from placer.tf.run.exhausted import Exhaustion

        placement = self._latest.placement if self._latest is not None else None  # under a tape, another than the entry's
        found = None if placement is None else Exhaustion.of(error, placement)
        if found is None:
            return False
        if self._options.on_out_of_memory == "report" or self._plans:
            raise found.told(found.way_out(replan=not self._plans))
        with self._lock:
            if first := entry.signature not in self._short:
                self._short.add(entry.signature)
                limits = found.lowered(self._options.memory_limits)
                self._plan_again(entry, found.placement, limits, args, kwargs)
        if entry.signature not in self._less:
            raise found.told(f"No plan with less was found. {found.way_out(limit=False)}")
        if not first:
            raise found.told(found.way_out())
        planned = f"The next call is planned with memory_limits={limits}."
        if not found.pure:
            raise found.told(f"{planned} This one may have changed variables in part: put them back.")
        try:
            self._prepared(args, kwargs, None)
        except MoveError as refused:  # for a tape that watched it before the call failed
            raise found.told(f"{planned} This one is not made again: {refused}") from refused
        warnings.warn(f"{found.text} {planned}", PlacementWarning, stacklevel=3)
        return True

    def _plan_again(
        self,
        entry: _Entry,
        ran: Placement,
        limits: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Plans a signature with other limits; where these cannot be met, also by the plan that ran, all stays as it was."""
        from placer.tf.run import call_keys
        from placer.tf.state import moving, variables

        self._less[entry.signature] = limits
        self._forget(entry.concrete)
        variables.release_variables(entry.run)
        try:
            self._planned(args, kwargs)
            if ran is not entry.placement:  # under a tape, of the call and its gradient
                self._solved(ran.graph, limits)
        except InfeasibleError:
            del self._less[entry.signature]
            self._entries[call_keys.plan_key(entry.concrete)] = self._latest = entry
            moving.move([], entry.run)

    def _replicated(self) -> Any:
        """What a replica's call runs: the function itself, as replicas cannot wait for each other in a function of its own."""
        from placer.tf.run.calling import converted_like_caller

        self._left("it is called under a distribution strategy, which decides the devices")
        return converted_like_caller(self._fn)

    def _left(self, why: str) -> None:
        """Says, once, why a call runs unplaced."""
        if why not in self._told:
            self._told.add(why)
            warnings.warn(f"{self.__name__} is left as it is: {why}", PlacementWarning, stacklevel=4)
        self._latest = _Entry(why, None, None, None, None)

    def _initialising(self, error: TraceError) -> Any:
        """What runs a first call whose arguments give variables their initial values; raises where that is not why.

        What the function itself raised while it was traced is raised as it is: who calls it may be ready for that.
        """
        from placer.tf.run.calling import error_of_function, initialising_function

        concrete = initialising_function(self._traceable, error.__cause__)
        if concrete is None:
            if (own := error_of_function(error)) is not None:
                raise own from own.__cause__
            raise error
        warnings.warn(
            f"{self.__name__} is left as it is in its first call, whose arguments give its variables their initial values",
            PlacementWarning,
            stacklevel=3,
        )
        return concrete

    @functools.cached_property
    def _signature(self) -> inspect.Signature | None:
        """The function's signature if any parameter has a default: a ConcreteFunction wants those values said."""
        signature = getattr(self, "__signature__", None)
        return signature if signature and any(p.default is not p.empty for p in signature.parameters.values()) else None

    @staticmethod
    def _filled(
        signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return args, kwargs  # TensorFlow says what is wrong with the call
        bound.apply_defaults()
        return bound.args, bound.kwargs

    @functools.cached_property
    def _call_key(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Hashable | None]:
        from placer.tf.run.call_keys import call_key

        return call_key

    def _prepared(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: Hashable | None) -> _Entry:
        from placer.tf.run import call_keys
        from placer.tf.state import handle_holders

        with self._lock:
            # `watched` looks at every object: once for what is traced here, else only where something is to move.
            traced = call_keys.trace_key(args, kwargs) if self._moving else None
            known = traced in self._traced
            watched = handle_holders.watched_variables() if self._moving and not known else frozenset()
            entry = self._planned(args, kwargs)
            if traced is not None:
                self._traced.add(traced)
            if entry.run is None:
                if known:
                    watched = handle_holders.watched_variables()
                if self._outdated(entry):
                    entry = self._planned(args, kwargs)
                entry = self._applied(entry, watched)
            if key is not None:
                self._calls[key] = entry
            return entry

    def _planned(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Entry:
        if not self._moving:
            from placer.tf.trace.tracing import concrete_function

            return self._entry(concrete_function(self._traceable, args, kwargs), args, kwargs)
        from placer.tf.state.creating import Deferred

        deferred = Deferred()
        try:
            return self._created(deferred, args, kwargs)
        finally:
            deferred.create()  # for which there is no plan

    def _created(self, deferred: Deferred, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Entry:
        """What is known of a call, by whose plan variables are created that were made before it or by its first trace."""
        from placer.tf.devices import full_name
        from placer.tf.state.creating import forget_deleted
        from placer.tf.trace.tracing import concrete_function

        with deferred.tracing(self._traceable):
            traced = concrete_function(self._traceable, args, kwargs)
        entry = self._entry(traced, args, kwargs)
        ops = entry.placement.ops if entry.placement is not None else {}
        deferred.create(entry.trace, {name: full_name(plan.device) for name, plan in ops.items()})
        forget_deleted(traced.graph)
        return entry

    def _entry(self, traced: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Entry:
        from placer.tf.run import call_keys, eligibility
        from placer.tf.trace import tracing

        key = call_keys.plan_key(traced)
        entry = self._entries.get(key)
        if entry is not None:
            return entry
        trace, reason = eligibility.trace_if_placeable(traced, args, kwargs)
        signature = tracing.signature_text(traced) + call_keys.scope_text()
        if trace is None:
            warnings.warn(f"{self.__name__} is left as it is: {reason}", PlacementWarning, stacklevel=5)
            entry = _Entry(signature, traced, None, None, traced)
        else:
            entry = _Entry(signature, traced, trace, self._plan_of(trace, signature), None)
        self._entries[key] = entry
        self._latest = entry
        return entry

    def _plan_of(self, trace: Trace, signature: str) -> Placement:
        from placer.verbs.build_graph import build_graph

        graph = build_graph(trace)
        if self._plans:
            fitting = (plan for plan in self._plans if plan.fingerprint == graph.fingerprint)
            return next(fitting, self._plans[0]).bound_to(graph)
        return self._solved(graph, self._less.get(signature, self._options.memory_limits))

    def _solved(self, graph: OpGraph, limits: Mapping[str, Any]) -> Placement:
        from placer.verbs.solve import solve

        # Only a call under a tape has gradient ops to pin.
        pins = {p: d for p, d in self._options.pins.items() if not p.startswith("backward/") or fnmatch.filter(graph.graph, p)}
        return solve(graph, options=replace(self._options, pins=pins, memory_limits=limits))

    def _outdated(self, entry: _Entry) -> bool:
        """Whether variables were moved since the plan was made, which is then forgotten."""
        from placer.tf.state import variables

        assert entry.trace is not None
        assert entry.placement is not None
        found = variables.any_elsewhere(entry.trace, entry.placement)
        if found:
            self._forget(entry.concrete)
        return found

    def _forget(self, concrete: Any) -> None:
        """Plans the signature anew at its next call."""
        from placer.tf.run import call_keys

        self._entries.pop(call_keys.plan_key(concrete), None)
        self._exportable.pop(call_keys.plan_key(concrete), None)
        for key in [key for key, entry in list(self._calls.items()) if entry.concrete is concrete]:
            self._calls.pop(key, None)

    @functools.cached_property
    def _moving(self) -> bool:
        """Whether plans may move variables."""
        return "move" in (self._options.variables, *(plan.options.get("variables") for plan in self._plans))

    def _applied(self, entry: _Entry, watched: frozenset[tuple[int, int]]) -> _Entry:
        from placer.tf._private.gradients import is_recording
        from placer.tf.devices import full_name, process_devices
        from placer.tf.rewrite import rewriting
        from placer.tf.rewrite.taping import TapedFunction
        from placer.tf.run import call_keys
        from placer.tf.run.exhausted import report
        from placer.tf.state import creating, moving, variables

        placement, trace = entry.placement, entry.trace
        assert placement is not None
        assert trace is not None
        creating.initialise_variables(trace.concrete)
        missing = [d for d in dict.fromkeys(p.device for p in placement.ops.values()) if d not in process_devices()]
        if missing:
            raise DeviceError(
                f"the plan for {self.__name__} uses {', '.join(missing)}, and this process has {', '.join(process_devices())}: "
                f"read the plan through .placement, or plan again with devices=None for this machine"
            )

        def full(placement: Placement) -> dict[str, str]:
            return {name: full_name(plan.device) for name, plan in placement.ops.items()}

        device_of = full(placement)
        try:
            placed = rewriting.rewrite_by_plan(trace, placement, report)
        except RewriteError as error:
            warnings.warn(f"{self.__name__} is left as it is: {error}", PlacementWarning, stacklevel=5)
            entry = replace(entry, trace=None, placement=None, run=entry.concrete)
        else:
            shapes = [placement.graph.op(name).signature.outputs[k].shape for name, k in placement.graph.outputs]
            run = TapedFunction(placed, trace, shapes, self._taping(entry))
            if placement.options.get("variables") == "move":
                taped = run.pair_plan() if is_recording() else None  # what its gradient needs counts, too
                wanted = variables.needed_moves(trace, device_of if taped is None else full(taped))
                moving.move(wanted, run, placement.options.get("stale", "repoint"), watched)
                if variables.needed_moves(trace, device_of):
                    placement = self._plan_of(trace, entry.signature)  # without a tape, with the variables where they are now
                    placed = rewriting.rewrite_by_plan(trace, placement, report)
                    run = TapedFunction(placed, trace, shapes, self._taping(entry)).with_pairs_of(run)
                    moving.move([], run)
            entry = replace(entry, placement=placement, run=run)
        self._entries[call_keys.plan_key(entry.concrete)] = entry
        return entry

    def _taping(self, entry: _Entry) -> Taping:
        from placer.tf.rewrite.taping import Taping
        from placer.tf.run.exhausted import report

        def plan(pair: Trace, higher: bool) -> Placement:
            placement = self._plan_of(pair, entry.signature)
            self._taped[f"{entry.signature} (taped{', higher order' if higher else ''})"] = placement
            return placement

        def on_call(placement: Placement) -> None:
            self._latest = replace(entry, placement=placement)

        def on_unplaced(why: str) -> None:
            if why not in self._told:
                self._told.add(why)
                warnings.warn(
                    f"{self.__name__} runs unplaced under a tape: {why}; put the tape inside the placed function",
                    PlacementWarning,
                    stacklevel=2,
                )

        return Taping(plan, on_call, on_unplaced, report, lambda: self._forget(entry.concrete))

    # -- exporting -------------------------------------------------------------------------------------------------

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """The ConcreteFunction for a call with these arguments or TensorSpecs: calls of it run by plan.

        `tf.saved_model.save` takes it as a signature or as an attribute of what is saved, and writes it without devices, so that
        it runs where others are; so too a tf.function that calls the placed function, and a method that is decorated in its
        class. A placed function that is an attribute of an instance is left out: assign what this returns.

        Raises:
            PlacerError: planning failed, or the plan's devices are not here.
            TypeError: it cannot be called with these arguments, as from a call.
        """
        from placer.tf.rewrite.exporting import ExportableFunction, without_devices
        from placer.tf.run import call_keys

        with self._lock:
            entry = self._prepared(args, kwargs, None)
            if entry.trace is None:
                return entry.concrete
            key = call_keys.plan_key(entry.concrete)
            if key not in self._exportable:
                self._exportable[key] = ExportableFunction(entry.run, without_devices(entry.trace))
            return self._exportable[key]

    def _method_to_save(self) -> Any:
        """What `tf.saved_model.save` finds of a method: a tf.function without devices, of the signatures that were planned."""
        for entry in tuple(self._entries.values()):
            args, kwargs = entry.concrete.structured_input_signature
            self._around.get_concrete_function(*args, **kwargs)
        return self._around

    @functools.cached_property
    def _around(self) -> Any:
        from placer.tf.rewrite.exporting import calling_function

        return calling_function(self)

    def _to_save(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The ConcreteFunction for a call from a function that is traced to be saved."""
        from placer.tf.rewrite.exporting import without_devices
        from placer.tf.run import eligibility
        from placer.tf.trace import tracing

        concrete = tracing.concrete_function(self._traceable, args, kwargs)
        trace, _ = eligibility.trace_if_placeable(concrete, args, kwargs)
        try:
            return concrete if trace is None else without_devices(trace)
        except RewriteError:
            return concrete

    # -- plans -----------------------------------------------------------------------------------------------------

    def plan(self, *args: Any, **kwargs: Any) -> Placement:
        """The plan for a call with these arguments or TensorSpecs, without running it.

        Raises:
            PlacerError: planning failed, or the function is left as it is.
            TypeError: it cannot be called with these arguments, as from a call.
        """
        with self._lock:
            return _placement(self._planned(args, kwargs), self.__name__)

    @property
    def placement(self) -> Placement:
        """The plan of the latest call; under a tape, of the call and its gradient, whose ops are below "backward".

        Raises:
            PlanError: nothing has been called or planned yet, or the latest call's function is left as it is.
        """
        if self._latest is None:
            raise PlanError(f"{self.__name__} has no plan yet: call it, or use .plan(*args) to plan without running")
        return _placement(self._latest, self.__name__)

    @property
    def placements(self) -> Mapping[str, Placement]:
        """Plans by input signature, such as "float32[8,224,224,3], int32[8]".

        Calls under a tape have plans of their own, each for the call and its gradient: those of "float32[8]" are
        "float32[8] (taped)", and "float32[8] (taped, higher order)" where several tapes or a persistent one watch. So have calls
        under a device scope: "float32[8] (on GPU:0)".
        """
        untaped = {e.signature: e.placement for e in self._entries.values() if e.placement is not None}
        return MappingProxyType(untaped | self._taped)

    def observe(self, *args: Any, **kwargs: Any) -> Observation:
        """Runs one call for real and reports where each op ran; see `placer.tf.run.observing`."""
        from placer.tf.run.observing import observe_call

        run, args, kwargs = self._fresh(args, kwargs)
        return observe_call(lambda: run(*args, **kwargs), lambda: self.placement, 1)

    def observe_gradient(self, *args: Any, **kwargs: Any) -> Observation:
        """Like `observe`, of a call under a tape and the gradient of all its results, by the plan for both."""
        from placer.tf.run.observing import observe_call, with_gradient

        run, args, kwargs = self._fresh(args, kwargs)
        return observe_call(lambda: with_gradient(run, args, kwargs), lambda: self.placement, 2)

    def _fresh(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The function for a call, as one that has not run yet, and the call's arguments with defaults."""
        if self._signature is not None:
            args, kwargs = self._filled(self._signature, args, kwargs)
        entry = self._prepared(args, kwargs, None)
        _placement(entry, self.__name__)
        self._latest = entry
        return entry.run.again(), args, kwargs

    def profile(self, *args: Any, budget_s: float = 60.0, **kwargs: Any) -> Profile:
        """Measures the ops of a call with these arguments on the devices here; see `placer.verbs.profile.profile`.

        A call that was not planned before is planned by what was measured. Plans made before stay as they are: place the
        function again to plan anew.
        """
        from placer.verbs.profile import profile

        with self._lock:
            planned = tuple(self._entries.values())
            entry = self._planned(args, kwargs)
        graph = _placement(entry, self.__name__).graph
        try:
            found = profile(graph, budget_s)
        finally:  # also where it is stopped: a plan made for its graph alone knows nothing of what was measured
            with self._lock:
                if entry not in planned and entry in self._entries.values():
                    self._forget(entry.concrete)
        self.plan(*args, **kwargs)
        return found

    def harvest(self, *args: Any, steps: int = 5, **kwargs: Any) -> Harvest:
        """Runs real calls with these arguments under TensorFlow's profiler and stores what their ops took, each on its device.

        What was measured by itself stays; what cannot be (an op with side effects, or whose shapes are not known) gets a figure.
        The function's variables are put back afterwards, whatever else it does stays done. See `placer.tf.run.harvesting`.

        Raises:
            OptionError: `steps` is no number of them.
            PlacerError: the function fails, or what it took cannot be stored.
        """
        if type(steps) is not int or steps < 1:
            raise OptionError(f"steps={steps!r} is no number of steps above 0; leave it out for the default.")
        from placer.tf.run.harvesting import harvest
        from placer.tf.run.timing import blocking_step, restored_variables, warm_up
        from placer.verbs.profile import check_store, keep

        check_store()
        if self._signature is not None:
            args, kwargs = self._filled(self._signature, args, kwargs)
        entry = self._prepared(args, kwargs, None)
        placement = _placement(entry, self.__name__)
        step = blocking_step(lambda: entry.run(*args, **kwargs), ())
        with restored_variables(entry.concrete, (args, kwargs)):
            if why := warm_up(step):
                raise PlacerError(f"{self.__name__} cannot be run: {why}")
            found = harvest(step, placement, steps)
        keep(found, placement)
        return found


def _untraceable(fn: Any) -> str:
    """What a callable is, and what to pass instead, where calling it does not run ops; "" for any other."""
    fn = getattr(fn, "python_function", fn)  # what a tf.function was made of
    if isinstance(fn, type):
        return "a class: pass a function, or an instance that can be called"
    for called in (fn, fn.__call__):
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            return "an async function: pass one that returns its results, and call that from there"
        if inspect.isgeneratorfunction(called):
            return "a generator function: pass one that returns its results"
    return ""


def _no_builder(build: Any) -> str:
    """In words, why something cannot be what makes variables and a function, as far as it tells; "" where it can."""
    if not callable(build):
        return "cannot be called"
    if hasattr(build, "get_concrete_function"):
        return "is a tf.function, in whose graph the variables would be"
    if hasattr(build, "trainable_variables") and not isinstance(build, type):
        return "is a model, layer or module itself"
    why = _unbound(build, ())
    return why and f"cannot be called without arguments, {why}"


def _unbound(fn: Callable[..., Any], args: Sequence[Any]) -> str:
    """In words, why a function cannot be called with these arguments; "" where it can, or does not tell."""
    try:
        inspect.signature(fn).bind(*args)
    except TypeError as error:
        return str(error)
    except ValueError:  # it has no signature
        return ""
    return ""


def _placement(entry: _Entry, name: str) -> Placement:
    if entry.placement is None:
        raise PlanError(f"{name} is left as it is for {entry.signature}, so it has no plan")
    return entry.placement


def _options(given: Mapping[str, Any]) -> Options:
    """Options from keywords, each name in them looked up. Raises OptionError where one cannot be used."""
    from placer.verbs.solve import look_up

    options = Options.of(given)
    look_up(options)
    return options


_LATER: Any = object()
"""Stands for the function where the decorator is used with parentheses."""


@overload
def optimized_placement(fn: Callable[..., Any], /) -> PlacedFunction: ...


@overload
def optimized_placement(**options: Any) -> Callable[[Callable[..., Any]], PlacedFunction]: ...


def optimized_placement(fn: Callable[..., Any] = _LATER, /, **options: Any) -> Any:
    """Decorates a function, tf.function or method so that its ops run where a solved plan says.

    Args:
        fn: given where the decorator is used without parentheses.
        **options: the fields of `placer.Options`.

    Example:
        >>> @optimized_placement(memory_limits={"GPU:0": "8GiB"})  # doctest: +SKIP
        ... def step(images, labels): ...
    """
    checked = _options(options)
    if fn is _LATER:
        return lambda function: PlacedFunction(function, checked)
    return PlacedFunction(fn, checked)


def place(fn: Callable[..., Any], *args: Any, **options: Any) -> PlacedFunction:
    """Wraps a function so that its calls run where a solved plan says; plans at once if example arguments are given.

    Args:
        fn: a callable, a tf.function or a method.
        *args: example arguments or TensorSpecs; without any, each signature is planned at its first call, the only one of a
            ConcreteFunction at once.
        **options: the fields of `placer.Options`.

    Raises:
        OptionError: an unknown option, or a value that cannot be used.
        PlacerError: planning failed; the function is as it was.
    """
    placed = PlacedFunction(fn, _options(options))
    if args or hasattr(fn, "structured_input_signature"):
        with placed._lock:
            placed._planned(args, {})
    return placed


def plan_then_create(build: Callable[[], Any], example_args: Sequence[Any], **options: Any) -> Any:
    """Makes variables and the function that uses them, plans it, and only then creates the variables, each where the plan has it.

    While `build` runs, and the function is traced, no variable takes memory, unless `build` uses its value: that is then in the
    host's, as are those that a function captures which `build` traces. Initial values are computed there too, as if all had been
    made under `tf.device("CPU:0")`. A function that gives one runs once, in a graph; twice, and its value is kept, if that
    has ops with state other than draws by op seeds: then it should not draw from a generator of your own, such as
    `np.random.default_rng()`, or count calls.

    Args:
        build: makes the variables (models, layers, optimizers) and returns the function; or a tuple of it and whatever else.
        example_args: arguments or TensorSpecs of the function.
        **options: the fields of `placer.Options`; ``variables="move"`` is meant.

    Returns:
        The function as `place` gives it, planned; in a tuple with what else `build` returned, if it did.

    Raises:
        OptionError: an unknown option, a value that cannot be used, or `build` returned no function.
        TraceError: a function that is being traced calls it.
        PlacerError: planning failed; the variables have no values before they are used.
    """
    from placer.tf.state.creating import Deferred

    checked = _options({"variables": "move", **options})
    if checked.variables != "move":
        raise OptionError('plan_then_create plans where variables are: variables="fixed" is for those that are there.')
    if why := _no_builder(build):
        raise OptionError(
            f"build={build!r:.80} {why}: pass a callable without arguments that makes the variables and returns the function "
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
    if why := _unbound(placed, example_args):
        raise OptionError(f"{placed.__name__} cannot be called with the {len(example_args)} of example_args: {why}.")
    with placed._lock:
        try:
            placed._created(deferred, tuple(example_args), {})
        except BaseException:
            deferred.abandon()
            raise
    return (placed, *others) if others else placed


def apply(fn: Callable[..., Any], *placements: Placement) -> PlacedFunction:
    """Wraps a function so that its calls run by plans made before.

    Args:
        fn: the function they were made for.
        *placements: one for each input signature that is called; those of calls under a tape are plans of their own.

    Raises:
        OptionError: `fn` is no function, or what is given is no Placement.

    Raises (at the first call):
        PlanError: the function's graph is not one that a plan was made for.
        DeviceError: the plan uses devices this process does not have.
    """
    from placer.plan.placement import Placement

    for placement in placements or (None,):
        if not isinstance(placement, Placement):
            raise OptionError(f"apply takes a Placement, not {placement!r}: placer.Placement.load(path) reads a saved one.")
    return PlacedFunction(fn, Options(), plans=placements)
