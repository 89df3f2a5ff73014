"""Random programs, pinned and placed at random, do what they do plain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import placer
from placer.graph.op_graph import OpNode
from placer.plan.verdict import MOVED
from placer.tf.devices import full_name
from placer.tf.run.compiling import compiled
from placer.tf.run.outcomes import outcome
from placer.tf.state.moving import move
from placer.tf.state.variables import Move
from placer.tf.trace.tracing import trace, traceable
from tests.helpers import harness
from tests.helpers.harness import (
    OTHER,
    Program,
    RandomLegal,
    races_alike,
    runs_alike,
    taped_outside,
    tuned_alike,
    with_tape_inside,
)
from tests.helpers.programs import Source, every_row, programs
from tests.helpers.racing import random_clock, random_races, random_trials


def random_pins(graph: placer.OpGraph, seed: int) -> dict[str, str]:
    """Devices demanded for a few ops that could be on either."""
    rng = np.random.default_rng(seed)
    types = {op.op_type for op in graph}  # a pin that is one speaks of all such ops
    free = [op.name for op in graph if op.role == "op" and not op.group and op.name not in types]
    return {str(name): str(rng.choice(runs_on(graph.op(name)))) for name in rng.permutation(free)[:3]}


def runs_on(op: OpNode) -> list[str]:
    return [device for device in ("CPU:0", OTHER) if device.partition(":")[0] in op.kernels]


def has_a_gradient(expected: dict[str, Any]) -> None:
    """TensorFlow cannot run the gradients of some programs, of loops without a round above all."""
    assume(not isinstance(expected.get("gradient 0"), Exception))


@settings(max_examples=max(100, settings().max_examples))
@given(programs(), st.integers(0, 99), st.booleans())
@example(every_row(), 0, False)
def test_placed_is_plain(source: Source, seed: int, inside: bool) -> None:
    def build() -> Program:
        return with_tape_inside(source.build()) if inside else source.build()

    plain = build()
    try:
        graph = placer.build_graph(plain.fn, *plain.args)
    except placer.TraceError:
        assume(not inside)  # there are programs whose gradient TensorFlow cannot trace
        raise
    pins = random_pins(graph, seed)
    ready = [replace(plain, plans={"pins": pins}), build()]  # the last one runs plain, the first one is traced already
    for placed in runs_alike(ready.pop, [RandomLegal(seed)], accept=has_a_gradient):
        assert pins.items() <= {op: plan.device for op, plan in placed.placement.ops.items()}.items()


@given(programs(), st.integers(0, 99), st.booleans())
@example(every_row(), 0, False)
def test_raced_is_plain(source: Source, seed: int, inside: bool) -> None:
    def build() -> Program:
        return with_tape_inside(source.build()) if inside else source.build()

    plain = build()
    try:
        placer.trace(plain.fn, *plain.args)
    except placer.TraceError:
        assume(not inside)
        raise
    races_alike(build, RandomLegal(seed), random_races(seed), accept=has_a_gradient)


@settings(max_examples=settings().max_examples // 2)
@given(programs(), st.booleans())
def test_compiled_is_plain_or_refused(source: Source, inside: bool) -> None:
    program = with_tape_inside(source.build()) if inside else source.build()
    assert not callable(program.state)
    for variable in program.state:
        move([Move(variable, full_name("CPU:0"))] if variable.device != full_name("CPU:0") else [])
    try:
        traced = trace(traceable(program.fn), *program.args, **program.kwargs)
        expected = outcome(traced.concrete, traced.concrete, program.args, program.kwargs)
    except (placer.TraceError, tf.errors.OpError):
        assume(False)
    run, reason = compiled(traced, "CPU:0", program.args, program.kwargs)
    assert (run is None) == bool(reason)
    if run is not None:
        assert expected.difference(outcome(run, traced.concrete, program.args, program.kwargs)) == ""


@settings(max_examples=settings().max_examples // 4)
@given(programs(), st.integers(0, 99), st.booleans())
def test_tuned_is_plain(source: Source, seed: int, inside: bool) -> None:
    def build() -> Program:
        return with_tape_inside(source.build()) if inside else source.build()

    plain = build()
    try:
        assume(not isinstance(harness.outcome(plain, traceable(plain.fn)), Exception))
        assume(inside or not isinstance(taped_outside(plain, traceable(plain.fn)), Exception))
    except placer.TraceError:
        assume(False)
    tuned_alike(build, RandomLegal(seed), random_clock(seed))


@settings(max_examples=max(20, settings().max_examples // 2))
@given(programs(), st.integers(0, 99))
@example(every_row(), 0)
def test_tried_with_variables_moved_is_plain(source: Source, seed: int) -> None:
    races_alike(lambda: replace(source.build(), gradients=False), RandomLegal(seed), random_trials(seed))


def test_variables_move_in_random_trials() -> None:
    """Otherwise the test above would show nothing."""
    used = set()
    for seed in range(6):

        def build() -> Program:
            x = tf.Variable([1.0, 2.0])
            return Program(fn=lambda: tf.tanh(x.assign_add([1.0, 1.0])), state=[x], gradients=False)

        placed = races_alike(build, RandomLegal(seed), random_trials(seed))
        used |= {plan.verdict.used for plan in placed.placements.values() if plan.verdict}
    assert any(name.endswith(MOVED) for name in used)


def test_every_candidate_of_a_random_race_runs() -> None:
    """Otherwise the test above would show nothing."""
    x = tf.Variable([1.0, 2.0])
    rows = []
    for seed in range(4):
        placed = races_alike(lambda: Program(fn=lambda: tf.tanh(x) + tf.sin(x), state=[x]), RandomLegal(seed), random_races(seed))
        rows += [row for plan in placed.placements.values() if plan.verdict for row in plan.verdict.candidates]
    assert len(rows) == 2 * 4 * 4  # calls without and with a tape
    assert {row.name for row in rows if row.calls} == {row.name for row in rows}
