"""The times of ops in real calls of a placed function, kept for later plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placer.errors import OptionError, PlacerError
from placer.placed.lost_workers import names_lost_workers
from placer.placed.signature import Prepared
from placer.placed.signatures import Signatures
from placer.verbs.profile import check_store, keep

if TYPE_CHECKING:
    from placer.tf.run.harvesting import Harvest


@names_lost_workers
def harvest(
    signatures: Signatures, prepared: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any], steps: int = 5
) -> Harvest:
    """Makes real calls under TensorFlow's profiler and stores the time of each op on its device.

    Measurements of single ops stay. Ops that cannot be measured alone, since they have side effects or unknown shapes, get the
    time they took here. The function's variables are put back afterwards; its other side effects are not undone. See
    `placer.tf.run.harvesting`.

    Args:
        signatures: of the placed function.
        prepared: a call, as `PlacedFunction.prepare` gives it.
        args: of the calls.
        kwargs: of the calls.
        steps: how many calls are measured.

    Raises:
        OptionError: `steps` is no positive number of steps.
        PlacerError: the function or a worker fails, or the times cannot be stored.
    """
    if type(steps) is not int or steps < 1:
        raise OptionError(f"steps={steps!r} is no number of steps above 0; leave it out for the default.")
    from placer.tf.run import harvesting
    from placer.tf.run.timing import blocking_step, restored_variables, warm_up

    check_store()
    step = blocking_step(lambda: prepared.run(*args, **kwargs), ())
    with restored_variables(prepared.concrete, (args, kwargs)):
        if reason := warm_up(step):
            raise PlacerError(f"{signatures.name} cannot be run: {reason}")
        harvested = harvesting.harvest(step, prepared.plan, steps)
    keep(harvested, prepared.plan)
    return harvested
