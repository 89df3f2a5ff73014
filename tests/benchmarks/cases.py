"""The workloads of `bench_accuracy`, and their placements as functions that can be called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cost_models.machines import Machine
from placer.graph.op_graph import OpGraph
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


def workloads() -> dict[str, Callable[[Size], Workload]]:
    """By name, a function that builds a workload. The encoder has three of its twelve layers, which are all alike."""
    from examples.workloads import encoder_training
    from tests.benchmarks.bench_step_time import BUILDERS
    from tests.benchmarks.more_workloads import MORE

    parts = {name: partial(_work_of, make) for name, make in programs().items()}
    return {**BUILDERS, "encoder": partial(encoder_training, layers=3), **MORE, **parts}


def programs() -> dict[str, Callable[[Size], Program]]:
    """Programs for several GPUs, whose parts an expert would share among the GPUs."""
    from tests.helpers import model_parallel

    return {"mlp_40_training": model_parallel.mlp_training, "towers_2_training": model_parallel.towers}


def _work_of(make: Callable[[Size], Program], size: Size) -> Workload:
    return make(size).work


def cases(name: str, size: Size, machine: Machine) -> Iterator[Case]:
    """The placements of a workload, the most important ones first; of equal plans only the first."""
    import tensorflow as tf

    import placer
    from placer.tf.trace.tracing import trace
    from tests.benchmarks.bench_step_time import BY_HAND
    from tests.benchmarks.bench_step_time import on_cpu as called_on_cpu

    build: Callable[..., Workload] = partial(workloads()[name], size)
    program = programs()[name](size) if name in programs() else None
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
    """The split of the least predicted step in which each GPU has a contiguous share of the parts."""
    from tests.helpers.model_parallel import by_hand

    return min(by_hand(program, graph, problem), key=Simulator(problem).step_ns)


def placements() -> Iterator[tuple[str, dict[str, Any]]]:
    """The labels and options of the plans beside TensorFlow's default and all on the CPU."""
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


def as_traced(work: Workload) -> OpGraph:
    """The graph of a function as TensorFlow runs it: a loop reads its variables in each round, not once before it."""
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
