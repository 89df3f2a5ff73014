"""The input signatures of a placed function that the replicas of a strategy run: planned for one replica, and run by all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placer.common.environment import is_disabled
from placer.errors import PlanError
from placer.placed.race.begin import asks_for_race
from placer.placed.race.candidates import beyond_doubt, candidates
from placer.placed.signatures import Signatures
from placer.placed.strategy.one_replica import OneReplica
from placer.plan.call_plan import CallPlan
from placer.plan.placement import Placement
from placer.plan.verdict import DEFAULT
from placer.verbs.share_host import SharedHostCosts, limits_of_replica, machine_of_replica
from placer.verbs.solve import Solved, planned_for

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.placed.signature import Prepared, Signature
    from placer.tf.trace.tracing import Trace


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
        from placer.tf.trace.replicas import mirrored_replicas, only_replica

        replicas = mirrored_replicas(trace, self._devices) if self._in_threads else only_replica(trace, self._devices[0])
        whole = self.graph_of(trace)
        one = OneReplica(whole, replicas)
        plan = CallPlan.of(self._saved_plan(one.graph) if self.plans else self._new_plan(one, whole, signature))
        of_all = replace(
            plan,
            device_of=one.devices_of_all(plan.device_of),
            state_device_of={op.name: whole.resources[op.resource].device for op in whole if op.resource in whole.resources},
            result_shapes=tuple(whole.op(name).signature.outputs[k].shape for name, k in whole.outputs),
        )
        return of_all, None

    def plan_of_pair(self, signature: Signature, pair: Trace, higher: bool) -> CallPlan:
        raise PlanError("its replicas are planned without a gradient that is taken outside of them")

    def _saved_plan(self, graph: OpGraph) -> Placement:
        return next((plan for plan in self.plans if plan.fingerprint == graph.fingerprint), self.plans[0]).bound_to(graph)

    def _new_plan(self, one: OneReplica, whole: OpGraph, signature: Signature) -> Placement:
        """The plan of one replica. Unless the options ask for a plan, it must be faster than what the strategy does beyond doubt.

        Args:
            one: the replica.
            whole: the graph of the function that runs all replicas.
            signature: of the call.
        """
        machine, model, _ = planned_for(whole, self.options)
        devices = self._devices

        def solved(graph: OpGraph) -> Solved:
            return self.solve(
                graph,
                limits_of_replica(machine, devices, self.limits_of(signature)),
                devices=machine_of_replica(machine, devices),
                cost_model=SharedHostCosts(model, len(devices)) if len(devices) > 1 else model,
                share=1.0,
            )

        best = solved(one.graph)
        placement, notes = best.placement, [_note(devices)]
        asked = self._of.options
        asked_for = asked.pins or asked.memory_limits or not asks_for_race(asked)
        chosen = None if asked_for else beyond_doubt(candidates(best, searched=False))
        if chosen is not None and chosen.name == DEFAULT:
            placement = solved(one.default_graph).placement
            notes.append("Ops stay on the replica's device: what another plan is predicted to gain may be an error.")
        elif chosen is not None:
            placement = chosen.placement
        return replace(placement, notes=(*notes, *placement.notes))


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


def _note(devices: tuple[str, ...]) -> str:
    """What a plan of one replica is, in words."""
    count = len(devices)
    if count == 1:
        return f"A distribution strategy runs it on {devices[0]}. Its calls do not race and learn nothing."
    return (
        f"It is the plan of one of {count} replicas ({', '.join(devices)}). Each runs by it, on its own device. They share the "
        f"host: each op there is taken to last {count} times as long, and a replica may use one part in {count} of the host's "
        "memory and of the links to it. The calls of replicas do not race and learn nothing."
    )
