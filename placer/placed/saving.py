"""What is saved of a placed function: copies without devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placer.errors import RewriteError
from placer.placed.signatures import Signatures


def exportable(signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A ConcreteFunction whose calls run by plan, and which `tf.saved_model.save` writes without devices.

    A coordinator that schedules the function gets one whose calls run on any worker.

    Raises:
        PlacerError: planning failed, or the plan's devices are not here.
    """
    from placer.placed.strategy.scheduled_signatures import signatures_of_workers
    from placer.tf.rewrite.exporting import ExportableFunction, without_devices

    if (of_workers := signatures_of_workers(signatures)) is not None:
        return of_workers.function_of(args, kwargs)
    signatures.unasked.stop("a function that get_concrete_function gave uses them")
    with signatures.lock:
        prepared = signatures.prepare(args, kwargs)
        if prepared.trace is None:
            return prepared.concrete
        signature = prepared.signature
        if signature.exportable is None:
            signature.exportable = ExportableFunction(prepared.run, without_devices(prepared.trace))
        return signature.exportable


def function_to_save(signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The ConcreteFunction for a call from a function that is traced to be saved."""
    from placer.tf.rewrite.exporting import without_devices
    from placer.tf.run.eligibility import trace_if_placeable
    from placer.tf.trace.tracing import concrete_function

    concrete = concrete_function(signatures.traceable, args, kwargs)
    trace, _ = trace_if_placeable(concrete, args, kwargs)
    try:
        return concrete if trace is None else without_devices(trace)
    except RewriteError:
        return concrete
