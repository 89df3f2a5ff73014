"""How true the predicted step times are: many workloads, each under many placements, measured and predicted.

    python -m tests.benchmarks.bench_truth --out truth
    python -m tests.benchmarks.bench_truth --out truth --devices two-cpu --size small mlp_training decoding
    python -m tests.benchmarks.bench_truth --out truth --score

One process a workload, its placements interleaved in it as `bench_step_time` does; what is in the folder already is not measured
again. The folder keeps all that a prediction needs (graphs, assignments, machine, op measurements), so that models can be scored
against the same measurements later, anywhere, without TensorFlow. No step time is used to fit anything.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cost_models.analytic import AnalyticModel
from cost_models.auto import auto_model
from cost_models.base import CostModel
from cost_models.exports import export_json, import_json
from cost_models.machines import Machine, parse_machine
from cost_models.store import Store
from cost_models.transfers import unpinned_factor
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.memory import peaks
from placer.problem.problem import Assignment, PlacementProblem
from placer.verbs.predict import random_cut

if TYPE_CHECKING:
    from examples.workloads import Size, Workload
    from placer.plan.placement import Placement
    from placer.tf.trace.tracing import Trace
    from tests.benchmarks.bench_step_time import Variant
    from tests.helpers.model_parallel import Program

PLACEMENTS = 10
"""Of a workload, if there is time."""
RANDOM_CUTS = 8
"""At most."""
EFFECT_S = 0.6
"""How long the rounds of an effect may take."""
LEAST_ROUNDS = 4
"""Of each placement that there should be time for, before a further one is made ready."""
PRELOADED = (
    "examples.workloads",
    "tests.benchmarks.bench_step_time",
    "tests.benchmarks.more_workloads",
    "tests.helpers.model_parallel",
)
"""What takes longest to import; it starts nothing of TensorFlow that would not outlive a fork."""
TRACED = ("default", "plan", "random_0")
TRACED_STEPS = 3
WORTH_RANKING = 1.3
"""Placements of a workload differ enough for their order to mean something where the slowest takes this much longer."""
HANDING_ON = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "ReadVariableOp"})
MODELS = ("auto", "analytic", "grappler")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="workloads; all if none is named")
    parser.add_argument("--out", type=Path, default=Path("truth"), help="folder of the measurements (default: %(default)s)")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--budget-s", type=float, default=60.0, help="for each workload, about (default: %(default)s)")
    parser.add_argument("--traces", action="store_true", help=f"also keep a profiler's record of {', '.join(TRACED)}")
    parser.add_argument("--effects", action="store_true", help="measure single effects instead, in this process")
    parser.add_argument("--graphs", action="store_true", help="write the workloads' graphs instead, for placer profile")
    parser.add_argument("--score", action="store_true", help="measure nothing")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.effects:
        measure_effects(args.names, args.out, two_cpu=args.devices == "two-cpu")
        return 0
    if unknown := [name for name in args.names if name not in builders()]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(builders())}")
    if args.graphs:
        write_graphs(args.names or [*builders()], args.size, args.out)
        return 0
    failed = [] if args.score else measure_all(args)
    print(report(score(args.out, args.names)))
    return bool(failed)


# -- measuring -----------------------------------------------------------------------------------------------------------


def measure_all(args: argparse.Namespace) -> list[str]:
    """Measures each workload that has no record yet in a process of its own; gives the names of those that failed.

    The processes are forked from one that has imported TensorFlow and used nothing of it.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([*PRELOADED])
    failed = []
    for name in args.names or [*builders()]:
        if (args.out / f"{name}.json").exists():
            continue
        start = time.perf_counter()
        given = (name, args.size, args.out, args.budget_s, args.devices == "two-cpu", args.traces)
        process = forks.Process(target=measure, args=given)
        process.start()
        process.join()
        if process.exitcode:
            failed.append(name)
        print(f"{name}: {'failed, ' * bool(process.exitcode)}{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return failed


def builders() -> dict[str, Callable[[Size], Workload]]:
    """The encoder has three layers of twelve: each further one is as those."""
    from examples.workloads import encoder_training
    from tests.benchmarks.bench_step_time import BUILDERS
    from tests.benchmarks.more_workloads import MORE

    parts = {name: partial(_work_of, make) for name, make in in_parts().items()}
    return {**BUILDERS, "encoder": partial(encoder_training, layers=3), **MORE, **parts}


def in_parts() -> dict[str, Callable[[Size], Program]]:
    """Programs for several GPUs, each of which an expert would give some of their parts."""
    from tests.helpers import model_parallel

    return {"mlp_40_training": model_parallel.mlp_training, "towers_2_training": model_parallel.towers}


def _work_of(make: Callable[[Size], Program], size: Size) -> Workload:
    return make(size).work


def measure(name: str, size: Size, out: Path, budget_s: float, two_cpu: bool = False, traces: bool = False) -> None:
    """Writes a workload's record and graphs, and what is measured of ops.

    Placements are made ready, at most `PLACEMENTS`, as long as another one and some rounds of all of them seem to fit into the
    time.
    """
    from tests.benchmarks import bench_step_time as bench

    started = time.perf_counter()
    machine = machine_here(two_cpu)
    ready: dict[str, tuple[Case, bench.Variant]] = {}
    last_s = round_s = 0.0
    begun = time.perf_counter()
    for case in cases(name, size, machine):
        variant = bench.warm_up(case.run, case.args)
        ready[case.label] = case, variant
        now = time.perf_counter()
        print(f"{name}, {case.label}: {1e3 * variant.step_s:.1f} ms, ready at {now - started:.0f} s", file=sys.stderr, flush=True)
        last_s, begun = now - begun, now
        round_s += max(bench.ROUND_S, variant.step_s)
        if len(ready) == PLACEMENTS or now - started + last_s + LEAST_ROUNDS * round_s > budget_s:
            break
    within_s = budget_s - (time.perf_counter() - started)
    rounds = bench.interleaved({label: variant.step for label, (_, variant) in ready.items()}, within_s)
    export_json(Store().rows(), out / "measurements.json")
    keep(name, ready, rounds, machine, out)
    keep_grappler(name, ready, machine, out)
    from placer.tf.run.harvesting import record_steps

    for label in TRACED if traces else ():
        if label in ready:
            (out / f"{name}.{label}.xplane.pb.gz").write_bytes(gzip.compress(record_steps(ready[label][1].step, TRACED_STEPS)))


def measure_effects(names: Sequence[str], out: Path, *, two_cpu: bool = False) -> None:
    """Writes a record for each function of `tests.benchmarks.effects` that has none, the devices being those written in it."""
    from tests.benchmarks import bench_step_time as bench
    from tests.benchmarks.effects import effects

    machine = machine_here(two_cpu)
    export_json(Store().rows(), out / "measurements.json")
    for name, build in effects():
        if (names and name not in names) or (out / f"{name}.json").exists():
            continue
        work = build()
        case = Case.as_it_is("default", work, machine, solver="tf_default")
        ready = {"default": (case, bench.warm_up(case.run, case.args))}
        rounds = bench.interleaved({"default": ready["default"][1].step}, EFFECT_S)
        keep(name, ready, rounds, machine, out)
        keep_grappler(name, ready, machine, out)
        measured_us = 1e6 * float(np.median(rounds["default"]))
        print(f"{name:34}{measured_us:12.1f} us, predicted {1e3 * case.predicted_ms:12.1f}", flush=True)


def write_graphs(names: Sequence[str], size: Size, out: Path) -> None:
    import placer

    for name in names:
        work = builders()[name](size)
        placer.build_graph(work.fn, *work.args).save(out / f"{name}.json")


def machine_here(two_cpu: bool) -> Machine:
    from tests.benchmarks.bench_step_time import two_cpu_machine

    if two_cpu:
        two_cpu_machine()
    from placer.tf.devices import local_machine

    return local_machine()


def keep(
    name: str, ready: Mapping[str, tuple[Case, Variant]], rounds: Mapping[str, list[float]], machine: Machine, out: Path
) -> None:
    """Writes a record and its graphs."""
    import tensorflow as tf

    files: dict[int, str] = {}
    for graph in {id(case.graph): case.graph for case, _ in ready.values()}.values():
        text = json.dumps(graph.to_json(), separators=(",", ":")).encode()
        files[id(graph)] = hashlib.sha256(text).hexdigest()[:16]
        (out / f"{files[id(graph)]}.graph.json.gz").write_bytes(gzip.compress(text, mtime=0))
    record = {
        "workload": name,
        "tensorflow": tf.__version__,
        "machine": machine.to_toml(),
        "cases": {
            label: {
                "graph": files[id(case.graph)],
                "devices": case.devices,
                "predicted_ms": case.predicted_ms,
                "grappler_ns": None,
                "rounds_ms": [round(1e3 * seconds, 5) for seconds in rounds[label]],
                "first_call_s": variant.first_call_s,
                "peak_bytes": variant.peak_bytes,
                "held_bytes": variant.held_bytes,
                "predicted_peak_bytes": case.predicted_peak_bytes,
            }
            for label, (case, variant) in ready.items()
        },
    }
    (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def keep_grappler(name: str, ready: Mapping[str, tuple[Case, Variant]], machine: Machine, out: Path) -> None:
    """Adds TensorFlow's own predictions to a record: of thousands of ops on several devices, each takes a while."""
    path = out / f"{name}.json"
    record = json.loads(path.read_text())
    for label, (case, _) in ready.items():
        record["cases"][label]["grappler_ns"] = grappler_estimate_ns(case.placed, machine)
        path.write_text(json.dumps(record, indent=1) + "\n")


def cases(name: str, size: Size, machine: Machine) -> Iterator[Case]:
    """A workload's placements, those first that matter most; of solved ones that are equal only the first."""
    import tensorflow as tf

    import placer
    from placer.tf.trace.tracing import trace
    from tests.benchmarks.bench_step_time import BY_HAND
    from tests.benchmarks.bench_step_time import on_cpu as called_on_cpu

    build: Callable[..., Workload] = partial(builders()[name], size)
    program = in_parts()[name](size) if name in in_parts() else None
    work = program.work if program else build()
    yield Case.as_it_is("default", work, machine, solver="tf_default")
    with tf.device("/CPU:0"):
        all_cpu = Case.as_it_is("all_cpu", build(), machine, solver="all_cpu")
    yield replace(all_cpu, run=called_on_cpu(all_cpu.run))
    if name in BY_HAND and tf.config.list_logical_devices("GPU"):
        yield Case.as_it_is("hand", build(by_hand=True), machine, solver="tf_default")
    traced = trace(work.fn, *work.args)
    graph = placer.build_graph(traced)
    by_hand = [("hand", {"solver": partial(best_by_hand, program, graph)})] if program and len(machine.devices) > 2 else []
    seen = set()
    for label, options in [*by_hand, *placements()]:
        case = Case.of(label, work, traced, graph, machine, **options)
        if case.devices not in seen:
            seen.add(case.devices)
            yield case


def best_by_hand(program: Program, graph: OpGraph, problem: PlacementProblem) -> Assignment:
    """A contiguous share of the parts for each GPU, the best by the predicted step."""
    from tests.helpers.model_parallel import by_hand

    return min(by_hand(program, graph, problem), key=problem.simulator.step_ns)


def placements() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is solved for beside TensorFlow's default and all on the CPU."""
    yield "plan", {}
    yield "random_0", {"solver": partial(random_cut, seed=0)}
    yield "total_cost", {"objective": "total_cost"}
    yield "random_1", {"solver": partial(random_cut, seed=1)}
    yield "heft", {"solver": "heft"}
    yield "random_2", {"solver": partial(random_cut, seed=2)}
    yield "greedy", {"solver": "greedy"}
    for seed in range(3, RANDOM_CUTS):
        yield f"random_{seed}", {"solver": partial(random_cut, seed=seed)}


@dataclass(frozen=True)
class Case:
    """A workload under one placement: what to call, and what a prediction of it needs."""

    label: str
    work: Workload
    placement: Placement
    """What it is predicted by."""
    placed: Any
    """The placed ConcreteFunction."""
    run: Any
    """What is measured."""

    @classmethod
    def of(cls, label: str, work: Workload, traced: Trace, graph: OpGraph, machine: Machine, **options: Any) -> Case:
        """The function run by a plan that these options give; its trace and graph are read once for all of them."""
        import placer
        from placer.tf.rewrite.rewriting import rewrite_by_plan
        from placer.tf.run.exhausted import report

        placement = placer.solve(graph, machine, **options)
        run = rewrite_by_plan(traced, placement, report)
        return cls(label, work, placement, run, run)

    @classmethod
    def as_it_is(cls, label: str, work: Workload, machine: Machine, **options: Any) -> Case:
        """The function itself, without what `tf.function` does in Python at each call, which no placement changes."""
        import placer
        from placer.tf.trace.tracing import trace

        traced = trace(work.fn, *work.args)
        case = cls.of(label, work, traced, placer.build_graph(traced), machine, **options)
        placement = placer.solve(as_traced(work), machine, **options)
        return replace(case, placement=placement, run=work.fn.get_concrete_function(*work.args))

    @property
    def args(self) -> tuple[Any, ...]:
        return self.work.args

    @property
    def graph(self) -> OpGraph:
        return self.placement.graph

    @property
    def devices(self) -> str:
        """A digit for each op: its device's position in the machine."""
        number = {name: str(k) for k, name in enumerate(self.placement.devices)}
        return "".join(number[plan.device] for plan in self.placement.ops.values())

    @property
    def predicted_ms(self) -> float:
        return self.placement.step_time_ns / 1e6

    @property
    def predicted_peak_bytes(self) -> dict[str, int]:
        """By device."""
        return {name: total.peak_bytes for name, total in self.placement.totals.items()}


def as_traced(work: Workload) -> OpGraph:
    """A function's graph as TensorFlow runs it: variables that a loop reads are read in each round, not before it."""
    import placer
    from placer.tf.trace.tracing import trace

    traced = trace(work.fn, *work.args)
    for body in traced.root.walk():
        body.hoists.clear()
        body.hoisted.clear()
    return placer.build_graph(traced)


def grappler_estimate_ns(concrete: Any, machine: Machine) -> int:
    """TensorFlow's own prediction for a placed function: its virtual cluster's roofline and schedule (to the microsecond)."""
    from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2
    from tensorflow.python.grappler import cluster, item

    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(concrete.graph.as_graph_def())
    meta.collection_def["train_op"].node_list.value.extend(tensor.op.name for tensor in concrete.outputs)
    devices = []
    for device in machine.devices:
        properties = device_properties_pb2.DeviceProperties(
            type=device.kind,
            frequency=2500 if device.kind == "CPU" else 1700,
            num_cores=device.cores,
            memory_size=device.memory_bytes,
            bandwidth=int(device.memory_bytes_per_s / 1e3),
        )
        if device.kind == "GPU":
            properties.environment["architecture"] = "9"
        name = f"/job:localhost/replica:0/task:0/device:{device.name}"
        devices.append(device_properties_pb2.NamedDevice(name=name, properties=properties))
    _, seconds, _ = cluster.Cluster(devices=devices).MeasureCosts(item.Item(meta))
    return round(1e9 * seconds)


# -- scoring -------------------------------------------------------------------------------------------------------------


def score(folder: Path, names: Collection[str] = ()) -> dict[str, Any]:
    """For each model: over all placements, and within each workload, how its predictions compare with the measurements.

    Args:
        names: of workloads; all if none is named.
    """
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "measurements.sqlite")
        if (folder / "measurements.json").exists():
            store.add_missing(import_json(folder / "measurements.json"))
        models = {"auto": auto_model(store), "analytic": AnalyticModel()}
        pairs: dict[str, dict[str, tuple[list[float], list[float]]]] = {model: {} for model in MODELS}
        for path in sorted(folder.glob("*.json")):
            record = json.loads(path.read_text())
            if "cases" not in record or (names and record["workload"] not in names):
                continue
            measured = [1e6 * float(np.median(case["rounds_ms"])) for case in record["cases"].values()]
            for name, model in models.items():
                pairs[name][record["workload"]] = measured, predict(record, folder, model)
            told = [case["grappler_ns"] for case in record["cases"].values()]
            known = [k for k, estimate in enumerate(told) if estimate is not None]
            pairs["grappler"][record["workload"]] = [measured[k] for k in known], [told[k] for k in known]
    return {model: _scores(found) for model, found in pairs.items()}


@dataclass(frozen=True, eq=False)
class Prediction:
    """A placement as the models see it."""

    graph: OpGraph
    problem: PlacementProblem
    op_device: Any
    """[N]"""

    @property
    def assignment(self) -> Assignment:
        device = np.zeros(self.problem.units, np.int64)
        device[self.problem.op_unit] = self.op_device
        return Assignment(device)

    @property
    def step_ns(self) -> float:
        return float(self.problem.simulator.step_ns(self.assignment))

    @property
    def peak_bytes(self) -> list[int]:
        """By device."""
        return [int(peak) for peak in peaks(self.problem, self.assignment)]

    def held_bytes(self, device: int) -> int:
        """What of a device's peak is there before a step: variables, captures and arguments."""
        problem = self.problem
        made = [op.role == "argument" and d == device for op, d in zip(self.graph, self.op_device.tolist(), strict=True)]
        arguments = np.array(made, np.bool_)[problem.tensor_op] & ~problem.tensor_on_host[:, device]
        kept = problem.unit_persistent_bytes[self.assignment.device == device].sum()
        return int(kept + problem.held_bytes[arguments].sum())

    def op_times(self) -> Iterator[tuple[str, str, int]]:
        """Type, device and time in ns of each op that takes any."""
        times = self.problem.op_time_ns[np.arange(self.problem.ops), self.op_device]
        for op, device, time_ns in zip(self.graph, self.op_device.tolist(), times.tolist(), strict=True):
            if time_ns:
                yield op.op_type, self.problem.device_names[device], time_ns


def repeated(record: dict[str, Any]) -> float:
    """How well a measurement ranks placements as it does itself: Spearman's correlation of every other round with the rest.

    Placements that are alike are in no order, and no prediction can rank them better.
    """
    rounds = [case["rounds_ms"] for case in record["cases"].values()]
    return rank_correlation(*([float(np.median(each[k::2])) for each in rounds] for k in (0, 1)))


def predict(record: dict[str, Any], folder: Path, model: CostModel) -> list[float]:
    """Step times in ns of a record's cases, by the execution model over a cost model."""
    return [prediction.step_ns for prediction in predictions(record, folder, model)]


def predictions(record: dict[str, Any], folder: Path, model: CostModel) -> Iterator[Prediction]:
    """A record's cases."""
    machine = parse_machine(record["machine"])
    problems: dict[str, tuple[OpGraph, PlacementProblem]] = {}
    for case in record["cases"].values():
        key = case["graph"]
        if key not in problems:
            with gzip.open(folder / f"{key}.graph.json.gz", "rt") as file:
                graph = OpGraph.from_json(json.load(file))
            problems[key] = graph, formulate(graph, constrain(graph, machine, Options()), model, machine).problem
        graph, problem = problems[key]
        op_device = np.array([int(digit) for digit in case["devices"]])
        yield Prediction(graph, pageable(problem, graph, op_device, machine) if case.get("pageable") else problem, op_device)


@dataclass(frozen=True)
class Peak:
    """The most a GPU held in a step of a placement, in bytes."""

    workload: str
    label: str
    device: str
    measured: int
    estimate: int

    @property
    def error(self) -> float:
        """The estimate's: 0.2 where it is 20% too high."""
        return self.estimate / self.measured - 1 if self.measured else np.inf


def gpu_peaks(folder: Path) -> Iterator[Peak]:
    """Of all GPUs on which a placement has ops that hold anything, in TensorFlow's default configuration.

    Other copies of the workload were in the process, each with variables of its own. So what was measured is what a step took
    beyond all that was held before, and the placement's own variables and arguments.
    """
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        if "cases" not in record:
            continue
        cases = record["cases"].items()
        for (label, case), prediction in zip(cases, predictions(record, folder, AnalyticModel()), strict=True):
            for device in sorted({*prediction.op_device.tolist()} - {0}):
                gpu = prediction.problem.device_names[device]
                measured = case["peak_bytes"][gpu] - case["held_bytes"][gpu] + prediction.held_bytes(device)
                estimate = prediction.peak_bytes[device]
                if measured or estimate:
                    yield Peak(record["workload"], label, gpu, measured, estimate)


def pageable(problem: PlacementProblem, graph: OpGraph, op_device: Any, machine: Machine) -> PlacementProblem:
    """The problem of a function whose ops on the host make what they send in ordinary memory, as placed functions did once.

    What only hands on what it was given leaves it in the memory that it was in.
    """
    makes = np.array([op.role == "op" and op.op_type not in HANDING_ON for op in graph], np.bool_)
    made = (makes & (op_device == 0))[problem.tensor_op]
    slow = np.rint(problem.tensor_bytes * unpinned_factor(machine)).astype(np.int64)
    return replace(problem, tensor_copy_bytes=np.where(made, slow, problem.copied_bytes))


def _scores(pairs: dict[str, tuple[list[float], list[float]]]) -> dict[str, Any]:
    everything = (
        [np.concatenate([np.array(pair[k], np.float64) for pair in pairs.values()]) for k in (0, 1)]
        if pairs
        else [np.empty(0)] * 2
    )
    return {
        "all": asdict(Score.of(*everything)),
        "workloads": {name: asdict(Score.of(np.array(m), np.array(p))) for name, (m, p) in pairs.items()},
    }


@dataclass(frozen=True)
class Score:
    """Predicted against measured times."""

    placements: int
    spread: float
    """The longest measured time over the shortest."""
    rank_correlation: float
    """Spearman's."""
    median_error: float
    """Of |predicted / measured - 1|."""
    error_90: float
    """Its 90th percentile."""

    @classmethod
    def of(cls, measured: Any, predicted: Any) -> Score:
        if not len(measured):
            return cls(0, 1.0, 0.0, 0.0, 0.0)
        median, high = np.percentile(np.abs(predicted / measured - 1), (50, 90))
        return cls(
            len(measured),
            float(measured.max() / measured.min()),
            rank_correlation(measured, predicted),
            float(median),
            float(high),
        )


def rank_correlation(one: Any, other: Any) -> float:
    """Spearman's; 0 where one of the two is all the same."""
    ranks = [_ranks(np.asarray(values, np.float64)) for values in (one, other)]
    if min(rank.std() for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Any) -> Any:
    """Equal values share their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def report(scores: dict[str, Any]) -> str:
    """A table: one line a workload, then all together."""
    head = f"{'':26}{'n':>4}{'spread':>8}" + "".join(f"{model:>12}{'median':>8}{'90%':>8}" for model in scores)
    lines = [head]
    first = next(iter(scores.values()))
    for name in [*first["workloads"], "all"]:
        rows = [found["all"] if name == "all" else found["workloads"][name] for found in scores.values()]
        cells = "".join(
            f"{_rank(row):>12}{row['median_error']:>8.0%}{row['error_90']:>8.0%}" if row["placements"] else 28 * " "
            for row in rows
        )
        lines.append(f"{name:26}{rows[0]['placements']:>4}{rows[0]['spread']:>8.2f}{cells}")
    lines.append(
        "under each model's name: Spearman's rank correlation with what was measured; beside it, errors of the predicted times"
    )
    return "\n".join(lines)


def _rank(row: dict[str, Any]) -> str:
    return f"{row['rank_correlation']:.3f}" if row["spread"] >= WORTH_RANKING else "-"


if __name__ == "__main__":
    sys.exit(main())
