"""Programs in parts that want several devices, and how an expert would spread the parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cost_models.machines import Machine
from examples.workloads import Size, Workload, encoder_training
from placer.graph.op_graph import OpGraph
from placer.problem.arrays import Ints
from placer.problem.memory import peaks
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.one_kind import all_on
from tests.helpers.changed import changed
from tests.helpers.machines import four_gpus, two_gpus

Where = Callable[[int], str] | None
"""The device to make the variables of a part on."""


@dataclass(frozen=True)
class Program:
    """A function whose variables, and most ops, are named by the part they belong to."""

    work: Workload
    parts: int
    part_of: Callable[[str], int | None]
    """By name; None for what belongs to no part."""


def mlp_training(size: Size = "full", where: Where = None) -> Program:
    """A training step of a chain of 40 layers, 8 where small, narrow at both ends; a part is a layer."""
    layers, width, batch, narrow = (40, 2048, 4096, 256) if size == "full" else (8, 256, 64, 8)
    sides = [narrow, *[width] * (layers - 1), narrow]
    weights = [_weights(k, where, sides[k], sides[k + 1]) for k in range(layers)]

    def predict(x: Any) -> Any:
        for k, w in enumerate(weights):
            with tf.name_scope(f"part_{k}"):
                x = tf.nn.relu(x @ w)
        return x

    return Program(_descent(predict, weights, (_normal(batch, narrow), _normal(batch, narrow, seed=1))), layers, _numbered_part)


def towers(size: Size = "full", where: Where = None, *, count: int = 2, trains: bool = True, rows: int = 0) -> Program:
    """Chains of 6 wide layers side by side, 3 where small, narrow at both ends, their results added up; a part is a tower.

    Args:
        rows: of an embedding table, whose lookups go into all towers.
    """
    layers, width, batch, narrow = (6, 8192 // count, 4096, 256) if size == "full" else (3, 256, 64, 8)
    sides = [narrow, *[width] * (layers - 1), narrow]
    weights = [[_weights(k, where, *sides[i : i + 2]) for i in range(layers)] for k in range(count)]
    table = [tf.Variable(tf.zeros([rows, narrow]), name="table")] if rows else []

    def predict(x: Any) -> Any:
        x = tf.gather(table[0], x) if rows else x
        ends = []
        for k, tower in enumerate(weights):
            with tf.name_scope(f"part_{k}"):
                y = x
                for w in tower:
                    y = tf.nn.relu(y @ w)
                ends.append(y)
        return tf.add_n(ends)

    x = tf.range(batch) % rows if rows else _normal(batch, narrow)
    state = [*table, *(w for tower in weights for w in tower)]
    if trains:
        return Program(_descent(predict, state, (x, _normal(batch, narrow, seed=1))), count, _numbered_part)
    return Program(Workload(tf.function(predict), (x,), tuple(state), trains=False), count, _numbered_part)


def encoder(size: Size = "full") -> Program:
    """A training step with Adam of a Keras encoder; a part is a layer."""
    keras.utils.clear_session(free_memory=False)  # names count from the start
    layers = 12 if size == "full" else 2

    def part_of(name: str) -> int | None:
        found = re.fullmatch(r"(?:adam/)?(multi_head_attention|layer_normalization|dense)(?:_(\d+))?[_/].*", name)
        if found is None or "functional" in name:
            return None
        return min(layers - 1, int(found[2] or 0) // (1 if found[1] == "multi_head_attention" else 2))

    return Program(encoder_training(size), layers, part_of)


@dataclass(frozen=True)
class Case:
    """A program on a machine whose GPUs may each hold a share of what one would need for all of it."""

    program: Callable[[Size], Program]
    machine: Callable[[], Machine]
    share: float | None = None


CASES = {
    "towers_2_prediction": Case(partial(towers, trains=False), two_gpus),
    "towers_2_training": Case(towers, two_gpus),
    "mlp_40_training": Case(mlp_training, two_gpus, 0.6),
    "table_and_towers_2_training": Case(partial(towers, rows=1_000_000), two_gpus, 0.6),
    "towers_8_training": Case(partial(towers, count=8), four_gpus),
    "mlp_40_training_on_4": Case(mlp_training, four_gpus, 0.3),
    "encoder_training": Case(encoder, two_gpus, 0.6),
}


def on_gpus(problem: PlacementProblem) -> list[int]:
    return [d for d, kind in enumerate(problem.devices.kinds) if kind == "GPU"]


def limited(problem: PlacementProblem, share: float) -> PlacementProblem:
    """Each GPU may hold this share of what the first would, were everything there."""
    need = int(peaks(problem, all_on(problem, "GPU"))[on_gpus(problem)[0]])
    limits = [int(share * need) if kind == "GPU" else -1 for kind in problem.devices.kinds]
    return changed(problem, devices_memory_limit_bytes=np.array(limits))


def parts_of(program: Program, graph: OpGraph, problem: PlacementProblem) -> Ints:
    """[U]: the part that a unit's names tell, else that of what takes its results, else of what gives its inputs, else -1."""
    named = [program.part_of(graph.resources[op.resource].name if op.resource else op.name) for op in graph]
    part = np.full(problem.num_units, -1)
    np.maximum.at(part, problem.ops.unit, [-1 if k is None else k for k in named])
    maker = problem.ops.unit[problem.tensors.op[problem.consumers.tensor]]
    user = problem.ops.unit[problem.consumers.op]
    backwards = np.argsort(-problem.consumers.op, kind="stable").tolist()
    for a, b, order in ((maker, user, backwards), (user, maker, backwards[::-1])):
        for k in order:
            if part[a[k]] < 0:
                part[a[k]] = part[b[k]]
    return part


def by_hand(program: Program, graph: OpGraph, problem: PlacementProblem) -> Iterator[Assignment]:
    """Parts in contiguous shares for each GPU, at every boundary where there are two, in equal shares where there are more.

    What belongs to no part, such as a table that all share, is on any one device.
    """
    part, gpus = parts_of(program, graph, problem), np.array(on_gpus(problem))
    shared = np.zeros(problem.num_units, np.bool_)
    for i, op in enumerate(graph):
        if op.resource and program.part_of(graph.resources[op.resource].name) is None:
            shared[problem.ops.unit[i]] = True
    equal = [tuple(program.parts * k // len(gpus) for k in range(1, len(gpus)))]
    for bounds in [(k,) for k in range(1, program.parts)] if len(gpus) == 2 else equal:
        device = gpus[np.searchsorted(bounds, np.maximum(part, 0), side="right")]
        for home in range(problem.num_devices) if shared.any() else (0,):
            wanted = np.where(shared, home, device)
            able = problem.units.allowed[np.arange(problem.num_units), wanted]
            yield Assignment(np.where(able, wanted, problem.units.allowed.argmax(axis=1)))


def _numbered_part(name: str) -> int | None:
    found = re.search(r"part_(\d+)", name)
    return int(found[1]) if found else None


def _weights(part: int, where: Where, *shape: int) -> Any:
    """Zeros where large: those are only traced."""
    with tf.device(where(part)) if where else nullcontext():
        initial = tf.zeros(shape) if max(shape) > 1000 else _normal(*shape, seed=part) / shape[0] ** 0.5
        return tf.Variable(initial, name=f"part_{part}")


def _descent(predict: Callable[[Any], Any], weights: Sequence[Any], batch: tuple[Any, ...]) -> Workload:
    """A step of gradient descent on the squared error; gives the error."""

    def step(x: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(predict(x) - wanted))
        for w, gradient in zip(weights, tape.gradient(error, weights), strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                w.scatter_sub(tf.IndexedSlices(0.01 * gradient.values, gradient.indices))
            else:
                w.assign_sub(0.01 * gradient)
        return error

    return Workload(tf.function(step), batch, tuple(weights), trains=True)


def _normal(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape, np.float32))
