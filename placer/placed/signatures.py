"""The input signatures of a placed function: each is traced, planned and rewritten at its first call."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from placer.common.garbage_collection import paused_collection
from placer.common.warning import warn
from placer.errors import MoveError, RewriteError
from placer.graph.seen import Seen
from placer.options import Options
from placer.placed import memory
from placer.placed.lost_workers import names_lost_workers
from placer.placed.present_devices import check_devices
from placer.placed.race.begin import begin
from placer.placed.race.moved_plans import moved_by_prediction, with_moved_variables
from placer.placed.race.unasked_moves import MOVING_LOCK, UnaskedMoves
from placer.placed.recall import Recall
from placer.placed.signature import Prepared, Signature
from placer.plan.call_plan import CallPlan
from placer.verbs.build_graph import build_graph
from placer.verbs.solve import machine_named, solved
from placer.verbs.traced_for import traced_for

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.plan.placement import Placement
    from placer.tf.rewrite.taping import TapedFunction, Taping
    from placer.tf.state.creating import Deferred
    from placer.tf.trace.tracing import Trace
    from placer.verbs.solve import Solved


class Signatures:
    """The signatures of one placed function, and what is needed to prepare another one."""

    of_replicas = False
    """Whether its calls run the replicas of a distribution strategy."""

    def __init__(self, function: Callable[..., Any], name: str, options: Options, plans: Sequence[Placement]) -> None:
        """Args:
        function: the plain function.
        name: of the function, for messages.
        options: of its plans.
        plans: made before, which its calls run by. Empty: each signature is planned by the options.
        """
        self.function = function
        self.name = name
        self.options = options
        self.plans = plans
        self.by_call: dict[Hashable, Prepared] = {}
        """Calls that were prepared, by call key."""
        self.latest: Prepared | None = None
        """Of the latest call; under a tape, with the plan of the call and its gradient."""
        self.compiled_callers: set[str] = set()
        """Functions that XLA compiles as a whole and that called it while they were traced, in words."""
        self.moves_variables = "move" in (options.variables, *(plan.options.get("variables") for plan in plans))
        self.lock = MOVING_LOCK if self.moves_variables else threading.RLock()
        self.unasked = UnaskedMoves(name, not plans and options.may_try_moves, self.lock)
        self._signatures: dict[Hashable, Signature] = {}
        self._traced: set[Hashable] = set()
        """Trace keys of calls that were traced, where plans may move variables."""
        self._warned: set[str] = set()
        self.replicated: dict[Hashable, Signatures] = {}
        """Of calls under distribution strategies: by the function that runs all replicas, or by the device of the only one."""

    @cached_property
    def traceable(self) -> Any:
        """The function as a tf.function or ConcreteFunction."""
        from placer.tf.trace.tracing import traceable

        return traceable(self.function)

    @cached_property
    def planned_devices(self) -> frozenset[str]:
        """The devices of the machine that the options name, and of given plans."""
        machine = machine_named(self.options.devices)
        return frozenset(() if machine is None else (d.name for d in machine.devices)).union(*(p.devices for p in self.plans))

    def known(self) -> list[Signature]:
        """The signatures that are planned or run unplaced."""
        return [signature for signature in tuple(self._signatures.values()) if signature.current is not None]

    def call_plans(self) -> dict[str, CallPlan]:
        """What calls run by, by signature: of calls without a tape, of calls under one, of calls under a strategy."""
        signatures = tuple(self._signatures.values())
        prepared = [signature.current for signature in signatures if signature.current is not None]
        plans = {p.signature.text: p.call_plan for p in prepared if p.call_plan is not None}
        for others in (*(each.taped for each in signatures), *(each.call_plans() for each in self.replicated.values())):
            plans |= others
        return plans

    def warn_once(self, key: str, text: str) -> None:
        """Gives a warning, unless one with this key was given before."""
        if key not in self._warned:
            self._warned.add(key)
            warn(text)

    @names_lost_workers
    def prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], call_key: Hashable | None = None) -> Prepared:
        """Makes a call ready to run: traces, plans and rewrites the function where that was not done before.

        Raises:
            PlacerError: tracing, planning or moving variables failed, or the plan's devices are not here.
            TypeError: the function cannot be called with these arguments.
        """
        from placer.tf.run import call_keys
        from placer.tf.state import handle_holders, variables

        with self.lock:
            # `watched` looks at every object: done before a trace, and otherwise only where variables may move.
            trace_key = call_keys.trace_key(args, kwargs) if self.moves_variables else None
            traced_before = trace_key in self._traced
            watched = handle_holders.watched_variables() if self.moves_variables and not traced_before else frozenset()
            prepared = self.plan(args, kwargs)
            if trace_key is not None:
                self._traced.add(trace_key)
            if prepared.run is None:
                if traced_before:
                    watched = handle_holders.watched_variables()
                if prepared.trace and prepared.call_plan and variables.any_elsewhere(prepared.trace, prepared.call_plan):
                    self.forget(prepared.signature)
                    prepared = self.plan(args, kwargs)
                try:
                    prepared = self._apply(prepared, watched)
                except MoveError:
                    if self.moves_variables:
                        raise
                    self.plan_again(prepared)  # an earlier start could move them, this one cannot
                    prepared = self._apply(self.plan(args, kwargs), watched)
                prepared.signature.current = prepared
            if call_key is not None:
                self.by_call[call_key] = prepared
            return prepared

    # -- planning --------------------------------------------------------------------------------------------------

    def plan(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Prepared:
        """Traces and plans a call where that was not done before. It is not rewritten, so the plan's devices are not needed."""
        if not self.moves_variables:
            return self._planned(self.traced_function(args, kwargs), args, kwargs)
        from placer.tf.state.creating import Deferred

        deferred = Deferred()
        try:
            return self.plan_and_create(deferred, args, kwargs)
        finally:
            deferred.create()  # variables that no plan places

    @names_lost_workers
    def plan_and_create(self, deferred: Deferred, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Prepared:
        """Plans a call, then creates variables where the plan has them: deferred ones, and those that the first trace makes."""
        from placer.tf.devices import full_names
        from placer.tf.state.creating import forget_deleted

        with deferred.tracing(self.traceable):
            concrete = self.traced_function(args, kwargs)
        prepared = self._planned(concrete, args, kwargs)
        deferred.create(prepared.trace, full_names(prepared.call_plan.device_of) if prepared.call_plan else {})
        forget_deleted(concrete.graph)
        return prepared

    @contextmanager
    def provisional_plan(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Placement]:
        """The plan of a call. If the call was not planned before, the plan is forgotten at the end of the block.

        Raises:
            PlanError: the function is left as it is.
        """
        with self.lock:
            known = self.known()
            prepared = self.plan(args, kwargs)
        placement = prepared.plan
        try:
            yield placement
        finally:
            with self.lock:
                if prepared.signature not in known and prepared.signature.current is prepared:
                    self.forget(prepared.signature)

    def solve(self, graph: OpGraph, memory_limits: Mapping[str, str | int], **changes: Any) -> Solved:
        """Plans a graph by the options, with other memory limits and other changes."""
        # Only a call under a tape has gradient ops to pin.
        pins = {p: d for p, d in self.options.pins.items() if not p.startswith("backward/") or fnmatch.filter(graph.graph, p)}
        return solved(graph, options=replace(self.options, pins=pins, memory_limits=memory_limits, **changes))

    def signature_of(self, concrete: Any) -> Signature:
        """The signature of a plain ConcreteFunction under the current device scope."""
        from placer.tf.run import call_keys
        from placer.tf.trace.tracing import signature_text

        key = call_keys.plan_key(concrete)
        if key not in self._signatures:
            self._signatures[key] = Signature(self.name, signature_text(concrete) + call_keys.scope_text(), concrete)
        return self._signatures[key]

    def graph_of(self, trace: Trace, seen: Seen | None = None) -> OpGraph:
        """The graph of a trace with the given sizes and rounds, and with what was seen."""
        return build_graph(trace, sizes=self.options.sizes, rounds=self.options.rounds, seen=seen)

    def forget(self, signature: Signature) -> None:
        """Lets the next call of a signature plan it again, and the next call under a tape where these have raced."""
        if signature.current is not None and signature.current.timing is not None:
            self.unasked.forget(signature.current.timing.alone)
        signature.current = signature.exportable = signature.pair = None
        for text in [text for text, plan in signature.taped.items() if plan.verdict is not None]:
            del signature.taped[text]
        for key in [key for key, prepared in list(self.by_call.items()) if prepared.signature is signature]:
            self.by_call.pop(key, None)

    def plan_again(self, prepared: Prepared) -> None:
        """Lets the next call of a signature plan it again, whatever is remembered."""
        memory.forget(prepared.planned)
        self.forget(prepared.signature)

    def traced_function(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The plain ConcreteFunction of a call, traced as on the machine that it is planned for."""
        from placer.tf.trace.tracing import concrete_function

        with traced_for(self.options):
            return concrete_function(self.traceable, args, kwargs)

    def _planned(self, concrete: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Prepared:
        from placer.tf.run import eligibility
        from placer.tf.trace.tracing import concrete_function

        signature = self.signature_of(concrete)
        if signature.current is None:
            self.unasked.end_trial()  # it is planned for the places of variables that they keep
            devices, of_replicas = self.planned_devices, self.of_replicas
            trace, reason = eligibility.trace_if_placeable(concrete, args, kwargs, devices, of_replicas=of_replicas)
            if trace is None:
                warn(f"{self.name} is left as it is: {reason}")
                # It runs here, so not by a trace for a machine with other devices.
                signature.concrete = concrete_function(self.traceable, args, kwargs)
                signature.current = Prepared(signature, None, None, signature.concrete)
                self.unasked.stop()
            else:
                plan, solved = self._plan_of(trace, signature)
                signature.current = Prepared(signature, trace, plan, None, solved)
            self.latest = signature.current
        return signature.current

    def _plan_of(
        self,
        trace: Trace,
        signature: Signature,
        text: str = "",
        traced_again: Callable[[], Trace] | None = None,
        races: bool = True,
    ) -> tuple[CallPlan, Solved | None]:
        """The plan of a trace: given, remembered or new; a new one with the problem that it solves.

        Args:
            trace: of the function, or of a call under a tape and its gradient.
            signature: what the trace belongs to.
            text, traced_again: see `Recall`.
            races: whether its calls may race.
        """
        if self.plans:
            return CallPlan.of(self._saved_plan_of(trace)), None
        recall = Recall(self, signature, trace, text, traced_again)
        if (recalled := recall.plan()) is not None:
            return recalled, None
        solved = self.solve(self.graph_of(trace, signature.seen), self.limits_of(signature))
        return recall.new(solved.placement, races=races), solved

    def limits_of(self, signature: Signature) -> Mapping[str, str | int]:
        """The memory limits of a signature's plan: those of the options, or lower ones after it ran out of memory."""
        return self.options.memory_limits if signature.reduced_limits is None else signature.reduced_limits

    def _saved_plan_of(self, trace: Trace) -> Placement:
        """The plan, of those made before, for a trace. The trace is read with what each plan's graph was read with."""
        graph = self.graph_of(trace)
        for plan in self.plans:
            read_alike = self.graph_of(trace, seen) if (seen := Seen.of_graph(plan.graph)) else graph
            if plan.fingerprint == read_alike.fingerprint:
                return plan.bound_to(read_alike)
        return self.plans[0].bound_to(graph)

    # -- applying --------------------------------------------------------------------------------------------------

    @paused_collection()
    def _apply(self, prepared: Prepared, watched: frozenset[tuple[int, int]]) -> Prepared:
        """Rewrites the function by its plan and, where the plan may, moves variables.

        Args:
            prepared: a call that is planned.
            watched: which tapes watched which variables before the call was traced.
        """
        from placer.tf.state import creating

        trace = prepared.trace
        assert trace is not None
        creating.initialise_variables(trace.concrete)
        prepared = moved_by_prediction(self, prepared)
        if prepared.run is not None:
            return begin(self, replace(prepared, solved=None))
        plan = prepared.planned
        check_devices(self.name, plan)
        moves = plan.options.get("variables") == "move"
        if moves and not self.moves_variables:  # calls or a tuning have chosen the plan, in an earlier start
            moved = with_moved_variables(self, prepared, plan)
            if isinstance(moved, str):
                raise MoveError(f"the variables of {self.name} stay where they are: {moved}.")
            return begin(self, moved)
        try:
            run = self.rewritten(prepared, trace, plan)
        except RewriteError as error:
            warn(f"{self.name} is left as it is: {error}")
            return replace(prepared, trace=None, call_plan=None, solved=None, run=prepared.concrete)
        if moves:
            run, plan = self._with_moved_variables(prepared, trace, plan, run, watched)
        return begin(self, replace(prepared, call_plan=plan, run=run))

    def settle(self, settled: Prepared) -> None:
        """Lets the calls of a signature run as a race decided."""
        with self.lock:
            signature = settled.signature
            for key, prepared in list(self.by_call.items()):
                if prepared.signature is signature:
                    self.by_call[key] = settled
            signature.current = self.latest = settled
            signature.exportable = None

    def _with_moved_variables(
        self,
        prepared: Prepared,
        trace: Trace,
        plan: CallPlan,
        run: TapedFunction,
        watched: frozenset[tuple[int, int]],
    ) -> tuple[TapedFunction, CallPlan]:
        """Moves variables to where the plan has them. Under a tape they go where the plan of the call and its gradient has them;
        then the call without a tape gets a new plan.
        """
        from placer.tf._private.gradients import is_recording
        from placer.tf.devices import full_names
        from placer.tf.state import moving, variables

        pair_plan = run.pair_plan() if is_recording() else None
        moves = variables.needed_moves(trace, full_names((pair_plan or plan).device_of))
        moving.move(moves, run, plan.options.get("stale", "repoint"), watched)
        if variables.needed_moves(trace, full_names(plan.device_of)):
            plan, _ = self._plan_of(trace, prepared.signature)
            run = self.rewritten(prepared, trace, plan).with_pairs_of(run)
            moving.move([], run)
        return run, plan

    def rewritten(self, prepared: Prepared, trace: Trace, plan: CallPlan) -> TapedFunction:
        """The function with the devices of a plan of its trace. Raises RewriteError if it cannot be copied."""
        from placer.tf.rewrite.rewriting import rewrite_by_plan
        from placer.tf.rewrite.taping import TapedFunction
        from placer.tf.run.exhausted import report

        placed = rewrite_by_plan(trace, plan, report)
        return TapedFunction(placed, trace, plan.result_shapes, self._taping(prepared))

    def plan_of_pair(self, signature: Signature, pair: Trace, higher: bool) -> CallPlan:
        """The plan of a call under a tape and its gradient; `higher` if the gradient has gradients too."""
        from placer.tf.trace.tracing import trace_pair

        text = signature.taped_text(higher)
        if (raced := signature.taped.get(text)) is not None and raced.verdict is not None:
            return raced
        plan, solved = self._plan_of(pair, signature, text, lambda: trace_pair(pair.concrete, pair.arguments), races=not higher)
        if not higher:
            signature.pair = solved
        signature.taped[text] = plan
        return plan

    def _taping(self, prepared: Prepared) -> Taping:
        from placer.tf.rewrite.taping import Taping
        from placer.tf.run.exhausted import report

        signature = prepared.signature

        def plan(pair: Trace, higher: bool) -> CallPlan:
            return self.plan_of_pair(signature, pair, higher)

        def on_call(plan: CallPlan) -> None:
            self.latest = replace(prepared, call_plan=plan)

        def on_unplaced(reason: str) -> None:
            text = f"{self.name} runs unplaced under a tape: {reason}; put the tape inside the placed function"
            self.warn_once(reason, text)

        def on_moved() -> None:
            self.unasked.abandon()
            self.forget(signature)

        return Taping(plan, on_call, on_unplaced, report, on_moved)
