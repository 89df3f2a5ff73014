"""What solvers decide on the shipped graphs and on the examples, with a fixed effort instead of a time limit.

Run: python -m tests.benchmarks.decisions --out before.json.gz
     python -m tests.benchmarks.decisions --compare before.json.gz

It checks a change of the code that should not change any decision. Equal code gives equal decisions on one machine, whatever else
runs there, because no search is limited by time: the searches that go on for long have an effort.

`--compare` prints each difference and exits with 1 if there is any. It also lists the texts (notes, stop reasons, messages) that
differ; they do not change the exit status. A run takes about five minutes on one core.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib
import io
import itertools
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["PLACER_CACHE"] = os.devnull  # measurements of the user must not decide
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

EFFORTS = {"cp_sat": 1_000, "annealing": 200, "genetic": 200}
"""The efforts of solvers that would go on for long."""
SMALL_OPS = 1_000
"""Ops of the largest graph that is given to every registered heuristic."""
NAMES_SHOWN = 4


# -- what is decided ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One plan to make."""

    machine: str
    solver: str
    objective: str = "step_time"
    limited: bool = False
    """Whether the GPUs may hold less than a plan without limits holds there."""
    variables: str = "fixed"

    def __str__(self) -> str:
        more = ["limited"] * self.limited + [f"variables={self.variables}"] * (self.variables != "fixed")
        return ", ".join([self.machine, self.solver, self.objective, *more])


OBJECTIVES = ("step_time", "total_cost")
EXAMPLE_RULES = ("heft", "greedy")
"""Heuristics that every graph is given to."""
RULES = ("tf_default", "m_etf")
"""Heuristics that every shipped graph is given to."""
SMALL_RULES = (
    "m_topo",
    "m_sct",
    "cpop",
    "peft",
    "earliest_finish",
    "greedy_benefit",
    "dfs_fill",
    "in_order_fill",
    "cpu_preferred",
    "random",
)
"""Heuristics that every shipped graph of at most `SMALL_OPS` is given to."""


def cases(ops: int, *, example: bool) -> Iterator[Case]:
    """The plans to make of a graph of so many ops; of an example's graph fewer."""
    for machine, limited in itertools.product(("h100", "2xh100"), (False, True)):
        yield from (Case(machine, "auto", objective, limited) for objective in OBJECTIVES)
        if example and machine == "2xh100":
            continue
        if machine == "h100":
            yield Case(machine, "min_cut", "total_cost", limited)
        yield Case(machine, "cp_sat", "total_cost", limited)
        yield Case(machine, "step_time", "step_time", limited)
        yield from (Case(machine, rule, limited=limited) for rule in EXAMPLE_RULES)
        if example:
            continue
        yield from (Case(machine, rule, limited=limited) for rule in RULES)
        yield from (Case(machine, name, objective, limited) for name in ("annealing", "genetic") for objective in OBJECTIVES)
        if ops <= SMALL_OPS:
            yield from (Case(machine, rule, limited=limited) for rule in SMALL_RULES)
            yield from (Case(machine, name, "total_cost", limited) for name in ("lagrangian", "chain_dp"))
    yield from (Case("h100", "auto", objective, variables="move") for objective in OBJECTIVES)
    yield from (Case("cpu2", "auto", objective) for objective in OBJECTIVES)


def decide(graph: Any, is_example: bool, limits: Mapping[str, Mapping[str, int]] | None) -> dict[str, Any]:
    """All plans of a graph by case, and the predictions of placements that are given.

    Args:
        limits: by machine the bytes that its GPUs may hold where they are limited; None to choose them by what plans hold.
    """
    import placer

    def planned(case: Case) -> Any:
        limit = chosen[case.machine] if case.limited else {}
        options: dict[str, Any] = {"variables": case.variables, "memory_limits": limit, "seed": 1}
        if case.solver in EFFORTS:
            options["effort"] = EFFORTS[case.solver]
        return placer.solve(graph, case.machine, solver=case.solver, objective=case.objective, **options)

    chosen = dict(limits) if limits is not None else binding_limits(planned)
    runs: dict[str, Any] = {}
    for case in cases(len(graph), example=is_example):
        runs[str(case)] = outcome(lambda case=case: planned(case))
    for machine in ("h100", "2xh100", "cpu2"):
        on_cpu = {name: plan.device for name, plan in planned(Case(machine, "all_cpu")).ops.items()}
        for name, devices in {"default": {}, "all on the CPU": on_cpu}.items():
            runs[f"{machine}, simulate, {name}"] = outcome(
                lambda machine=machine, devices=devices: placer.simulate(graph, devices, machine)
            )
    return {"fingerprint": graph.fingerprint, "ops": [op.name for op in graph], "limits": chosen, "runs": runs}


def binding_limits(planned: Callable[[Case], Any]) -> dict[str, dict[str, int]]:
    """What must be on the GPU and a half, or of two GPUs each a third, of what else the minimum cut has there."""
    must, likes = (planned(Case("h100", name, "total_cost")).totals["GPU:0"].peak_bytes for name in ("all_cpu", "min_cut"))
    more = max(0, likes - must)
    return {"h100": {"GPU": must + more // 2}, "2xh100": {"GPU": must + more // 3}}


def outcome(plan: Callable[[], Any]) -> dict[str, Any]:
    """What a plan decides and predicts, as plain types; or the error it ends with."""
    import placer

    try:
        placement = plan()
    except placer.PlacerError as error:
        return {"error": type(error).__name__, "texts": [str(error)]}
    ops = placement.ops
    number = {device: str(i) for i, device in enumerate(placement.devices)}
    unit_device: dict[int, str] = {}
    for op in ops.values():
        unit_device.setdefault(op.unit, op.device)
    first_number = {unit: i for i, unit in enumerate(unit_device)}
    return {
        "status": placement.status.value,
        "objective_ns": placement.objective_ns,
        "lower_bound_ns": placement.lower_bound_ns,
        "step_time_ns": placement.step_time_ns,
        "total_cost_ns": placement.total_cost_ns,
        "ops_by_device": dict(sorted(Counter(op.device for op in ops.values()).items())),
        "units_by_device": dict(sorted(Counter(unit_device.values()).items())),
        "peak_bytes": {device: totals.peak_bytes for device, totals in placement.totals.items()},
        "persistent_bytes": {device: totals.persistent_bytes for device, totals in placement.totals.items()},
        "copied_bytes": placement.copied_bytes,
        "copies": len(placement.transfers),
        "baselines": {name: [b.feasible, b.step_time_ns, b.total_cost_ns] for name, b in placement.baselines.items()},
        "devices_digest": digest(sorted((name, op.device) for name, op in ops.items())),
        "units_digest": digest([first_number[op.unit] for op in ops.values()]),
        "prices_digest": digest([sorted(op.time_ns.items()) for op in ops.values()]),
        "timeline_digest": digest([(op.start_ns, op.end_ns) for op in ops.values()]),
        "memory_digest": digest(sorted(placement.memory.items())),
        "devices": "".join(number[op.device] for op in ops.values()),  # of ops, in the graph's order
        "unit_devices": "".join(number[device] for device in unit_device.values()),  # in the order of their first ops
        "device_names": list(placement.devices),
        "texts": [placement.solver, placement.stop_reason, *placement.notes],
    }


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


# -- of which graphs ---------------------------------------------------------------------------------------------------


def graphs(words: Iterable[str]) -> Iterator[tuple[str, bool, Any]]:
    """By name each shipped graph, and each example's, that has one of these words in its name; and whether it is an example's."""
    words = list(words) or [""]

    def wanted(name: str) -> bool:
        return any(word in name for word in words)

    from placer.graph import shipped

    for name in filter(wanted, shipped.shipped_graphs()):
        yield name, False, shipped.shipped_graph(name)
    for name, build in examples().items():
        if wanted(name):
            yield name, True, build()


def examples() -> dict[str, Callable[[], Any]]:
    """By name, what traces a function of `examples/` from scratch."""

    def traced(builder: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        def build() -> Any:
            import keras

            import placer
            from examples import workloads

            keras.utils.clear_session()  # or layers would be numbered on from the graph before
            work = getattr(workloads, builder)(*args, **kwargs)
            return placer.build_graph(work.fn, *work.args)

        return build

    def training_step() -> Any:
        import keras

        keras.utils.clear_session()
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("examples.training_step").step.placement.graph

    small = ("resnet50_training", "encoder_training", "lstm_then_wide", "detector", "recommender_training", "mlp_inference")
    return {
        **{f"example {name}, small": traced(name, "small") for name in (*small, "mlp_training", "unique_then_matmul")},
        **{f"example {name}, small, by hand": traced(name, "small", by_hand=True) for name in ("lstm_then_wide", "detector")},
        "example detector, 512 pixels": traced("detector", "full", pixels=512),
        "example unique_then_matmul": traced("unique_then_matmul", "full"),
        "example plan_for_another_machine": traced("detector"),
        "example training_step": training_step,
    }


# -- compared ----------------------------------------------------------------------------------------------------------

DETAILS = ("texts", "devices", "unit_devices")
"""Fields that are compared in another way than the others: by their digest, or as texts."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[tuple[str, str]], Counter[tuple[str, str]]]:
    """What differs between two records of a graph.

    Returns:
        By field a line for each decision that differs, and how often each pair of texts differs.
    """
    lines, texts = [], Counter[tuple[str, str]]()
    lines += [(field, f"the graph's {field}") for field in ("fingerprint", "ops") if before[field] != after[field]]
    for key in [*before["runs"], *(key for key in after["runs"] if key not in before["runs"])]:
        one, two = before["runs"].get(key), after["runs"].get(key)
        if one is None or two is None:
            lines.append(("plan", f"{key}: only {'after' if one is None else 'before'}"))
            continue
        pairs = ((field, one.get(field), two.get(field)) for field in dict.fromkeys([*one, *two]) if field not in DETAILS)
        lines += [(field, f"{key}: {field} was {was}, is {now}") for field, was, now in pairs if was != now]
        if "devices" in one and "devices" in two and one["devices_digest"] != two["devices_digest"]:
            lines.append(("devices", f"{key}: {moves(before['ops'], one, after['ops'], two)}"))
        worded = itertools.zip_longest(one["texts"], two["texts"], fillvalue="")
        texts.update(without_numbers(was, now) for was, now in worded if was != now)
    return lines, texts


def without_numbers(was: str, now: str) -> tuple[str, str]:
    """Two texts with # for each number, so that equal rewordings are listed once; as they are if only numbers differ."""
    one, two = (re.sub(r"\d[\d,.]*", "#", text) for text in (was, now))
    return (was, now) if one == two else (one, two)


def moves(ops: list[str], one: Mapping[str, Any], other_ops: list[str], two: Mapping[str, Any]) -> str:
    """The ops whose device differs, in words."""
    was, now = (
        {name: run["device_names"][int(d)] for name, d in zip(names, run["devices"], strict=True)}
        for names, run in ((ops, one), (other_ops, two))
    )
    moved = [f"{name} from {was[name]} to {now[name]}" for name in was if name in now and was[name] != now[name]]
    return f"{len(moved)} ops moved: {'; '.join(moved[:NAMES_SHOWN])}{'; …' if len(moved) > NAMES_SHOWN else ''}"


def read(path: Path) -> dict[str, Any]:
    records: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return records


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="word", help="only graphs with one of these words in their name")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the decisions to a .json.gz file")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with such a file, under the same memory limits")
    arguments = parser.parse_args()
    before = read(arguments.compare) if arguments.compare else {}
    warnings.simplefilter("ignore")  # notes are recorded with the plans

    after: dict[str, Any] = {}
    lines: list[tuple[str, str]] = []
    texts: Counter[tuple[str, str]] = Counter()
    for name, is_example, graph in graphs(arguments.words):
        started = time.perf_counter()
        after[name] = decide(graph, is_example, before[name]["limits"] if name in before else None)
        runs = after[name]["runs"]
        decided = digest({key: {**run, "texts": []} for key, run in runs.items()})
        print(f"{name}: {len(graph)} ops, {len(runs)} plans, {time.perf_counter() - started:.1f} s, digest {decided}", flush=True)
        if name in before:
            more, worded = differences(before[name], after[name])
            lines += [(field, f"{name}: {line}") for field, line in more]
            texts += worded
        elif before:
            lines.append(("graph", f"{name}: not in {arguments.compare}"))
    if before and not arguments.words:
        lines += [("graph", f"{name}: only in {arguments.compare}") for name in before if name not in after]
    if arguments.out:
        arguments.out.write_bytes(gzip.compress(json.dumps(after, indent=0).encode(), mtime=0))
    if before:
        for (was, now), count in texts.most_common():
            print(f"text, {count} times: {was!r} is now {now!r}")
        print("\n".join(line for _, line in lines) or "No decision differs.")
        for field, count in Counter(field for field, _ in lines).most_common():
            print(f"{field} differs {count} times")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
