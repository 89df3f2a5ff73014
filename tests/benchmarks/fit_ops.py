"""How well the formulas price ops that were measured, with each size left out of the fit in turn.

    python -m tests.benchmarks.fit_ops ops.json --machine machine.toml
    python -m tests.benchmarks.fit_ops ops.json --machine h200 Svd Cholesky

The files are exports of measurements. For each op type and kind of device the table has the error of the formula as it is. The
constants of a `Timed` formula are also fitted to all sizes but one, which they then price. Errors are factors, such as 1.2 for a
price that is 20% too high: the median over the sizes, then the 90th percentile.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cost_models.analytic import AnalyticModel
from cost_models.exports import import_json
from cost_models.machine_files import load_machine
from cost_models.machines import Device, Machine, parse_machine
from cost_models.measurements import Row
from cost_models.ops import entry_of
from cost_models.ops.work import Timed, Times
from placer.common.tables import table

Floats: TypeAlias = NDArray[np.float64]

MIN_SIZES = 3
"""Sizes of an op type that a fit with one left out needs."""
CONSTANTS = "constants in ns, fitted to all sizes"
_REWEIGHTINGS = 8
_HUBER = 1.345
"""Residuals beyond this many standard deviations weigh less (P. Huber, Robust Statistics, 1981)."""


def rows_of(paths: Sequence[Path]) -> Iterator[Row]:
    """The measurements of ops by themselves; each op counts once, as in the first file that has it."""
    known = set()
    for path in paths:
        for row in import_json(path):
            if not row.measured.harvested and (key := (row.device_model, row.signature)) not in known:
                known.add(key)
                yield row


def device_of(row: Row, machine: Machine) -> Device:
    """The machine's GPU for a measurement on any GPU, else its host."""
    kind = "GPU" if "NVIDIA" in row.device_model else "CPU"
    return next(device for device in machine.devices if device.kind == kind)


def predicted_ns(features: Floats, constants: Floats, device: Device) -> float:
    """The price by constants: what starting takes runs beside the work of a GPU, and before that of a CPU."""
    work_ns = float(features @ constants)
    return max(work_ns, device.dispatch_ns) if device.asynchronous else work_ns + device.dispatch_ns


def left_out(times: Times, rows: Sequence[Row], device: Device) -> tuple[Floats, Floats]:
    """Constants fitted to all rows ([constants]), and the errors (logarithms, [rows]) of each row by a fit to the others."""
    features = np.array([[count(row.signature) for count, _ in times] for row in rows], np.float64)
    measured = np.array([row.measured.typical().time_ns for row in rows], np.float64)
    target = measured if device.asynchronous else np.maximum(measured - device.dispatch_ns, 1.0)

    def fitted(kept: NDArray[np.int_]) -> Floats:
        return robust_non_negative(features[kept], target[kept], 1.0 / measured[kept])

    every = np.arange(len(rows))
    errors = [math.log(predicted_ns(features[k], fitted(every[every != k]), device) / measured[k]) for k in every]
    return fitted(every), np.array(errors)


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


def report(rows: Sequence[Row], machine: Machine, op_types: Sequence[str]) -> str:
    """The table, by op type and kind of device."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if not op_types or row.signature.op_type in op_types:
            groups[row.signature.op_type, device_of(row, machine).kind].append(row)
    model = AnalyticModel()
    lines = []
    for (op_type, kind), group in sorted(groups.items()):
        device, work = device_of(group[0], machine), entry_of(op_type).work
        errors = [math.log(model.op_cost(r.signature, device).time_ns / r.measured.typical().time_ns) for r in group]
        times = (work.gpu if kind == "GPU" else work.cpu) if isinstance(work, Timed) else ()
        constants, others = left_out(times, group, device) if times and len(group) >= MIN_SIZES else (np.empty(0), np.empty(0))
        fitted = ", ".join(f"{constant:.3g}" for constant in constants)
        lines.append((op_type, kind, str(len(group)), _factors(errors), _factors(others), fitted))
    return table(["op type", "device", "sizes", "formula", "left out", CONSTANTS], lines, left=("device", CONSTANTS))


def _factors(errors: Sequence[float] | Floats) -> str:
    """The median error and its 90th percentile, as factors."""
    if not len(errors):
        return "-"
    median, high = np.exp(np.percentile(np.abs(errors), (50, 90)))
    return f"{median:.2f}, {high:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="exports of measurements, and op types; all types if none is named")
    parser.add_argument("--machine", default="h200", help="a shipped machine, or a file of one (default: %(default)s)")
    args = parser.parse_intermixed_args()
    paths = [Path(name) for name in args.files if name.endswith(".json")]
    op_types = [name for name in args.files if not name.endswith(".json")]
    file = Path(args.machine)
    machine = parse_machine(file.read_text()) if file.exists() else load_machine(args.machine)
    print(report(list(rows_of(paths)), machine, op_types))


if __name__ == "__main__":
    main()
