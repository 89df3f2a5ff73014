"""PlacedFunction: one plan for each input signature, made at its first call, and the dispatch between them."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from placer.errors import DeviceError, OptionError, PlacementWarning, PlanError, RewriteError
from placer.options import Options

if TYPE_CHECKING:
    from placer.placement import Placement
    from placer.tf.observing import Observation
    from placer.tf.tracing import Trace


@dataclass(frozen=True, eq=False)
class _Entry:
    """What is known of one traced signature."""

    signature: str
    trace: Trace
    """Of the plain ConcreteFunction."""
    placement: Placement | None
    """None for a function that is left as it is."""
    run: Any
    """The ConcreteFunction that calls go to; None until the plan's devices are needed."""


class PlacedFunction:
    """A function whose ops run where a solved plan says.

    Called like the function it wraps, with the same results, side effects and gradients. Calls are told apart as
    `tf.function` tells them apart: one trace and one plan per input signature.
    """

    autograph_info__ = None
    """By having it, called inside a tf.function, it is run as it is: AutoGraph would else rewrite all of this package."""

    def __init__(self, fn: Callable[..., Any], options: Options, plan: Placement | None = None) -> None:
        if not callable(fn):
            raise OptionError(f"cannot place {fn!r}: what is not a function has no ops; pass a callable or a tf.function.")
        self._fn = fn
        self._options = options
        self._plan = plan
        self._lock = threading.RLock()
        self._calls: dict[Hashable, _Entry] = {}
        self._entries: dict[int, _Entry] = {}
        self._latest: _Entry | None = None
        self._bound: weakref.WeakKeyDictionary[Any, PlacedFunction] = weakref.WeakKeyDictionary()
        self.__name__: str = getattr(fn, "__name__", type(fn).__name__)
        functools.update_wrapper(self, fn, updated=())

    def __repr__(self) -> str:
        return f"<PlacedFunction {getattr(self._fn, '__name__', self._fn)!s}: {len(self._entries)} signatures>"

    def __get__(self, instance: Any, owner: type | None = None) -> PlacedFunction:
        if instance is None:
            return self
        with self._lock:
            bound = self._bound.get(instance)
            if bound is None:
                method = self._traceable.__get__(instance, owner)
                bound = self._bound[instance] = PlacedFunction(method, self._options, self._plan)
        return bound

    @functools.cached_property
    def _traceable(self) -> Any:
        from placer.tf.tracing import traceable

        return traceable(self._fn)

    # -- calling ---------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._signature is not None:
            args, kwargs = self._filled(self._signature, args, kwargs)
        key = self._call_key(args, kwargs)
        entry = self._calls.get(key) if key is not None else None
        if entry is None:
            entry = self._prepared(args, kwargs, key)
        self._latest = entry
        try:
            return entry.run(*args, **kwargs)
        except Exception as error:
            # Refused before anything ran: under a tape outside, TensorFlow's own forward function of a loop can be impossible
            # to place, whatever the plan (it pins the handles the loop passes on to where the loop is).
            if (
                not all(part in str(error) for part in ("Cannot place the graph", "__forward_"))
                or entry.run is entry.trace.concrete
            ):
                raise
            warnings.warn(
                f"{self.__name__} runs unplaced here: TensorFlow cannot place its forward function under a tape outside; "
                f"put the GradientTape inside the placed function",
                PlacementWarning,
                stacklevel=2,
            )
            return entry.trace.concrete(*args, **kwargs)

    @functools.cached_property
    def _signature(self) -> inspect.Signature | None:
        """The function's signature if any parameter has a default: a ConcreteFunction wants those values said."""
        try:
            signature = inspect.signature(self._fn)
        except (TypeError, ValueError):
            return None
        return signature if any(p.default is not p.empty for p in signature.parameters.values()) else None

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
        from placer.tf.calling import call_key

        return call_key

    def _prepared(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: Hashable | None) -> _Entry:
        with self._lock:
            entry = self._planned(args, kwargs)
            if entry.run is None:
                entry = self._applied(entry)
            if key is not None:
                self._calls[key] = entry
            return entry

    def _planned(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Entry:
        from placer.planning import build_graph
        from placer.solving import solve
        from placer.tf import calling, tracing

        traced = tracing.concrete_function(self._traceable, args, kwargs)
        entry = self._entries.get(id(traced))
        if entry is not None:
            return entry
        trace = tracing.trace_concrete(traced, args, kwargs)
        signature = tracing.signature_text(traced)
        reason = calling.leave_alone(trace)
        if reason:
            warnings.warn(f"{self.__name__} is left as it is: {reason}", PlacementWarning, stacklevel=4)
            entry = _Entry(signature, trace, None, traced)
        else:
            graph = build_graph(trace)
            placement = self._plan.bound_to(graph) if self._plan else solve(graph, options=self._options)
            entry = _Entry(signature, trace, placement, None)
        self._entries[id(traced)] = entry
        self._latest = entry
        return entry

    def _applied(self, entry: _Entry) -> _Entry:
        from placer.tf import rewriting
        from placer.tf.devices import full_name, process_devices

        placement = entry.placement
        assert placement is not None
        missing = [d for d in dict.fromkeys(p.device for p in placement.ops.values()) if d not in process_devices()]
        if missing:
            raise DeviceError(
                f"the plan for {self.__name__} uses {', '.join(missing)}, and this process has {', '.join(process_devices())}: "
                f"read the plan through .placement, or plan again with devices=None for this machine"
            )
        try:
            run = rewriting.rewrite(entry.trace, {name: full_name(plan.device) for name, plan in placement.ops.items()})
        except RewriteError as error:
            warnings.warn(f"{self.__name__} is left as it is: {error}", PlacementWarning, stacklevel=5)
            run = entry.trace.concrete
        entry = _Entry(entry.signature, entry.trace, placement, run)
        self._entries[id(entry.trace.concrete)] = entry
        return entry

    # -- plans -----------------------------------------------------------------------------------------------------

    def plan(self, *args: Any, **kwargs: Any) -> Placement:
        """The plan for a call with these arguments or TensorSpecs, without running it.

        Raises:
            PlacerError: planning failed, or the function is left as it is.
        """
        with self._lock:
            return _placement(self._planned(args, kwargs), self.__name__)

    @property
    def placement(self) -> Placement:
        """The plan of the latest call.

        Raises:
            PlanError: nothing has been called or planned yet, or the latest call's function is left as it is.
        """
        if self._latest is None:
            raise PlanError(f"{self.__name__} has no plan yet: call it, or use .plan(*args) to plan without running")
        return _placement(self._latest, self.__name__)

    @property
    def placements(self) -> Mapping[str, Placement]:
        """Plans by input signature, such as "float32[8,224,224,3], int32[8]"."""
        return MappingProxyType({e.signature: e.placement for e in self._entries.values() if e.placement is not None})

    def observe(self, *args: Any, **kwargs: Any) -> Observation:
        """Runs one call for real and reports where each op ran; see `placer.tf.observing`."""
        from placer.tf.observing import observe_concrete

        if self._signature is not None:
            args, kwargs = self._filled(self._signature, args, kwargs)
        entry = self._prepared(args, kwargs, None)
        placement = _placement(entry, self.__name__)
        planned = {name: plan.device for name, plan in placement.ops.items()}
        return observe_concrete(entry.run, placement.graph, planned, args, kwargs)


def _placement(entry: _Entry, name: str) -> Placement:
    if entry.placement is None:
        raise PlanError(f"{name} is left as it is for {entry.signature}, so it has no plan")
    return entry.placement


def _options(given: Mapping[str, Any]) -> Options:
    """Options from keywords, each name in them looked up. Raises OptionError where one cannot be used."""
    from placer.solving import check

    options = Options.of(given)
    check(options)
    return options


@overload
def optimized_placement(fn: Callable[..., Any], /) -> PlacedFunction: ...


@overload
def optimized_placement(**options: Any) -> Callable[[Callable[..., Any]], PlacedFunction]: ...


def optimized_placement(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorates a function, tf.function or method so that its ops run where a solved plan says.

    Args:
        fn: given where the decorator is used without parentheses.
        **options: the fields of `placer.Options`.

    Example:
        >>> @optimized_placement(memory_limits={"GPU:0": "8GiB"})  # doctest: +SKIP
        ... def step(images, labels): ...
    """
    checked = _options(options)
    if fn is not None:
        return PlacedFunction(fn, checked)
    return lambda function: PlacedFunction(function, checked)


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
        placed.plan(*args)
    return placed


def apply(fn: Callable[..., Any], placement: Placement) -> PlacedFunction:
    """Wraps a function so that its calls run by a plan made before.

    Raises:
        OptionError: `fn` is no function, or `placement` no Placement.

    Raises (at the first call):
        PlanError: the function's graph is not the one the plan was made for.
        DeviceError: the plan uses devices this process does not have.
    """
    from placer.placement import Placement

    if not isinstance(placement, Placement):
        raise OptionError(f"apply takes a Placement, not {placement!r}: placer.Placement.load(path) reads a saved one.")
    return PlacedFunction(fn, Options(), plan=placement)
