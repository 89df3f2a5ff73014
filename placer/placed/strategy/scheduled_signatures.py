"""The input signatures of a placed function that a coordinator schedules: one plan, which each worker runs on its own devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cost_models.machines import task_of
from placer.common.environment import is_disabled
from placer.placed.signatures import Signatures
from placer.placed.strategy.one_replica import OneReplica
from placer.placed.strategy.one_worker import OneWorker
from placer.placed.strategy.replicated_signatures import ReplicatedSignatures
from placer.verbs.cluster import machine_of_worker

if TYPE_CHECKING:
    from cost_models.machines import Machine
    from placer.graph.op_graph import OpGraph
    from placer.tf.trace.replicas import Replicas


class ScheduledSignatures(ReplicatedSignatures):
    """Signatures whose calls run on any worker of a ParameterServerStrategy, by one plan.

    Args:
        of: the signatures of the placed function.
        devices: of the replicas of a worker, short.
        machine: of a worker.
    """

    def __init__(self, of: Signatures, devices: tuple[str, ...], machine: Machine | str) -> None:
        super().__init__(of, of.traceable, devices, in_threads=len(devices) > 1)
        self.options = replace(self.options, devices=machine)

    @cached_property
    def planned_devices(self) -> frozenset[str]:
        """Those of all tasks: what parameter servers hold stays there."""
        from placer.tf.devices import connected_devices

        return frozenset(connected_devices())

    def function_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A ConcreteFunction that runs by plan on the worker in whose device scope it is called.

        Args:
            args, kwargs: of the calls, or their types.

        Raises:
            PlacerError: planning failed.
        """
        from placer.tf.rewrite.rewriting import rewrite_by_plan
        from placer.tf.rewrite.scheduling import ScheduledFunction
        from placer.tf.run.exhausted import report

        with self.lock:
            prepared = self.plan(args, kwargs)
            signature, trace, plan = prepared.signature, prepared.trace, prepared.call_plan
            if trace is None or plan is None:
                return prepared.concrete

            def copy_for(worker: str) -> Any:
                own = {name: device if task_of(device) else f"{worker}/{device}" for name, device in plan.device_of.items()}
                return rewrite_by_plan(trace, replace(plan, device_of=own), report)

            if signature.exportable is None:
                signature.exportable = ScheduledFunction(prepared.concrete, copy_for)
            return signature.exportable

    def _first(self, graph: OpGraph, replicas: Replicas) -> OneReplica:
        return OneWorker(graph, replicas)

    def _note(self) -> str:
        where = ", ".join(dict.fromkeys(("CPU:0", *self._devices)))
        return (
            f"The workers of a ParameterServerStrategy run by it, each on its own devices ({where}). What parameter servers hold "
            "stays there and counts as on the worker's host; the time of the network is left out. Calls do not race and learn "
            "nothing."
        )


def signatures_of_workers(of: Signatures) -> ScheduledSignatures | None:
    """The signatures of a function that a coordinator schedules at the moment; None outside of `coordinator.schedule`."""
    from placer.tf._private.coordinators import addresses_of_workers, scheduling_strategy
    from placer.tf.trace.replicas import strategy_devices

    strategy = None if is_disabled() else scheduling_strategy()
    if strategy is None:
        return None
    if strategy not in of.replicated:
        machine = of.options.devices or machine_of_worker(addresses_of_workers(strategy))
        of.replicated[strategy] = ScheduledSignatures(of, strategy_devices(), machine)
    found = of.replicated[strategy]
    assert isinstance(found, ScheduledSignatures)
    return found
