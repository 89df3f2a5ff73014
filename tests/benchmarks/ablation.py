"""What each term of the execution model and of the costs contributes: predictions of all recorded steps without it.

    python -m tests.benchmarks.ablation

Writes and prints a Markdown table. Each workload is left out of the measurements, see `left_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cost_models import analytic, measured, transfers
from cost_models.measurements import Measurement
from placer.problem import data_flow, encoded_assignment, formulate, model_tables, op_costs
from tests.benchmarks import left_out, recorded
from tests.benchmarks.left_out import SETS, Outcome, by_workload, differ, model_without, outcomes, score_of
from tests.helpers.changed import changed

TABLE = Path(__file__).with_name("ablation.md")
"""The table of docs/accuracy.md."""

FIGURES = (
    "rank",
    "mean rank within workloads",
    "median error",
    "90% of errors under",
    "median error of plans",
    "90%, split loops",
)

Term = Callable[[], Any]
"""A context in which predictions lack the term."""


@contextmanager
def without(module: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces a name of a module."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


@contextmanager
def recorded_with(**constants: Any) -> Iterator[None]:
    """All recorded machines with other constants."""
    parse = recorded.parse_machine
    with without(recorded, "parse_machine", lambda text: replace(parse(text), **constants)):
        yield


@contextmanager
def priced_with(module: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces a name of a module of the cost models, whose tables and fits are computed anew."""
    with without(module, name, value):
        _forget_costs()
        yield
    _forget_costs()


def _forget_costs() -> None:
    left_out.measured_by.cache_clear()
    model_without.cache_clear()


@contextmanager
def encoded_with(change: Callable[[list[Any]], list[Any]]) -> Iterator[None]:
    """Replaces columns of the copies of each assignment (`EncodedAssignment.by_copy`)."""
    original = encoded_assignment.EncodedAssignment.of.__func__  # type: ignore[attr-defined]

    def altered(cls: Any, *args: Any, **options: Any) -> Any:
        found = original(cls, *args, **options)
        found.by_copy = tuple(change(list(found.by_copy)))
        return found

    with without(encoded_assignment.EncodedAssignment, "of", classmethod(altered)):
        yield


def _without_waiting_for_streams(columns: list[Any]) -> list[Any]:
    columns[3] = [-1] * len(columns[3])
    return columns


def _without_feeding(columns: list[Any]) -> list[Any]:
    columns[4] = [-1] * len(columns[4])
    return columns


_cold_ns = op_costs._cold_ns

ARRAYS: dict[str, dict[str, Any]] = {
    "time of a call by the devices in use": {"devices_call_ns": None, "devices_split_ns": 0},
    "time to wake the caller": {"devices_waiting_ns": 0},
    "least interval between copies": {"links_interval_ns": None},
    "control edges": {"ops_control_src": np.zeros(0, np.int64), "ops_control_dst": np.zeros(0, np.int64)},
    "waiting for awaited ops": {"ops_awaited": None},
    "several threads of a host": {"devices_threads": None},
    "waking the threads of a host": {"devices_wake_ns": None},
    "serial ops of a host run at once": {"ops_serial": None},
}
"""Terms of the execution model that arrays of a problem leave out, see `changed`."""
RUNS: dict[str, Term] = {
    "copies into a GPU wait for its stream and hold its thread": lambda: encoded_with(_without_feeding),
    "copies out of a GPU wait for its stream": lambda: encoded_with(_without_waiting_for_streams),
    "small ops of a host run one at a time": lambda: without(model_tables, "SMALL_NS", 0),
    "large ops of a host run one at a time": lambda: without(model_tables, "WIDE_NS", 10**15),
}
"""Terms of a simulated run of a problem."""
FORMULATION: dict[str, Term] = {
    "time of arguments": lambda: recorded_with(argument_ns=0, passed_ns=0),
    "hops between views of host memory": lambda: recorded_with(host_hop_ns=0),
    "slow copies from ordinary memory": lambda: without(data_flow, "unpinned_factor", lambda *_: 1.0),
    "ordinary memory in placed functions of old records": lambda: without(recorded, "unpinned_factor", lambda *_: 1.0),
    "control edges that TensorFlow adds to loops": lambda: without(
        data_flow, "_loop_control_edges", lambda ops, fed: np.zeros((0, 2), np.int64)
    ),
    "control edges that TensorFlow removes": lambda: without(
        data_flow, "reduced_control_edges", lambda count, fed, control, joins: control
    ),
    "the first op of each type": lambda: without(op_costs, "_cold_ns", lambda *args: 0 * _cold_ns(*args)),
    "the first run of each op on a GPU": lambda: without(op_costs, "FIRST_RUN_NS", 0),
    "almost twice the latency of copies": lambda: without(transfers, "LATENCY_IN_A_STEP", 1),
    "reads that copy a variable": lambda: without(formulate, "_with_copied_reads", list),
}
"""Terms of the problem that is made of a graph."""
COSTS: dict[str, Term] = {
    "measured times of ops": lambda: without(measured.MeasuredModel, "op_cost", lambda m, op, d: m.otherwise.op_cost(op, d)),
    "typical times (the least ones instead)": lambda: priced_with(Measurement, "typical", lambda measurement: measurement),
    "measured waits of awaited ops": lambda: without(measured, "is_awaited", lambda op: False),
    "further kernels of an op": lambda: priced_with(
        analytic, "launch_ns", lambda op_type, work, device: round(analytic.entry_of(op_type).start_factor * device.dispatch_ns)
    ),
    "own start times of op types": lambda: priced_with(
        analytic, "launch_ns", lambda op_type, work, device: (work.kernels + 1) * device.dispatch_ns // 2
    ),
    "small products on one core": lambda: priced_with(analytic, "uses_one_core", lambda work, device: False),
    "time to share an op among cores": lambda: priced_with(analytic, "_FORK_NS", 0),
}


def everything() -> list[Outcome]:
    """The outcomes of all recorded placements."""
    return [each for machine in SETS for each in outcomes(machine, model_without)]


def simulated(found: list[Outcome], **arrays: Any) -> list[Outcome]:
    """The outcomes, simulated again after these changes of their problems."""
    problems = {id(each.prediction.problem): changed(each.prediction.problem, **arrays) for each in found}
    problems = {key: replace(problem) for key, problem in problems.items()}  # what was computed of it is not used again
    again = [replace(each.prediction, problem=problems[id(each.prediction.problem)]) for each in found]
    return [replace(each, predicted=prediction.step_ns) for each, prediction in zip(found, again, strict=True)]


def row(found: list[Outcome]) -> str:
    """How good these predictions are."""
    inside = [score_of(group).rank_correlation for group in by_workload(found).values() if differ(group)]
    score = score_of(found)
    plans = score_of([each for each in found if each.label in ("plan", "moved")])
    loops = score_of([each for each in found if each.kind == "split loop"])
    ranks = f"{score.rank_correlation:.3f} | {np.mean(inside):.3f}"
    return f"{ranks} | {score.median_error:.1%} | {score.error_90:.1%} | {plans.median_error:.1%} | {loops.error_90:.1%}"


def rows() -> Iterator[str]:
    """The rows of the table; the first leaves nothing out."""
    found = everything()
    yield f"nothing | {row(found)}"
    for name, arrays in ARRAYS.items():
        yield f"{name} | {row(simulated(found, **arrays))}"
    for name, term in RUNS.items():
        with term():
            yield f"{name} | {row(simulated(found))}"
    for name, term in {**FORMULATION, **COSTS}.items():
        with term():
            yield f"{name} | {row(everything())}"


def main() -> None:
    lines = [f"| left out | {' | '.join(FIGURES)} |", f"|{'---|' * (1 + len(FIGURES))}"]
    for each in rows():
        lines.append(f"| {each} |")
        print(lines[-1], flush=True)
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
