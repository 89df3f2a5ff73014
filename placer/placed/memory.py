"""Plans that are remembered: found again by a later start, without the graph and without solving."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from cost_models.auto import installed_tensorflow
from cost_models.cache import tell_once
from cost_models.machines import Machine
from cost_models.registry import BUILT_IN, cost_model
from cost_models.store import Store
from placer import __version__
from placer.common.garbage_collection import paused_collection
from placer.common.units import format_ns
from placer.errors import PlanError
from placer.options import Options
from placer.placed.identity import identity
from placer.plan.call_plan import CallPlan
from placer.plan.placement import Placement
from placer.plan.plan_store import Entry, MemoryKey, PlanStore, packed, unpacked
from placer.plan.saving import VERSION as PLAN_VERSION
from placer.problem.machine_devices import limits
from placer.solvers.registry import solver, solvers
from placer.verbs.share import shared_machine
from placer.verbs.solve import machine_named

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.graph.seen import Seen
    from placer.tf.trace.inputs import RootInput
    from placer.tf.trace.tracing import Trace

MIN_LIMIT_SHARE = 0.9
"""A plan that was made with less than this share of the memory that there is now is made anew."""


class Memory:
    """What is remembered of one trace.

    Args:
        trace: of the function.
        options: of its plan.
        function, signature: names for people.
    """

    def __init__(self, trace: Trace, options: Options, function: str, signature: str) -> None:
        self._trace = trace
        self._options = options
        self._store = PlanStore()
        self.key: MemoryKey | None = None
        """The key that the plan is found by; None where nothing is remembered."""
        described = _described(options)
        if described is None or self._store.is_off:
            return
        from placer.tf.state.variables import immovable_handles
        from placer.tf.trace.digest import digest
        from placer.tf.trace.inputs import root_inputs

        inputs = root_inputs(trace, immovable_handles())
        self._machine = shared_machine(machine_named(options.devices) or _local_machine(inputs), options.share)
        # What this process and others hold of a GPU changes, see `_fits`.
        machine = repr(replace(self._machine, reserve_bytes={}, others_bytes={}, used_by_others=""))
        parts = (__version__, PLAN_VERSION, installed_tensorflow(), described, machine, digest(trace, inputs))
        self.key = MemoryKey(hashlib.sha256(repr(parts).encode()).hexdigest(), _prices(options), function, signature)

    def recall(
        self,
        seen: Seen | None,
        read_graph: Callable[[Seen | None], OpGraph],
        plan_anew: Callable[[OpGraph], Placement],
        *,
        may_race: bool,
    ) -> CallPlan | None:
        """The remembered plan; None if there is none that holds.

        Args:
            seen: what was seen of the function, if anything was.
            read_graph: reads the graph of the trace with what was seen when the plan was made.
            plan_anew: makes the plan that replaces a remembered one which turns out to be of another graph.
            may_race: whether calls may race. Then a plan whose race is not over is not recalled.
        """
        key = self.key
        entry = None if key is None else self._store.get(key.key)
        if key is None or entry is None or not (entry.measured or entry.prices == key.prices):
            return None

        def make() -> Placement:
            graph = read_graph(plan.seen)
            try:
                placement = Placement.from_json(unpacked(entry.plan), f"the remembered plan of {entry.function}")
                if placement.fingerprint == graph.fingerprint:
                    return placement
            except (PlanError, ValueError) as error:
                self._tell_ignored(entry, error)
            return plan_anew(graph)

        try:
            plan = CallPlan.from_json(unpacked(entry.call_plan), make, key)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            self._tell_ignored(entry, error)
            return None
        holds = not (plan.races and may_race) and (not seen or plan.seen == seen)
        return plan if holds and self._fits(plan) and _covers(plan, self._trace) else None

    def discard(self) -> None:
        """Deletes what is remembered of the trace."""
        if self.key is not None:
            self._store.discard(self.key.key)

    def _fits(self, plan: CallPlan) -> bool:
        """Whether a plan fits into the memory that there is now, and was made with nearly as much."""
        limit_of = limits(self._machine, self._options.memory_limits)
        return all(
            limit_of.get(device, -1) < 0 or (peak <= limit_of[device] and limit >= MIN_LIMIT_SHARE * limit_of[device])
            for device, (peak, limit) in plan.memory.items()
        )

    def _tell_ignored(self, entry: Entry, error: Exception) -> None:
        tell_once(f"{self._store.path}: the plan of {entry.function} is ignored: {type(error).__name__}: {error}")


@paused_collection()
def remember(plan: CallPlan) -> None:
    """Stores a plan for later starts. One with a verdict stays valid when measurements change.

    A failure is told once and has no other effect.
    """
    if (key := plan.memory_key) is None:
        return
    placement = plan.placement
    PlanStore().put(
        Entry(
            key=key.key,
            prices=key.prices,
            measured=plan.verdict is not None,
            function=key.function,
            signature=key.signature,
            machine=placement.machine,
            ops=len(placement.ops),
            result=_result(placement),
            call_plan=packed(plan.to_json()),
            plan=packed(placement.to_json()),
        )
    )


def _result(placement: Placement) -> str:
    """What a plan achieves, in words."""
    verdict, default = placement.verdict, placement.baselines.get("tf_default")
    if verdict is not None and (used := verdict.of(verdict.used)) is not None:
        return f"{format_ns(used.median_ns)} measured: {verdict.used}"
    predicted = f"{format_ns(placement.step_time_ns)} predicted"
    return f"{predicted}, TensorFlow's default {format_ns(default.step_time_ns)}" if default and default.feasible else predicted


def forget(plan: CallPlan) -> None:
    """Deletes a plan, so that later starts make it again. A failure is told once and has no other effect."""
    if plan.memory_key is not None:
        PlanStore().discard(plan.memory_key.key)


def _described(options: Options) -> str | None:
    """Text that stands for the options, without the machine; None where an object of the user's cannot be described."""
    described: dict[str, object] = {f.name: getattr(options, f.name) for f in fields(options) if f.name != "devices"}
    chosen, model = options.solver, options.cost_model
    if not isinstance(chosen, str) or solvers()[chosen].dist is not None:
        described["solver"] = identity(solver(chosen) if isinstance(chosen, str) else chosen)
    if not isinstance(model, str) or model not in BUILT_IN:
        described["cost_model"] = identity(cost_model(model))
    return None if None in (described["solver"], described["cost_model"]) else repr(described)


def _local_machine(inputs: Mapping[str, RootInput]) -> Machine:
    """The machine of this process. Memory that the function's own state and arguments take there is available to its plan."""
    from placer.tf.devices import local_machine

    held: Counter[str] = Counter()
    for known in inputs.values():
        held[known.device] += known.state_bytes or known.value_bytes
    return local_machine(held)


def _prices(options: Options) -> str:
    """Text that changes with the user's measurements; "" for a cost model that takes none."""
    if options.cost_model == "analytic":
        return ""
    try:
        status = Store().path.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _covers(plan: CallPlan, trace: Trace) -> bool:
    """Whether a plan has a device for every op of a trace, and for nothing else but values that loops and branches pass on."""
    ops: set[str] = set()
    frames: set[str] = set()
    for body in trace.root.walk():
        for name in body.nodes:
            called = body.children.get(name)
            if called and called[0].kind == "call":
                continue
            if called:
                frames.add(body.names[name])
            if name not in body.hoisted and (body.kind == "root" or name not in body.inputs):
                ops.add(body.names[name])
    return ops <= plan.device_of.keys() and all(name.rpartition("/")[0] in frames for name in plan.device_of.keys() - ops)
