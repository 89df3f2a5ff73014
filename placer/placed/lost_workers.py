"""Calls that a worker of a cluster fails: one error that names the worker and the ways out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from cost_models.machines import task_of
from placer.errors import DeviceError, WorkerError

if TYPE_CHECKING:
    from placer.placed.signatures import Signatures

S = TypeVar("S", bound="Signatures")
P = ParamSpec("P")
R = TypeVar("R")


def tasks_of(signatures: Signatures) -> frozenset[str]:
    """The tasks of a cluster among the devices that signatures are planned for."""
    return frozenset(map(task_of, signatures.planned_devices)) - {""}


def names_lost_workers(run: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A function that runs calls of the signatures that are its first argument, and names lost workers; see below."""

    @functools.wraps(run)
    def named(signatures: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with naming_lost_workers(signatures, tasks_of(signatures)):
            return run(signatures, *args, **kwargs)

    return named


@contextmanager
def naming_lost_workers(signatures: Signatures, tasks: Collection[str]) -> Iterator[None]:
    """Raises WorkerError in the place of an error that the block raises because a worker died, hangs or was started again.

    Other errors are raised as they are. If a worker hangs, TensorFlow's own error comes within half a minute, since the
    connections to the worker are ended then. A call that follows does not wait for it.

    Args:
        signatures: those that the block calls.
        tasks: `tasks_of` them.

    Raises:
        DeviceError: a worker was started again without a device that a call uses.
    """
    if not tasks:
        yield
        return
    from placer.tf import connecting

    function = signatures.name
    if connecting.lost and (failures := connecting.failures(tasks)):
        raise WorkerError(_message(function, failures.values(), "It was not called."))
    try:
        yield
    except WorkerError:
        raise
    except Exception as error:
        if failures := connecting.failures(tasks):
            raise WorkerError(_message(function, failures.values(), "It may have changed variables in part.")) from error
        if lost := connecting.lost_with_worker(error, tasks):
            raise WorkerError(
                f"{function} failed: it uses a variable or a tensor that was on {' or '.join(lost)}, which was started again or "
                "left since, so it is lost. Way out: make it and the function anew, and load a checkpoint."
            ) from error
        if disconnected := connecting.disconnected(error, tasks):
            raise WorkerError(
                f"{function} failed: the connection to {' or '.join(disconnected)} ended. Now the worker answers again. The call "
                "may have changed variables in part. Way out: load a checkpoint if it did, and call it again."
            ) from error
        if missing := connecting.missing(error, signatures.planned_devices):
            raise DeviceError(
                f"{function} failed: its plan uses {', '.join(missing)}, which is not here any more. Way out: "
                "step.plan(*args, devices=machine), where machine is what placer.cluster(...) returned last."
            ) from error
        raise


def _message(function: str, failures: Collection[str], effect: str) -> str:
    return (
        f"{function} failed: {'; '.join(failures)}. {effect} Way out: start the worker again and call placer.cluster(...) again; "
        "or go on without it, with step.plan(*args, devices=machine.without(TASK)), where machine is the cluster. Load a "
        "checkpoint if variables were there."
    )
