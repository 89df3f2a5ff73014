"""The input signatures of a placed function that the replicas of a strategy run: planned for one replica, and run by all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from placer.common.environment import is_disabled
from placer.errors import InfeasibleError, PlanError
from placer.placed.race.begin import asks_for_race
from placer.placed.race.candidates import beyond_doubt, candidates
from placer.placed.signatures import Signatures
from placer.placed.strategy.one_replica import OneReplica
from placer.plan.call_plan import CallPlan
from placer.plan.placement import Placement
from placer.plan.verdict import DEFAULT, PLAN
from placer.verbs.share_host import SharedHostCosts, limits_of_replica, machine_of_replica
from placer.verbs.solve import Solved, planned_for

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.placed.signature import Prepared, Signature
    from placer.placed.tuned import Tuned
    from placer.tf.trace.replicas import Replicas
    from placer.tf.trace.tracing import Trace

in_place_of_call: ContextVar[Callable[..., Tuned] | None] = ContextVar("in_place_of_call", default=None)
"""What the next call of all replicas does in place of running them, while `tune` runs in a strategy's scope; otherwise None."""


class ReplicatedSignatures(Signatures):
    """Signatures whose calls run all replicas, each by the plan of one.

    Args:
        of: the signatures of the placed function.
        function: runs the replicas; under a OneDeviceStrategy, the function itself.
        devices: of the replicas, short.
        in_threads: whether the strategy runs the replicas in threads of its own.
    """

    of_replicas = True

    def __init__(self, of: Signatures, function: Any, devices: tuple[str, ...], *, in_threads: bool) -> None:
        self._of = of
        self._devices = devices
        self._in_threads = in_threads
        options = replace(of.options, race="off", learn_sizes=False, variables="fixed", planning="wait")
        super().__init__(function, of.name, options, of.plans)
        self._ones: WeakKeyDictionary[Trace, OneReplica] = WeakKeyDictionary()

    @property
    def latest(self) -> Prepared | None:
        """The latest call is that of the placed function."""
        return self._of.latest

    @latest.setter
    def latest(self, prepared: Prepared | None) -> None:
        self._of.latest = prepared

    def _plan_of(
        self,
        trace: Trace,
        signature: Signature,
        text: str = "",
        traced_again: Callable[[], Trace] | None = None,
        races: bool = True,
    ) -> tuple[CallPlan, Solved | None]:
        one = self._one(trace)
        return self.plan_of_all(trace, self._saved_plan(one.graph) if self.plans else self._new_plan(one, signature)), None

    def _one(self, trace: Trace) -> OneReplica:
        from placer.tf.trace.replicas import mirrored_replicas, only_replica

        if trace not in self._ones:
            replicas = mirrored_replicas(trace, self._devices) if self._in_threads else only_replica(trace, self._devices[0])
            self._ones[trace] = self._first(self.graph_of(trace), replicas)
        return self._ones[trace]

    def _first(self, graph: OpGraph, replicas: Replicas) -> OneReplica:
        """The first replica in the graph of a function that runs all."""
        return OneReplica(graph, replicas)

    def plan_of_all(self, trace: Trace, placement: Placement) -> CallPlan:
        """What calls need of the plan of one replica, to run all."""
        one, plan = self._one(trace), CallPlan.of(placement)
        whole = one.whole
        return replace(
            plan,
            device_of=one.devices_of_all(plan.device_of),
            state_device_of={op.name: whole.resources[op.resource].device for op in whole if op.resource in whole.resources},
            result_shapes=tuple(whole.op(name).signature.outputs[k].shape for name, k in whole.outputs),
        )

    def plan_of_pair(self, signature: Signature, pair: Trace, higher: bool) -> CallPlan:
        raise PlanError("its replicas are planned without a gradient that is taken outside of them")

    def _saved_plan(self, graph: OpGraph) -> Placement:
        return next((plan for plan in self.plans if plan.fingerprint == graph.fingerprint), self.plans[0]).bound_to(graph)

    def placements(self, trace: Trace, signature: Signature) -> dict[str, Placement]:
        """The plans of one replica that may be the fastest, by name: without a plan, by the plan, and others.

        Args:
            trace: of the function that runs all replicas.
            signature: of the call.
        """
        one = self._one(trace)
        best = self._solved(one, one.graph, signature)
        found = {each.name: each.placement for each in candidates(best)} | {PLAN: best.placement}
        found.pop(DEFAULT, None)  # that of ops that ask for no device
        with suppress(InfeasibleError):
            found[DEFAULT] = self._solved(one, one.default_graph, signature).placement
        return found

    def _solved(self, one: OneReplica, graph: OpGraph, signature: Signature) -> Solved:
        """The plan of a graph of one replica."""
        machine, model, _ = planned_for(one.whole, self.options)
        count = len(self._devices)
        return self.solve(
            graph,
            limits_of_replica(machine, self._devices, self.limits_of(signature)),
            devices=machine_of_replica(machine, self._devices),
            cost_model=SharedHostCosts(model, count) if count > 1 else model,
            share=1.0,
        )

    def _new_plan(self, one: OneReplica, signature: Signature) -> Placement:
        """The plan of one replica. Unless the options ask for a plan, it must be faster than what the strategy does beyond doubt.

        Args:
            one: the replica.
            signature: of the call.
        """
        best = self._solved(one, one.graph, signature)
        placement, notes = best.placement, [self._note()]
        asked = self._of.options
        asked_for = asked.pins or asked.memory_limits or not asks_for_race(asked)
        chosen = None if asked_for else beyond_doubt(candidates(best, searched=False))
        if chosen is not None and chosen.name == DEFAULT:
            placement = self._solved(one, one.default_graph, signature).placement
            if best.placement.step_time_ns < placement.step_time_ns:
                notes.append("Ops stay on the replica's device: what another plan is predicted to gain may be an error.")
        elif chosen is not None:
            placement = chosen.placement
        return replace(placement, notes=(*notes, *placement.notes))

    def _note(self) -> str:
        """What a plan of one replica is, in words."""
        devices, count = self._devices, len(self._devices)
        if count == 1:
            return f"A distribution strategy runs it on {devices[0]}. Its calls do not race and learn nothing."
        return (
            f"It is the plan of one of {count} replicas ({', '.join(devices)}). Each runs by it, on its own device. They share "
            f"the host: each op there is taken to last {count} times as long, and a replica may use one part in {count} of the "
            "host's memory and of the links to it. The calls of replicas do not race and learn nothing."
        )


def signatures_of_threads(of: Signatures, function: Any) -> Signatures | None:
    """The signatures of a function that runs all replicas of the current strategy; None where the strategy is not planned for.

    Args:
        of: the signatures of the placed function.
        function: a tf.function that runs the replicas.
    """
    from placer.tf.trace.replicas import runs_in_threads, strategy_devices

    if is_disabled() or not runs_in_threads():
        return None
    of.replicated[function] = ReplicatedSignatures(of, function, strategy_devices(), in_threads=True)
    return of.replicated[function]


def signatures_of_one_device(of: Signatures) -> Signatures | None:
    """The signatures of a call that the only replica of a OneDeviceStrategy makes; None for any other call."""
    from placer.tf.run.calling import in_replica
    from placer.tf.trace.replicas import is_one_device, strategy_devices

    if of.of_replicas or is_disabled() or not in_replica() or not is_one_device():
        return None
    devices = strategy_devices()
    if devices not in of.replicated:
        of.replicated[devices] = ReplicatedSignatures(of, of.function, devices, in_threads=False)
    return of.replicated[devices]
