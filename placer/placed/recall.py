"""Calls that run by remembered plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from placer.placed.memory import Memory, remember
from placer.placed.race.begin import is_wanted
from placer.placed.signature import Prepared, Signature
from placer.plan.call_plan import CallPlan
from placer.verbs.solve import machine_named

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.graph.seen import Seen
    from placer.placed.signatures import Signatures
    from placer.plan.placement import Placement
    from placer.tf.trace.tracing import Trace


class Recall:
    """The plan that is remembered for a trace.

    Args:
        signatures: of the placed function.
        signature: what the trace belongs to.
        trace: of the function, or of a call under a tape and its gradient.
        text: names what is planned.
        traced_again: gives the trace of a call under a tape anew, since rewriting changes it.
    """

    def __init__(
        self,
        signatures: Signatures,
        signature: Signature,
        trace: Trace,
        text: str = "",
        traced_again: Callable[[], Trace] | None = None,
    ) -> None:
        self._signatures = signatures
        self._signature = signature
        self._is_pair = traced_again is not None
        self._traced_again = traced_again or (lambda: trace)
        self._limits = signatures.limits_of(signature)
        options = replace(signatures.options, memory_limits=self._limits)
        self._memory = Memory(trace, options, signatures.name, text or signature.text)

    def plan(self) -> CallPlan | None:
        """The remembered plan; None if there is none that current calls can run by. It also restores what was seen."""
        signature = self._signature
        plan = self._memory.recall(signature.seen, self._graph, self._plan_anew, may_race=self._may_race())
        if plan is None or not _may_move_now(self._signatures, plan):
            return None
        signature.seen = plan.seen or signature.seen
        return plan

    def new(self, placement: Placement, *, races: bool) -> CallPlan:
        """A new plan; `races` says whether calls decide if it stays. It is remembered now, or when they have decided."""
        races = races and is_wanted(self._signatures)
        plan = replace(CallPlan.of(placement, self._signature.seen, self._memory.key), races=races)
        if not (races and self._may_race()):
            remember(plan)
        return plan

    def _may_race(self) -> bool:
        """Whether current calls can race. Then a plan that no race decided must be made again, with its candidates."""
        from placer.tf.devices import connected_devices
        from placer.tf.run import calling

        if not is_wanted(self._signatures) or not (calling.runs_under_tape() if self._is_pair else calling.runs_on_its_own()):
            return False
        machine = machine_named(self._signatures.options.devices)
        return machine is None or {device.name for device in machine.devices} <= set(connected_devices())

    def _graph(self, seen: Seen | None) -> OpGraph:
        return self._signatures.graph_of(self._traced_again(), seen)

    def _plan_anew(self, graph: OpGraph) -> Placement:
        with self._signatures.lock:
            self._signatures.forget(self._signature)
            self._memory.discard()
            return self.new(self._signatures.solve(graph, self._limits).placement, races=True).placement


def is_recalled(signatures: Signatures, signature: Signature, trace: Trace) -> bool:
    """Whether a plan is remembered for a signature that has none yet. The next call runs by it."""
    plan = None if signatures.plans else Recall(signatures, signature, trace).plan()
    if plan is not None:
        signature.current = Prepared(signature, trace, plan, None)
    return plan is not None


def _may_move_now(signatures: Signatures, plan: CallPlan) -> bool:
    """Whether a plan moves no variables, or they may be moved: by the options, or by a tuning, where no tape records the call."""
    from placer.tf.run import calling

    return plan.options.get("variables") != "move" or signatures.moves_variables or calling.runs_on_its_own()
