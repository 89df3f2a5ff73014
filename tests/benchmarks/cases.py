"""The workloads of `bench_accuracy`, and their placements as functions that can be called."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cost_models.machines import Machine
from placer.graph.op_graph import OpGraph
from placer.graph.seen import Seen
from placer.placed.predict import random_cut
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator

if TYPE_CHECKING:
    from examples.workloads import Size, Workload
    from placer.plan.placement import Placement
    from placer.tf.trace.tracing import Trace
    from tests.helpers.model_parallel import Program

RANDOM_CUTS = 8
"""The most random cuts of a workload."""
HOST_BY_HAND = {
    "augmented_autoencoder": ("augment/*",),
    "camera_frames": ("Cast", "truediv", "resize/*"),
    "crf_tagger": ("while*",),
    "ctc_train": ("*ctc*",),
    "gaussian_process_training": ("*Cholesky*", "*Triangular*"),
    "policy_rollout": ("*while*",),
    "rows_of_a_dataset": ("GatherV2",),
    "svd_then_matmul": ("Svd",),
}
"""By workload, the ops that an expert would keep on the host, by name or type; the others are on the last device."""


def workloads(field: Path | None = None) -> dict[str, Callable[[Size], Workload]]:
    """By name, a function that builds a workload. The encoder has three of its twelve layers, which are all alike.

    Args:
        field: a folder, whose file `field.py` has more of them.
    """
    from examples.workloads import encoder_training
    from tests.benchmarks.bench_step_time import BUILDERS
    from tests.benchmarks.more_workloads import MORE
    from tests.benchmarks.public_situations import PUBLIC

    parts = {name: partial(_work_of, make) for name, make in programs().items()}
    own = {**BUILDERS, "encoder": partial(encoder_training, layers=3), **MORE, **PUBLIC, **parts}
    return {**own, **(field_steps(field) if field else {})}


def field_steps(folder: Path) -> dict[str, Callable[[Size], Workload]]:
    """The workloads of a folder's file `field.py`, which have one size.

    The dictionary `W` of the file has functions, each of which returns a `tf.function` and the arguments of a call.
    """
    from examples.workloads import Workload

    spec = importlib.util.spec_from_file_location("field", folder / "field.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.lib()

    def build(name: str, _: Size) -> Workload:
        return Workload(*module.W[name](), (), trains=False)

    return {name: partial(build, name) for name in module.W}


def programs() -> dict[str, Callable[[Size], Program]]:
    """Programs for several GPUs, whose parts an expert would share among the GPUs."""
    from tests.helpers import model_parallel

    return {"mlp_40_training": model_parallel.mlp_training, "towers_2_training": model_parallel.towers}


def _work_of(make: Callable[[Size], Program], size: Size) -> Workload:
    return make(size).work


def cases(name: str, size: Size, machine: Machine, field: Path | None = None) -> Iterator[Case]:
    """The placements of a workload, the most important ones first; of equal plans only the first."""
    import tensorflow as tf

    import placer
    from placer.tf.trace.tracing import trace
    from tests.benchmarks.bench_step_time import BY_HAND
    from tests.benchmarks.bench_step_time import on_cpu as called_on_cpu

    build: Callable[..., Workload] = partial(workloads(field)[name], size)
    program = programs()[name](size) if name in programs() else None
    work = program.work if program else build()
    yield Case.as_it_is("default", work, machine, solver="tf_default")
    with tf.device("/CPU:0"):
        all_cpu = Case.as_it_is("all_cpu", build(), machine, solver="all_cpu")
    yield replace(all_cpu, run=called_on_cpu(all_cpu.run))
    if name in BY_HAND and tf.config.list_logical_devices("GPU"):
        yield Case.as_it_is("hand", build(by_hand=True), machine, solver="tf_default")
    traced = trace(work.fn, *work.args)
    graph = placer.build_graph(traced, seen=seen_in_a_run(work))
    by_hand: list[tuple[str, dict[str, Any]]] = []
    if program and len(machine.devices) > 2:
        by_hand = [("hand", {"solver": partial(best_by_hand, program, graph)})]
    elif name in HOST_BY_HAND:
        by_hand = [("hand", {"solver": partial(some_on_host, graph, HOST_BY_HAND[name])})]
    plan, *others = placements()
    seen = set()
    for label, options in [plan, *by_hand, *others]:
        case = moved(build(), machine) if label == "moved" else Case.of(label, work, traced, graph, machine, **options)
        if case.devices not in seen:
            seen.add(case.devices)
            yield case


def some_on_host(graph: OpGraph, patterns: Sequence[str], problem: PlacementProblem) -> Assignment:
    """Ops whose name or type matches a pattern on the first device, the others on the last one, where allowed."""
    on_host = [any(fnmatchcase(text, p) for p in patterns for text in (op.name, op.op_type)) for op in graph]
    wanted = np.full(problem.num_units, problem.num_devices - 1)
    wanted[problem.ops.unit[np.array(on_host, np.bool_)]] = 0
    allowed = problem.units.allowed
    return Assignment(np.where(allowed[np.arange(problem.num_units), wanted], wanted, allowed.argmax(axis=1)))


def seen_in_a_run(work: Workload) -> Seen | None:
    """What a run of the function has that its graph leaves open; None if the graph leaves nothing open."""
    import placer
    from placer.tf.run.learning import may_be_undecided
    from placer.tf.trace.known_sizes import KnownSizes
    from placer.tf.trace.tracing import trace

    traced = trace(work.fn, *work.args)
    if not may_be_undecided(traced, KnownSizes(traced)):
        return None
    return placer.place(work.fn, race="off", variables="fixed").learn(*work.args)


def moved(work: Workload, machine: Machine) -> Case:
    """The plan that may move variables, which it does. The function must have variables of its own."""
    import placer

    placed = placer.place(work.fn, devices=machine, variables="move", race="off")
    if seen_in_a_run(work):
        placed.learn(*work.args)
    prepared = placed.prepare(*work.args)
    return Case("moved", work, prepared.plan, prepared.run, prepared.run)


def best_by_hand(program: Program, graph: OpGraph, problem: PlacementProblem) -> Assignment:
    """The split of the least predicted step in which each GPU has a contiguous share of the parts."""
    from tests.helpers.model_parallel import by_hand

    return min(by_hand(program, graph, problem), key=Simulator(problem).step_ns)


def placements() -> Iterator[tuple[str, dict[str, Any]]]:
    """The labels and options of the plans beside TensorFlow's default and all on the CPU."""
    yield "plan", {}
    yield "moved", {"variables": "move"}
    for seed in range(3):
        yield f"random_{seed}", {"solver": partial(random_cut, seed=seed)}
    yield "total_cost", {"objective": "total_cost"}
    yield "heft", {"solver": "heft"}
    yield "greedy", {"solver": "greedy"}
    for seed in range(3, RANDOM_CUTS):
        yield f"random_{seed}", {"solver": partial(random_cut, seed=seed)}


@dataclass(frozen=True)
class Case:
    """A workload under one placement, with the function to call and the plan to predict it by."""

    label: str
    work: Workload
    placement: Placement
    """The plan that its prediction comes from."""
    placed: Any
    """The placed ConcreteFunction."""
    run: Any
    """The function that is measured."""

    @classmethod
    def of(cls, label: str, work: Workload, traced: Trace, graph: OpGraph, machine: Machine, **options: Any) -> Case:
        """The function, run by the plan of these options."""
        import placer
        from placer.plan.call_plan import CallPlan
        from placer.tf.rewrite.rewriting import rewrite_by_plan
        from placer.tf.run.exhausted import report

        placement = placer.solve(graph, machine, **options)
        run = rewrite_by_plan(traced, CallPlan.of(placement), report)
        return cls(label, work, placement, run, run)

    @classmethod
    def as_it_is(cls, label: str, work: Workload, machine: Machine, **options: Any) -> Case:
        """The function itself, as a ConcreteFunction: the Python part of a `tf.function` call is the same for every placement."""
        import placer
        from placer.tf.trace.tracing import trace

        traced = trace(work.fn, *work.args)
        seen = seen_in_a_run(work)
        case = cls.of(label, work, traced, placer.build_graph(traced, seen=seen), machine, **options)
        placement = placer.solve(as_traced(work, seen), machine, **options)
        return replace(case, placement=placement, run=work.fn.get_concrete_function(*work.args))

    @property
    def args(self) -> tuple[Any, ...]:
        return self.work.args

    @property
    def graph(self) -> OpGraph:
        return self.placement.graph

    @property
    def devices(self) -> str:
        """A digit for each op: the position of its device in the machine."""
        number = {name: str(k) for k, name in enumerate(self.placement.devices)}
        return "".join(number[plan.device] for plan in self.placement.ops.values())

    @property
    def predicted_ms(self) -> float:
        return self.placement.step_time_ns / 1e6

    @property
    def predicted_peak_bytes(self) -> dict[str, int]:
        """By device."""
        return {name: total.peak_bytes for name, total in self.placement.totals.items()}


def as_traced(work: Workload, seen: Seen | None = None) -> OpGraph:
    """The graph of a function as TensorFlow runs it: a loop reads its variables in each round, not once before it."""
    import placer
    from placer.tf.trace.tracing import trace

    traced = trace(work.fn, *work.args)
    for body in traced.root.walk():
        body.hoists.clear()
        body.hoisted.clear()
    return placer.build_graph(traced, seen=seen)


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
