"""The cost of an op between measured ones: for each op type a sum of non-negative shares, fitted to what was measured of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cost_models.analytic import uses_one_core
from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device
from cost_models.measurements import Measurement, Table, signature_of
from cost_models.ops import as_measured, in_host_memory, runs_on_host, work_of

Floats: TypeAlias = NDArray[np.float64]

MIN_SAMPLES = 5
"""A fit needs at least this many measurements."""
MIN_SPAN = 8.0
"""The largest measured op must have at least this many times the bytes, or operations, of the smallest."""
MAX_EXTRAPOLATION = 4.0
"""A fit prices ops up to this factor larger or smaller than the measured ones."""
_REWEIGHTINGS = 8
_HUBER = 1.345
"""Residuals beyond this many standard deviations weigh less (P. Huber, Robust Statistics, 1981)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The time of an op of one type and dtype on one device, as a sum of its features times non-negative weights."""

    dispatch_ns: int
    weights: Floats
    """[5], ns per unit of each feature."""
    smallest: Floats
    """[5], least value of each feature over the measurements."""
    largest: Floats
    """[5], greatest value."""

    @classmethod
    def of(cls, features: Floats, measured: Sequence[Measurement]) -> Fit | None:
        """The fit to n measured ops with these features ([n, 5], see `features_of`); None if they are too few or too alike."""
        if len(measured) < MIN_SAMPLES or not _spans_enough(features):
            return None
        dispatch = np.array([m.dispatch_ns for m in measured], np.float64)
        compute = np.array([m.compute_ns for m in measured], np.float64)
        weights = robust_non_negative(features, compute, 1.0 / (dispatch + compute + 1.0))
        return cls(round(float(np.median(dispatch))), weights, features.min(axis=0), features.max(axis=0))

    def covers(self, features: Floats) -> bool:
        """Whether an op's features are near enough to those of the measured ops."""
        not_too_large = features <= MAX_EXTRAPOLATION * self.largest
        not_too_small = MAX_EXTRAPOLATION * features >= self.smallest
        return bool(np.all(not_too_large & not_too_small))

    def compute_ns(self, features: Floats) -> int:
        return round(float(features @ self.weights))


@dataclass(slots=True, eq=False)
class FittedModel:
    """The cost of an op by a `Fit` to the measured ops of its type and dtypes, or another model's cost if there is no fit."""

    tables: Callable[[str], Table]
    """The measurements, by device model."""
    otherwise: CostModel
    _fits: dict[tuple[str, str], dict[tuple[str, ...], Fit]] = field(default_factory=dict)
    """Computed when first asked for: by device model and op type, then by dtypes."""

    @property
    def name(self) -> str:
        return f"fitted, else {self.otherwise.name}"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The op's cost. It is never negative. Where the fit applies, it does not fall as the op's bytes and operations grow.

        Products that one core of a CPU computes have a weight of their own.
        """
        key = device.model, signature.op_type
        if key not in self._fits:
            self._fits[key] = _fits(self.tables(device.model).get(signature.op_type, {}), device)
        fit = self._fits[key].get(_dtypes(signature))
        features = features_of(as_measured(signature), device) if fit else None
        if fit is None or features is None or not fit.covers(features):
            return self.otherwise.op_cost(signature, device)
        compute = fit.compute_ns(features)
        time = max(fit.dispatch_ns, compute) if device.asynchronous else fit.dispatch_ns + compute
        return OpCost(time, fit.dispatch_ns, compute, work_of(signature).workspace_bytes, "fitted")


def features_of(signature: OpSignature, device: Device) -> Floats:
    """The features of an op on a device, from its work (`cost_models.ops`).

    Returns:
        [5]: 1 for the run itself, bytes, operations that the whole device shares, serial time in ns, operations that one core of
        a CPU computes.
    """
    work = work_of(signature)
    if device.asynchronous and work.kernels and runs_on_host(signature):
        work = in_host_memory(signature)
    on_a_stream = device.asynchronous and work.kernels
    serial_ns = work.gpu_serial_ns if on_a_stream else work.cpu_serial_ns
    shared, single = (0.0, work.flops) if uses_one_core(work, device) else (work.flops, 0.0)
    return np.array([1.0, work.nbytes, shared, serial_ns, single])


def _spans_enough(features: Floats) -> bool:
    """Whether ops differ by a factor of `MIN_SPAN` in one of their features, apart from ops that have none of it."""
    sizes = features[:, 1:]
    smallest = np.where(sizes > 0, sizes, np.inf).min(axis=0)
    return bool(np.any(sizes.max(axis=0) > MIN_SPAN * smallest))


def _fits(column: dict[str, Measurement], device: Device) -> dict[tuple[str, ...], Fit]:
    groups: dict[tuple[str, ...], list[tuple[Floats, Measurement]]] = {}
    for text, measured in column.items():
        if (signature := signature_of(text)) is not None:
            groups.setdefault(_dtypes(signature), []).append((features_of(signature, device), measured))
    fits = {
        dtypes: Fit.of(np.array([features for features, _ in group]), [measured for _, measured in group])
        for dtypes, group in groups.items()
    }
    return {dtypes: fit for dtypes, fit in fits.items() if fit is not None}


def _dtypes(signature: OpSignature) -> tuple[str, ...]:
    """The dtypes that an op reads, each once, in order: kernels of different dtypes have different rates."""
    return tuple(dict.fromkeys(spec.dtype for spec in signature.inputs))


def robust_non_negative(features: Floats, target: Floats, scale: Floats) -> Floats:
    """Non-negative weights w for which features @ w is near the target, with little influence of outliers.

    Iteratively reweighted least squares with Huber's weights.

    Args:
        features: [n, k].
        target: [n].
        scale: [n], by which residuals are multiplied.

    Returns:
        [k].
    """
    scaled, scaled_target = features * scale[:, None], target * scale
    weights = non_negative(scaled, scaled_target)
    for _ in range(_REWEIGHTINGS):
        residual = np.abs(scaled @ weights - scaled_target)
        spread = max(1.4826 * float(np.median(residual)), 1e-3)  # a standard deviation, from the median of the residuals
        trust = np.sqrt(np.minimum(1.0, _HUBER * spread / np.maximum(residual, 1e-12)))
        weights = non_negative(scaled * trust[:, None], scaled_target * trust)
    return weights


def non_negative(matrix: Floats, target: Floats) -> Floats:
    """The exact least squares solution without negative entries: the best over all subsets of the few columns."""
    size = np.sqrt((matrix**2).sum(axis=0))
    used = np.flatnonzero(size)
    unit = matrix[:, used] / size[used]
    gram, moment = unit.T @ unit, unit.T @ target
    best, least_loss = np.zeros(matrix.shape[1]), 0.0
    for count in range(1, len(used) + 1):
        for chosen in map(list, itertools.combinations(range(len(used)), count)):
            part = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], moment[chosen], rcond=None)[0]
            # Half the squared residual, less a constant; at a least squares solution it is -moment·part / 2.
            loss = -float(moment[chosen] @ part)
            if np.all(part >= 0) and loss < least_loss - 1e-12:
                best, least_loss = np.zeros(matrix.shape[1]), loss
                best[used[chosen]] = part / size[used[chosen]]
    return best
