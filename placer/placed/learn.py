"""Learning from one run what a graph does not say: sizes that data decides, rounds of loops, branches, elements of datasets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placer.errors import DeviceError, PlacerError, PlanError, RewriteError
from placer.graph.requested_devices import has_requested_devices
from placer.graph.seen import Seen
from placer.placed.lost_workers import names_lost_workers
from placer.placed.recall import is_recalled
from placer.placed.signature import Prepared, Signature
from placer.placed.signatures import Signatures
from placer.placed.undecided import is_undecided
from placer.verbs.solve import look_up

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.tf.trace.tracing import Trace


@names_lost_workers
def learn(signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any], keep_state: bool = False) -> Seen:
    """Runs one call of the plain function, unplaced, and notes what the run had. The next plan of the signature uses it.

    Args:
        signatures: of the placed function.
        args: of the call.
        kwargs: of the call.
        keep_state: whether variables keep what the run writes to them. Otherwise they are put back. Other side effects are not
            undone.

    Raises:
        PlanError: the function is left as it is.
        TraceError: it fails while it is traced.
        RewriteError: it cannot be copied.
        Exception: the run fails, as a call would.
    """
    from placer.tf.run.learning import ReportingCall
    from placer.tf.run.timing import restored_variables

    with signatures.lock:
        if signatures.moves_variables:
            signatures.plan(args, kwargs)  # its first plan creates the variables
        concrete = signatures.traced_function(args, kwargs)
        signature, trace = signatures.signature_of(concrete), _trace(signatures, concrete, args, kwargs)
        call = ReportingCall(trace)
    if keep_state:
        _, seen = call.run(args, kwargs)
    else:
        with restored_variables(concrete, (args, kwargs)):
            _, seen = call.run(args, kwargs)
    with signatures.lock:
        signature.seen = seen
        signatures.forget(signature)
    return seen


def first_call(signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Prepared | None:
    """The first call of a signature as a call that learns; None for a call that does not.

    Only an eager call without a tape learns, and only where the plan may depend on what the graph leaves open. It runs unplaced,
    or by a plan made without learning where that may not be: under memory limits, with pins, or where the default placement may
    not fit. A function whose graph keeps state of its own, such as a random seed's position, would start anew with the second
    call.

    Raises:
        PlacerError: the function fails while it is traced, or there is no plan for the call.
        TypeError: it cannot be called with these arguments.
    """
    from placer.tf.run import calling, eligibility
    from placer.tf.run.learning import ReportingCall, may_be_undecided, starts_anew
    from placer.tf.trace.known_sizes import KnownSizes

    if not _may_learn(signatures) or not calling.runs_on_its_own() or not _is_here(signatures):
        return None
    concrete = signatures.traced_function(args, kwargs)
    signature = signatures.signature_of(concrete)
    if signature.current is not None or signature.seen is not None:
        return None
    trace, _ = eligibility.trace_if_placeable(concrete, args, kwargs, signatures.planned_devices)
    if trace is None or starts_anew(trace) or is_recalled(signatures, signature, trace):
        return None
    sizes = KnownSizes(trace)
    if not may_be_undecided(trace, sizes):
        return None
    graph = signatures.graph_of(trace)
    if graph.runs_replicas or not may_change_plan(signatures, graph):
        return None
    unplaced = _may_run_unplaced(signatures, graph)
    planned = Prepared(signature, None, None, None) if unplaced else signatures.prepare(args, kwargs)
    try:
        call = ReportingCall(trace, sizes, planned.call_plan)
    except RewriteError:
        return None
    signature.seen = Seen()  # another thread that calls meanwhile learns nothing

    def run(*args: Any, **kwargs: Any) -> Any:
        return _run_first(signatures, signature, call, args, kwargs)

    return replace(planned, run=run, timing=None)


def _run_first(signatures: Signatures, signature: Signature, call: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    results, seen = call.run(args, kwargs)
    with signatures.lock:
        signature.seen = seen
        signatures.forget(signature)
        with suppress(PlacerError):  # the next call raises it; this one has run
            signatures.latest = signatures.prepare(args, kwargs)
    return results


def is_made_again(
    signatures: Signatures, prepared: Prepared, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Whether a call that was to learn ran out of memory and is made again, by a plan that nothing was learnt for.

    Raises:
        OutOfMemoryError: the call may have changed variables, so it is not made again.
    """
    from placer.tf.run.exhausted import Exhaustion, changes_nothing, is_out_of_memory

    if prepared.trace is not None or prepared.signature.seen is None or not is_out_of_memory(error):
        return False
    with signatures.lock:
        signatures.latest = planned = signatures.prepare(args, kwargs)
    exhaustion = Exhaustion.of(error, planned.plan)
    if exhaustion is not None and not changes_nothing(exhaustion.placement.graph):
        raise exhaustion.explained(
            "The call ran unplaced, to learn sizes. It may have changed variables in part: put them back. "
            "The next call runs by the plan."
        )
    return exhaustion is not None


def _may_learn(signatures: Signatures) -> bool:
    return signatures.options.learn_sizes and not signatures.plans and not signatures.moves_variables


def _may_run_unplaced(signatures: Signatures, graph: OpGraph) -> bool:
    options = signatures.options
    if options.memory_limits or options.pins:
        return False
    return has_requested_devices(graph) and _fits(signatures, graph)


def _is_here(signatures: Signatures) -> bool:
    """Whether this process has the devices to plan for, and more than one."""
    from placer.tf.devices import connected_devices, process_devices

    try:
        machine, *_ = look_up(signatures.options)
    except DeviceError:
        return False
    devices = process_devices() if machine is None else [device.name for device in machine.devices]
    return len(devices) > 1 and set(devices) <= set(connected_devices())


def may_change_plan(signatures: Signatures, graph: OpGraph) -> bool:
    """Whether sizes or rounds that the graph leaves open may decide the plan."""
    from placer.tf.devices import local_machine

    machine, model, _ = look_up(signatures.options)
    return is_undecided(graph, machine or local_machine(), model)


def _fits(signatures: Signatures, graph: OpGraph) -> bool:
    """Whether TensorFlow's default placement has enough memory by the upper bounds. Host memory is not checked."""
    if not _has_accelerator():
        return True
    try:
        return signatures.solve(graph, {}).placement.baselines["tf_default"].feasible
    except PlacerError:
        return False


def _has_accelerator() -> bool:
    from placer.tf.devices import process_devices

    return not all(device.startswith("CPU") for device in process_devices())


def _trace(signatures: Signatures, concrete: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Trace:
    from placer.tf.run import eligibility

    trace, reason = eligibility.trace_if_placeable(concrete, args, kwargs, signatures.planned_devices)
    if trace is None:
        raise PlanError(f"{signatures.name} is left as it is, so nothing is learnt from a call: {reason}")
    return trace
