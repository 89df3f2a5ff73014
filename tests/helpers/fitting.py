"""Training steps that do not fit where TensorFlow would put them, with the split that an expert would write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import tensorflow as tf

from placer.plan.placement import Placement
from tests.helpers.copies import copies

RATE = 1e-2
At = Callable[[str], AbstractContextManager[Any]]
"""A device scope for each named part of a program; a scope that asks for nothing where devices are to be found."""


@dataclass(frozen=True)
class Program:
    """A step that trains a model: ``make(at)`` gives the function and the variables."""

    make: Callable[[At], tuple[Callable[..., Any], list[tf.Variable]]]
    given: Callable[[], tuple[tf.Tensor, ...]]
    """Makes the arguments."""
    limit_bytes: int | None
    """What each of the fast devices may hold; None for all it has."""
    hand: Mapping[str, int]
    """By part: which fast device, or -1 for the host."""
    fast: int = 1
    """How many fast devices it is for."""

    @cached_property
    def args(self) -> tuple[tf.Tensor, ...]:
        return self.given()


def _initial(shape: Sequence[int], seed: int) -> Callable[[], tf.Tensor]:
    """The same numbers on each device."""
    scale = (6 / sum(shape)) ** 0.5
    return lambda: tf.random.stateless_uniform(shape, [seed, 7], -scale, scale)


def _data(shape: Sequence[int], seed: int) -> tf.Tensor:
    with tf.device("CPU:0"):
        return tf.random.stateless_uniform(shape, [seed, 11], -1.0, 1.0)


def _pair(batch: int, width: int) -> Callable[[], tuple[tf.Tensor, ...]]:
    return lambda: (_data([batch, width], 1), _data([batch, width], 2))


@dataclass
class _Chain:
    """Layers one after the other, each with the name of its part. The gradient of each is taken in its part's scope."""

    at: At
    parts: list[str]
    weights: list[tf.Variable]
    taken: list[tuple[tf.GradientTape, Any, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, at: At, parts: Sequence[str], widths: Sequence[int], seed: int) -> _Chain:
        weights = []
        for i, (part, shape) in enumerate(zip(parts, pairwise(widths), strict=True)):
            with at(part):
                weights.append(tf.Variable(_initial(shape, seed + i), name=f"{part}_w{i}"))
        return cls(at, list(parts), weights)

    def forward(self, x: Any) -> Any:
        self.taken = []
        for part, w in zip(self.parts, self.weights, strict=True):
            with self.at(part), tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.tanh(tf.matmul(x, w))
            self.taken.append((tape, x, y))
            x = y
        return x

    def backward(self, dy: Any, update: Callable[[str, tf.Variable, Any], None]) -> Any:
        for part, w, (tape, x, y) in reversed(list(zip(self.parts, self.weights, self.taken, strict=True))):
            with self.at(part):
                dy, dw = tape.gradient(y, [x, w], output_gradients=dy)
            update(part, w, dw)
        return dy


def _squared(at: At, part: str, y: Any, target: Any) -> tuple[Any, Any]:
    with at(part):
        error = y - target
        return tf.reduce_mean(error * error), error * (2.0 / tf.cast(tf.size(error), tf.float32))


def recommender(tables: int, rows: int, columns: int, width: int, batch: int, limit_bytes: int) -> Program:
    """Embeddings, larger than a fast device in all, below a few layers; each row that was looked up is updated."""

    def make(at: At) -> Any:
        emb = []
        for i in range(tables):
            with at("tables"):
                emb.append(tf.Variable(_initial([rows, columns], i), name=f"table{i}"))
        chain = _Chain.of(at, ["top"] * 3, [tables * columns, width, width, 1], 100)

        def step(ids: Any, labels: Any) -> Any:
            with at("tables"):
                found = [tf.gather(table, ids[:, i]) for i, table in enumerate(emb)]
            with at("top"):
                x = tf.concat(found, axis=1)
            loss, dy = _squared(at, "top", chain.forward(x), labels)

            def update(part: str, w: tf.Variable, dw: Any) -> None:
                with at(part):
                    w.assign_sub(RATE * dw)

            dx = chain.backward(dy, update)
            with at("top"):
                parts = tf.split(dx, tables, axis=1)
            with at("tables"):
                for i, (table, rows_dx) in enumerate(zip(emb, parts, strict=True)):
                    table.scatter_sub(tf.IndexedSlices(RATE * rows_dx, ids[:, i]))
            return loss

        return step, [*emb, *chain.weights]

    def given() -> Any:
        with tf.device("CPU:0"):
            ids = tf.random.stateless_uniform([batch, tables], [3, 5], 0, rows, tf.int32)
        return ids, _data([batch, 1], 1)

    return Program(make, given, limit_bytes, {"tables": -1, "top": 0})


def deep(layers: int, width: int, batch: int, limit_bytes: int) -> Program:
    """A chain of equal layers, larger than one of two fast devices."""

    def make(at: At) -> Any:
        chain = _Chain.of(at, [f"layer{i}" for i in range(layers)], [width] * (layers + 1), 0)

        def step(x: Any, target: Any) -> Any:
            loss, dy = _squared(at, f"layer{layers - 1}", chain.forward(x), target)

            def update(part: str, w: tf.Variable, dw: Any) -> None:
                with at(part):
                    w.assign_sub(RATE * dw)

            chain.backward(dy, update)
            return loss

        return step, chain.weights

    hand = {f"layer{i}": 2 * i // layers for i in range(layers)}
    return Program(make, _pair(batch, width), limit_bytes, hand, fast=2)


def towers(layers: int, width: int, narrow: int, batch: int) -> Program:
    """Two chains of equal layers, narrow at both ends, that meet at the last."""
    widths = [narrow, *[width] * (layers - 1), narrow]

    def make(at: At) -> Any:
        chains = [_Chain.of(at, [tower] * layers, widths, 50 * i) for i, tower in enumerate(("left", "right"))]

        def step(x: Any, target: Any) -> Any:
            left, right = (chain.forward(x) for chain in chains)
            with at("left"):
                y = left + right
            loss, dy = _squared(at, "left", y, target)

            def update(part: str, w: tf.Variable, dw: Any) -> None:
                with at(part):
                    w.assign_sub(RATE * dw)

            for chain in chains:
                chain.backward(dy, update)
            return loss

        return step, [w for chain in chains for w in chain.weights]

    return Program(make, _pair(batch, narrow), None, {"left": 0, "right": 1}, fast=2)


def adam(layers: int, width: int, batch: int, limit_bytes: int) -> Program:
    """A chain of equal layers that fits a fast device without the optimizer's two slots for each weight."""

    def make(at: At) -> Any:
        chain = _Chain.of(at, ["net"] * layers, [width] * (layers + 1), 0)
        slots = {}
        for w in chain.weights:
            with at("slots"):
                slots[w.ref()] = [tf.Variable(lambda w=w: tf.zeros(w.shape), name=f"{w.name[:-2]}_{slot}") for slot in "mv"]

        def step(x: Any, target: Any) -> Any:
            loss, dy = _squared(at, "net", chain.forward(x), target)

            def update(_: str, w: tf.Variable, dw: Any) -> None:
                m, v = slots[w.ref()]
                with at("slots"):
                    change = m.assign(0.9 * m + 0.1 * dw) / (tf.sqrt(v.assign(0.99 * v + 0.01 * dw * dw)) + 1e-3)
                    change = RATE * change
                with at("net"):
                    w.assign_sub(change)

            chain.backward(dy, update)
            return loss

        return step, [*chain.weights, *(slot for pair in slots.values() for slot in pair)]

    hand = {"net": 0, "slots": -1}
    return Program(make, _pair(batch, width), limit_bytes, hand)


def giant(width: int, wide: int, batch: int, limit_bytes: int) -> Program:
    """Three layers of which the middle one alone is larger than the fast device."""

    def make(at: At) -> Any:
        chain = _Chain.of(at, ["small", "giant", "giant", "small"], [width, width, wide, width, width], 0)

        def step(x: Any, target: Any) -> Any:
            loss, dy = _squared(at, "small", chain.forward(x), target)

            def update(part: str, w: tf.Variable, dw: Any) -> None:
                with at(part):
                    w.assign_sub(RATE * dw)

            chain.backward(dy, update)
            return loss

        return step, chain.weights

    return Program(make, _pair(batch, width), limit_bytes, {"small": 0, "giant": -1})


def crossings(placement: Placement, partitions: Sequence[Any]) -> dict[str, int]:
    """Bytes by tensor, as `Placement.transfers` names it, that TensorFlow sent between devices in a call.

    Args:
        placement: the plan of the call, which was the first of its function.
        partitions: what `placer.tf._private.runtime.recorded_partitions` collected.
    """
    found: Counter[str] = Counter()
    for tensor, _, _ in (copy for function in partitions for copy in copies(function.partition_graphs)):
        made, _, index = tensor.rpartition(":")
        found[tensor] += placement.graph.op(made).signature.outputs[int(index)].nbytes
    return dict(found)


KIB, MIB = 2**10, 2**20
SMALL: dict[str, Callable[[], Program]] = {
    "recommender": lambda: recommender(4, 40_000, 32, 512, 256, 8 * MIB),
    "adam": lambda: adam(3, 512, 256, 12 * MIB),
    "giant": lambda: giant(1_024, 4_096, 128, 15 * MIB),
    "deep": lambda: deep(8, 256, 64, 1_950 * KIB),
    "forty": lambda: deep(40, 64, 32, 600 * KIB),
    "towers": lambda: towers(4, 512, 64, 256),
}
FULL: dict[str, Callable[[], Program]] = {
    "recommender": lambda: recommender(6, 2_000_000, 64, 2_048, 8_192, 2_048 * MIB),
    "adam": lambda: adam(8, 2_048, 1_024, 400 * MIB),
    "giant": lambda: giant(1_024, 262_144, 256, 1_024 * MIB),
    "deep": lambda: deep(16, 4_096, 1_024, 1_024 * MIB),
    "forty": lambda: deep(40, 2_048, 2_048, 890 * MIB),  # 60% of what it holds, beside the reserve
    "towers": lambda: towers(8, 4_096, 256, 2_048),
}
