"""Costs between measured ones: for each op type a line through what was measured of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cost_models.analytic import on_one_core
from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device
from cost_models.ops import in_host_memory, runs_on_host, work_of
from cost_models.store import Measurement, Table, signature_of

Floats: TypeAlias = NDArray[np.float64]

SAMPLES = 5
"""Fewer measurements than this say too little."""
SPAN = 8.0
"""At least this far apart must the smallest and the largest measured op be, in bytes or in operations."""
REACH = 4.0
"""How far outside the measured sizes, as a factor, a fit is still asked."""
_ROUNDS = 8
_HUBER = 1.345
"""Residuals beyond this many standard deviations weigh less (P. Huber, Robust Statistics, 1981)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What an op of one type and dtype takes on one device, as a sum of what it has to do; no part is negative."""

    dispatch_ns: int
    weights: Floats
    """ns for each feature."""
    smallest: Floats
    largest: Floats
    """Of each feature, over the measurements."""

    @classmethod
    def of(cls, features: Floats, measured: Sequence[Measurement]) -> Fit | None:
        """The fit to ops with these features ([n, 5], see `features_of`); None where they are too few or too alike."""
        if len(measured) < SAMPLES or not _apart(features):
            return None
        dispatch = np.array([m.dispatch_ns for m in measured], np.float64)
        compute = np.array([m.compute_ns for m in measured], np.float64)
        weights = robust_non_negative(features, compute, 1.0 / (dispatch + compute + 1.0))
        return cls(round(float(np.median(dispatch))), weights, features.min(axis=0), features.max(axis=0))

    def reaches(self, features: Floats) -> bool:
        """Whether an op is near enough to the measured ones."""
        return bool(np.all((features <= REACH * self.largest) & (REACH * features >= self.smallest)))

    def compute_ns(self, features: Floats) -> int:
        return round(float(features @ self.weights))


@dataclass(frozen=True, slots=True)
class FittedModel:
    """The cost of an op by a `Fit` to the measured ops of its type and dtypes, and where there is none another model's."""

    tables: Callable[[str], Table]
    """What was measured, by device model."""
    otherwise: CostModel
    _fits: dict[tuple[str, str], dict[tuple[str, ...], Fit]] = field(default_factory=dict)
    """By device model and op type, then by dtypes."""

    @property
    def name(self) -> str:
        return f"fitted, else {self.otherwise.name}"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """Never negative, and growing with the op's bytes and operations as far as the fit reaches: of a CPU's products, with
        those that one core does and with those that all do.
        """
        key = device.model, signature.op_type
        if key not in self._fits:
            self._fits[key] = _fits(self.tables(device.model).get(signature.op_type, {}), device)
        fit = self._fits[key].get(_dtypes(signature))
        features = features_of(signature, device) if fit else None
        if fit is None or features is None or not fit.reaches(features):
            return self.otherwise.op_cost(signature, device)
        compute = fit.compute_ns(features)
        time = max(fit.dispatch_ns, compute) if device.asynchronous else fit.dispatch_ns + compute
        return OpCost(time, fit.dispatch_ns, compute, work_of(signature).workspace_bytes, "fitted")


def features_of(signature: OpSignature, device: Device) -> Floats:
    """What an op has to do on a device, by `cost_models.ops`.

    One run, bytes, operations, what is serial in ns, and operations that one core of a CPU does.
    """
    work = work_of(signature)
    if device.asynchronous and work.kernels and runs_on_host(signature):
        work = in_host_memory(signature)
    on_a_stream = device.asynchronous and work.kernels
    serial_ns = work.gpu_serial_ns if on_a_stream else work.cpu_serial_ns
    shared, alone = (0.0, work.flops) if on_one_core(work, device) else (work.flops, 0.0)
    return np.array([1.0, work.nbytes, shared, serial_ns, alone])


def _apart(features: Floats) -> bool:
    """Whether ops are `SPAN` apart in anything that they have to do, those aside that have none of it to do."""
    sizes = features[:, 1:]
    smallest = np.where(sizes > 0, sizes, np.inf).min(axis=0)
    return bool(np.any(sizes.max(axis=0) > SPAN * smallest))


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
    """The different dtypes an op reads, in order: kernels of different dtypes have different rates."""
    return tuple(dict.fromkeys(spec.dtype for spec in signature.inputs))


def robust_non_negative(features: Floats, target: Floats, scale: Floats) -> Floats:
    """Non-negative weights w with features @ w near target, residuals counted times `scale`, outliers for little.

    Iteratively reweighted least squares with Huber's weights; [n, k], [n], [n] -> [k].
    """
    scaled, wanted = features * scale[:, None], target * scale
    trust = np.ones(len(target))
    weights = non_negative(scaled, wanted)
    for _ in range(_ROUNDS):
        residual = np.abs(scaled @ weights - wanted)
        spread = max(1.4826 * float(np.median(residual)), 1e-3)
        trust = np.sqrt(np.minimum(1.0, _HUBER * spread / np.maximum(residual, 1e-12)))
        weights = non_negative(scaled * trust[:, None], wanted * trust)
    return weights


def non_negative(matrix: Floats, target: Floats) -> Floats:
    """The least squares solution among those without a negative part, exactly: the best over all subsets of the few columns."""
    size = np.sqrt((matrix**2).sum(axis=0))
    used = np.flatnonzero(size)
    unit = matrix[:, used] / size[used]
    gram, moment = unit.T @ unit, unit.T @ target
    best, least = np.zeros(matrix.shape[1]), 0.0
    for count in range(1, len(used) + 1):
        for chosen in map(list, itertools.combinations(range(len(used)), count)):
            part = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], moment[chosen], rcond=None)[0]
            # Half the squared residual, less a constant; at a least squares solution it is -moment·part / 2.
            loss = -float(moment[chosen] @ part)
            if np.all(part >= 0) and loss < least - 1e-12:
                best, least = np.zeros(matrix.shape[1]), loss
                best[used[chosen]] = part / size[used[chosen]]
    return best
