"""`serve`: a function of batches, with one plan for a range of batch sizes, or several where sizes need different ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from placer.errors import OptionError, PlanError
from placer.options import Options
from placer.placed.decorators import checked_options
from placer.placed.function import PlacedFunction
from placer.plan.placement import Placement
from placer.problem.memory import excess
from placer.problem.problem import Assignment
from placer.problem.schedule import Simulator
from placer.solvers.base import MIN_GAIN
from placer.verbs.build_graph import build_graph
from placer.verbs.solve import Solved, solved

if TYPE_CHECKING:
    from placer.tf.run.batches import BatchTypes
    from placer.tf.trace.tracing import Trace

MAX_DEPTH = 3
"""How often a range of batch sizes is divided: it has at most eight parts."""


@dataclass(frozen=True, eq=False)
class Bucket:
    """A range of batch sizes that has one plan."""

    low: int
    high: int
    placed: PlacedFunction
    """The function that runs the calls."""

    @property
    def placement(self) -> Placement:
        """The plan."""
        return self.placed.placement

    def __str__(self) -> str:
        devices = " and ".join(device for device, totals in self.placement.totals.items() if totals.ops)
        return f"batches of {self.low} to {self.high} on {devices}"


class ServedFunction:
    """A function of batches: a call runs by the plan for its batch size, the first dimension of its arguments.

    Batches that are larger than planned run by the plan for the largest batch. Smaller ones run by the plan for the smallest.
    """

    autograph_info__ = None
    """Tells AutoGraph not to convert this class when it is called inside a tf.function."""

    def __init__(self, buckets: Sequence[Bucket], types: BatchTypes) -> None:
        """Args:
        buckets: by size.
        types: of the arguments.
        """
        self.buckets = tuple(buckets)
        self._types = types

    def __repr__(self) -> str:
        return f"<ServedFunction {self.buckets[0].placed.name!r}: {', '.join(map(str, self.buckets))}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.bucket_of(*args, **kwargs).placed(*args, **kwargs)

    def bucket_of(self, *args: Any, **kwargs: Any) -> Bucket:
        """The bucket that runs a call with these arguments."""
        buckets = self.buckets
        size = self._types.batch_size(args, kwargs) if len(buckets) > 1 else None
        return buckets[-1] if size is None else next((bucket for bucket in buckets if size <= bucket.high), buckets[-1])

    def warm_up(self) -> None:
        """Makes calls of the largest and the smallest batch of each bucket, so that nothing is left to decide in a request.

        The arguments have ordinary values. Variables are put back. Other effects of the calls are not.

        Raises:
            OptionError: the types of the arguments leave other sizes open.
            PlacerError: the devices of a plan are not here.
        """
        for bucket in self.buckets:
            # The largest first: its race decides, and a later call that takes less time is no reason to race again.
            bucket.placed.warm_up([self._types.example(size) for size in (bucket.high, bucket.low)])


def serve(fn: Callable[..., Any], *types: Any, batch_sizes: tuple[int, int], **options: Any) -> ServedFunction:
    """Places a function of batches with as few plans as a range of batch sizes needs.

    The function is traced once, with the size of the batch left open. It is planned for the smallest and for the largest batch. A
    plan is used for all if it is predicted to be nearly as fast as the other one at both ends; otherwise the range is divided.

    Args:
        fn: the function, a ConcreteFunction such as a signature of a SavedModel, or a placed one.
        *types: a TensorSpec for each argument. Those of batches have None as their first dimension, such as
            ``tf.TensorSpec([None, 224, 224, 3])``. Functions with types of their own need none.
        batch_sizes: the smallest and the largest size.
        **options: the fields of `placer.Options`.

    Raises:
        OptionError: an option that cannot be used, no argument is a batch, or `batch_sizes` is no range.
        PlacerError: planning failed, or the function cannot be placed.
    """
    from placer.tf.run.batches import BatchTypes
    from placer.tf.run.eligibility import trace_if_placeable
    from placer.tf.trace.tracing import concrete_function, traceable

    checked, (low, high) = checked_options(options), _range(batch_sizes)
    try:
        concrete = concrete_function(traceable(fn), types)
    except TypeError as error:
        raise OptionError(
            f"{error}. Give serve a type for each argument, with None for the size of the batch: "
            "placer.serve(fn, tf.TensorSpec([None, 224, 224, 3]), batch_sizes=(1, 64))."
        ) from error
    trace, reason = trace_if_placeable(concrete, (), {})
    name = getattr(fn, "__name__", "the function")
    if trace is None:
        raise PlanError(f"{name} is left as it is, so it has no plan: {reason}")
    batch_types = BatchTypes(concrete)
    plans = _Plans(trace, checked, batch_types.inputs)
    buckets = []
    for first, last, planned_for in plans.divided(low, high, MAX_DEPTH):
        placed = PlacedFunction(concrete, replace(checked, sizes=plans.sizes(planned_for)))
        placed.plan()
        buckets.append(Bucket(first, last, placed))
    return ServedFunction(buckets, batch_types)


class _Plans:
    """The plans of one trace for batch sizes.

    Args:
        trace: of the function.
        options: of the plans.
        inputs: the names of the inputs whose first dimension is the size of the batch.
    """

    def __init__(self, trace: Trace, options: Options, inputs: Sequence[str]) -> None:
        self._trace, self._options, self._inputs = trace, options, inputs
        self._solved: dict[int, Solved] = {}

    def sizes(self, batch: int) -> Mapping[str, Any]:
        """The option ``sizes`` for a batch size."""
        return {**{name: [batch] for name in self._inputs}, **self._options.sizes}

    def at(self, batch: int) -> Solved:
        """The plan for a batch size."""
        if batch not in self._solved:
            options = replace(self._options, sizes=self.sizes(batch))
            graph = build_graph(self._trace, sizes=options.sizes, rounds=options.rounds)
            self._solved[batch] = solved(graph, options=options)
        return self._solved[batch]

    def divided(self, low: int, high: int, depth: int) -> list[tuple[int, int, int]]:
        """Ranges of batch sizes, each its first and last size and the size whose plan it has; neighbours have different plans."""
        for planned_for, other in ((high, low), (low, high)):
            if self._step_ns(planned_for, other) <= self._step_ns(other, other) / (1 - MIN_GAIN):
                return [(low, high, planned_for)]
        if high - low == 1 or not depth:
            middle = (low + high) // 2
            return [(low, middle, low), (middle + 1, high, high)]
        middle = isqrt(low * high)
        parts = self.divided(low, middle, depth - 1) + self.divided(middle + 1, high, depth - 1)
        merged = parts[:1]
        for first, last, planned_for in parts[1:]:
            if self._devices(planned_for) == self._devices(merged[-1][2]):
                merged[-1] = (merged[-1][0], last, planned_for)
            else:
                merged.append((first, last, planned_for))
        return merged

    def _devices(self, batch: int) -> dict[str, str]:
        return {name: op.device for name, op in self.at(batch).placement.ops.items()}

    def _step_ns(self, planned_for: int, batch: int) -> float:
        """The predicted step of a batch by the plan for another size; infinite if it exceeds a memory limit."""
        problem, device_of = self.at(batch).problem, self._devices(planned_for)
        position = {device: k for k, device in enumerate(problem.devices.names)}
        device = np.zeros(problem.num_units, dtype=np.int64)
        for name, unit in zip(problem.ops.names, problem.ops.unit, strict=True):
            device[unit] = position[device_of[name]]
        assignment = Assignment(device)
        return float("inf") if excess(problem, assignment).any() else Simulator(problem).step_ns(assignment)


def _range(batch_sizes: Any) -> tuple[int, int]:
    try:
        low, high = map(operator.index, batch_sizes)
    except (TypeError, ValueError):
        low = high = 0
    if not 1 <= low <= high:
        raise OptionError(f"batch_sizes={batch_sizes!r} is no range: give the smallest and the largest size, such as (1, 64).")
    return low, high
