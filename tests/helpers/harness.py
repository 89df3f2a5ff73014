"""Runs a function plain and placed, and compares all that can be told apart: the one harness of every semantics test.

A test hands over a *builder*: called anew for each run, it returns a `Program` with variables of its own, so that the plain
run and every placed run start from the same state.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from cost_models.machines import Machine
from placer.placed.function import PlacedFunction
from placer.placed.tuned import Tuned
from placer.plan.placement import Placement
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.validate import validate
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Solver
from placer.tf.rewrite.rewriting import rewrite
from placer.tf.trace.kernels import KernelIndex
from placer.tf.trace.tracing import Trace, trace, traceable
from tests.helpers.machines import two_cpus

GPU_HERE = bool(tf.config.list_physical_devices("GPU"))
DEVICES = "h100" if GPU_HERE else two_cpus()
"""What is split between: the GPU and its host where there is one, else two CPU devices."""
OTHER = "GPU:0" if GPU_HERE else "CPU:1"
"""The device beside CPU:0."""
CALLS = 3
"""Calls of a program before its state is compared."""
GRADIENTS = 1
"""Gradients of calls, which are taken after these."""
RACED_CALLS, RACED_GRADIENTS = 8, 5
"""Both, of a function whose calls race."""
EFFORT = 100
"""Of searches for plans, except those of `plan`: every plan must do what the plain function does, not only the best one."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A function with what it is called with and what it changes."""

    fn: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    state: Sequence[tf.Variable] | Callable[[], Any] = ()
    """What is compared after the calls: variables, or a function that reads tables, queues and the like."""
    log: Sequence[Any] = ()
    """What callbacks of `fn` append to: side effects, in order."""
    gradients: bool = True
    """False where its gradients make no sense (it takes them itself, or counts calls)."""
    raises: bool = True
    """False where a call must not raise, placed or plain."""
    random: bool = False
    """Its results are compared by structure, shape and dtype only: they come from a generator that cannot be seeded."""
    tolerance: float = 1e-4 if GPU_HERE else 1e-5
    """What floats may differ by, those of half the length by a hundredth: devices sum in different orders."""
    plans: dict[str, Any] = field(default_factory=dict)
    """Options for planning, such as pins."""


Builder = Callable[[], Program]


@dataclass(frozen=True)
class RandomLegal:
    """Each unit on any device that it may use: every such assignment must run and give the same results."""

    seed: int
    name: str = "random"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        return ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        started = time.perf_counter()
        rng = np.random.default_rng(self.seed)
        chosen = Assignment(np.array([rng.choice(np.flatnonzero(row)) for row in problem.units.allowed], np.int64))
        solution = answer(problem, objective, chosen, solver=self.name, started=started, stop_detail="one draw")
        report = validate(problem, chosen)
        assert report.ok, report.violations
        return solution

    def cite(self) -> str:
        return ""


SPLITS: tuple[Solver | str, ...] = ("auto", RandomLegal(0))


# -- the checks --------------------------------------------------------------------------------------------------------


def check(build: Builder, solvers: Sequence[Solver | str] = SPLITS) -> None:
    """Everything that must hold for a function that can run here; see `plans`, `runs_alike` and `with_tape_inside`."""
    elsewhere = build()
    traced = trace(traceable(elsewhere.fn), *elsewhere.args, **elsewhere.kwargs)
    graph = placer.build_graph(traced)
    for machine in ("h100", "2xh100"):
        _plan(graph, machine, {"effort": EFFORT, **elsewhere.plans})
    has_kernels_where_it_is_sent(traced, graph, "h100", elsewhere.plans)
    runs_alike(build, solvers)
    if build().gradients:
        inside = with_tape_inside(build())
        try:
            traced = trace(inside.fn, *inside.args)
        except placer.TraceError:
            pass  # it has no gradient, plain or placed
        else:
            has_kernels_where_it_is_sent(traced, placer.build_graph(traced), "h100", inside.plans)
        runs_alike(lambda: with_tape_inside(build()), [RandomLegal(1)])


def plan(program: Program, machine: str | Machine = "h100", **options: Any) -> Placement:
    """The plan for a machine that is elsewhere, every op of it on a device that has a kernel for it.

    Where arguments and variables are in this process has no part in it.
    """
    return _plan(placer.build_graph(program.fn, *program.args, **program.kwargs), machine, {**program.plans, **options})


def _plan(graph: placer.OpGraph, machine: str | Machine, options: dict[str, Any]) -> Placement:
    placement = placer.solve(replace(graph, process_devices=()), machine, **options)
    assert list(placement.ops) == [op.name for op in graph]
    for op in graph:
        kind = placement.ops[op.name].device.partition(":")[0]
        assert kind in op.kernels, f"{op.name} ({op.op_type}) is planned for a {kind} and has no such kernel"
    return placement


def has_kernels_where_it_is_sent(traced: Trace, graph: placer.OpGraph, machine: str, options: dict[str, Any]) -> None:
    """Rewritten to a random legal plan for a machine that need not be here, no op, added or not, lacks a kernel there."""
    placement = placer.solve(graph, machine, **{**options, "solver": RandomLegal(2)})
    full = {name: f"/job:localhost/replica:0/task:0/device:{op.device}" for name, op in placement.ops.items()}
    written = rewrite(traced, full).graph.as_graph_def()
    nodes = [*written.node, *(n for f in written.library.function if "_placed_" in f.signature.name for n in f.node_def)]
    for node in nodes:
        kind = tf.DeviceSpec.from_string(node.device).device_type
        kernels = KernelIndex.shared().lookup(node).kernels
        assert not kind or kind in kernels, f"{node.name} ({node.op}) is on a {kind} and has no such kernel"


def runs_alike(
    build: Builder, solvers: Sequence[Solver | str] = SPLITS, accept: Callable[[dict[str, Any]], None] = lambda expected: None
) -> list[PlacedFunction]:
    """Placed on two devices with soft placement off, it does what the plain function does, where the plan says; so does the
    plain function afterwards. Returns the placed functions, one for each solver.

    Args:
        build: the program.
        solvers: of the plans.
        accept: called with the behaviour of the plain function; raises where that leaves nothing to compare.
    """
    reference = build()
    plain = traceable(reference.fn)
    expected = behaviour(reference, plain)
    accept(expected)
    raises = isinstance(outcome(reference, plain), Exception)  # the call that is observed below
    later = behaviour(reference, plain)
    found = []
    for solver in solvers:
        program = build()
        placed = placer.place(program.fn, **{"devices": DEVICES, "solver": solver, "effort": EFFORT, **program.plans})
        plain = traceable(program.fn)
        before = node_defs(plain, program) if plain is program.fn else {}
        label = f"placed by {solver}"
        with soft_placement(False):
            compare(label, expected, behaviour(program, placed), program)
            observes_as_planned(label, program, placed, raises)
        after = node_defs(plain, program) if before else {}
        for name in before | after:
            assert after.get(name) == before.get(name), f"{label}: placing changed {name} of the plain function"
        compare(f"plain, after it was {label}", later, behaviour(program, plain), program)
        found.append(placed)
    return found


def races_alike(
    build: Builder,
    solver: Solver | str,
    race: AbstractContextManager[None],
    accept: Callable[[dict[str, Any]], None] = lambda expected: None,
) -> PlacedFunction:
    """While its calls race, and after the races, it does what the plain function does. Returns the placed function.

    Args:
        build: the program.
        solver: of the plan.
        race: decides the races.
        accept: see `runs_alike`.
    """
    reference, program = build(), build()
    expected = behaviour(reference, traceable(reference.fn), RACED_CALLS, RACED_GRADIENTS)
    accept(expected)
    options = {"devices": DEVICES, "solver": solver, "learn_sizes": False, "race": "force", "effort": EFFORT, **program.plans}
    placed = placer.place(program.fn, **options)
    with race:  # with soft placement, without which TensorFlow refuses some functions that placed ones run
        compare("raced", expected, behaviour(program, placed, RACED_CALLS, RACED_GRADIENTS), program)
    return placed


def tuned_alike(build: Builder, solver: Solver | str, clock: AbstractContextManager[None]) -> Tuned:
    """After it was tuned, with movable variables, it does what the plain function does. Returns what the tuning found.

    Args:
        build: the program, which must run without an error.
        solver: of the plan.
        clock: decides what calls take while it is tuned.
    """
    reference, program = build(), build()
    expected = behaviour(reference, traceable(reference.fn))
    placed = placer.place(
        program.fn, **{"devices": DEVICES, "solver": solver, "effort": EFFORT, "variables": "move", **program.plans}
    )
    with clock:
        tuned = placed.tune(*program.args, **program.kwargs, budget_s=20, side_effects="allow")
    with soft_placement(False):
        compare(f"tuned: {tuned.verdict.used}", expected, behaviour(program, placed), program)
    return tuned


def left_alone(build: Builder, why: str) -> None:
    """It runs as the plain function, has no plan, and one warning says why."""
    reference, program = build(), build()
    expected = behaviour(reference, reference.fn)
    placed = placer.place(program.fn, devices=DEVICES, **program.plans)
    with pytest.warns(placer.PlacementWarning, match=why) as warned:
        compare("left alone", expected, behaviour(program, placed), program)
    assert len([w for w in warned if w.category is placer.PlacementWarning]) == 1
    assert not placed.placements


def with_tape_inside(program: Program) -> Program:
    """The program's gradients as a function of their own, in which the whole of it is traced."""

    def gradients(*args: Any) -> Any:
        with tf.GradientTape() as tape:
            inputs = watched(tape, args)
            total = scalar(program.fn(*args, **program.kwargs))
        return densely(tape.gradient(total, [*inputs, *trainable(program)])) if total is not None else ()

    return replace(program, fn=tf.function(gradients), kwargs={}, gradients=False)


def observes_as_planned(label: str, program: Program, placed: PlacedFunction, raises: bool) -> None:
    """In one more call, every op that survived TensorFlow's optimisers ran where the plan says."""
    if raises:  # then there is nothing to observe; that it raises the same was compared before
        outcome(program, placed)
        return
    observation = placed.observe(*program.args, **program.kwargs)
    wrong = [f"{m.op}: planned for {m.planned}, ran on {m.ran}" for m in observation.mismatches]
    assert not wrong, f"{label}: {wrong}"


# -- what is compared --------------------------------------------------------------------------------------------------


def behaviour(program: Program, fn: Any, calls: int = CALLS, gradients: int = GRADIENTS) -> dict[str, Any]:
    """All that can be seen of a few calls: results or errors, gradients with the tape outside, state and log at the end."""
    seen = {f"call {i}": outcome(program, fn) for i in range(calls)}
    if program.gradients:
        seen |= {f"gradient {i}": taped_outside(program, fn) for i in range(gradients)}
    seen["state"] = program.state() if callable(program.state) else [v.read_value() for v in program.state]
    seen["log"] = list(program.log)
    return seen


def outcome(program: Program, fn: Any) -> Any:
    """A call's results, or the error it raises."""
    try:
        return fn(*program.args, **program.kwargs)
    except Exception as error:
        return error


def taped_outside(program: Program, fn: Any) -> Any:
    """The gradients of a call, or the error that the call or its gradient raises."""
    try:
        with tf.GradientTape() as tape:
            inputs = watched(tape, program.args)
            total = scalar(fn(*program.args, **program.kwargs))
        return densely(tape.gradient(total, [*inputs, *trainable(program)])) if total is not None else ()
    except Exception as error:
        return error


def watched(tape: tf.GradientTape, args: Any) -> list[Any]:
    inputs = [t for t in tf.nest.flatten(args, expand_composites=True) if tf.is_tensor(t) and t.dtype.is_floating]
    for tensor in inputs:
        tape.watch(tensor)
    return inputs


def trainable(program: Program) -> list[tf.Variable]:
    return [] if callable(program.state) else [v for v in program.state if v.dtype.is_floating]


def scalar(results: Any) -> Any:
    """One number all floating results have a part in; None if there are none."""
    parts = [t for t in tf.nest.flatten(results, expand_composites=True) if tf.is_tensor(t) and t.dtype.is_floating]
    return tf.add_n([tf.reduce_sum(tf.cast(t, tf.float32) ** 2) for t in parts]) if parts else None


def densely(gradients: list[Any]) -> list[Any]:
    return ["no gradient" if g is None else tf.convert_to_tensor(g) for g in gradients]


def compare(label: str, expected: dict[str, Any], found: dict[str, Any], program: Program) -> None:
    for part, want in expected.items():
        have = found[part]
        what = f"{label}, {part}"
        if isinstance(want, Exception) or isinstance(have, Exception):
            assert program.raises or part.startswith("gradient"), (
                f"{what}: {told(have)} where the plain function gives {told(want)}"
            )
            assert kind_of_error(have) == kind_of_error(want), f"{what}: {told(have)} where the plain function gives {told(want)}"
            continue
        tf.nest.assert_same_structure(want, have)  # its message names both structures
        pairs = zip(tf.nest.flatten(want, expand_composites=True), tf.nest.flatten(have, expand_composites=True), strict=True)
        for number, (a, b) in enumerate(pairs):
            same_value(f"{what}, value {number}", a, b, program)


def same_value(what: str, want: Any, have: Any, program: Program) -> None:
    alike = tf.is_tensor(have) if tf.is_tensor(want) else isinstance(have, type(want))
    assert alike, f"{what}: {have!r} where {want!r} belongs"
    if not tf.is_tensor(want):
        assert have == want, f"{what}: {have!r} where {want!r} belongs"
    else:
        assert have.dtype == want.dtype, f"{what}: {have.dtype} where {want.dtype} belongs"
        if want.dtype in (tf.resource, tf.variant):
            return
        a, b = np.asarray(want), np.asarray(have)
        assert b.shape == a.shape, f"{what}: shape {b.shape} where {a.shape} belongs"
        if want.dtype.is_floating and not program.random:
            tolerance = 1e-2 if want.dtype.size == 2 else program.tolerance
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=what)
        elif not program.random:
            np.testing.assert_array_equal(b, a, err_msg=what)


def told(value: Any) -> str:
    """A result or an error in words; an error of TensorFlow's has none in its `repr`."""
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else repr(value)


def kind_of_error(error: Any) -> tuple[str, str]:
    """Its type and what its message says, without names of nodes, devices and traces."""
    if not isinstance(error, Exception):
        return "no error", repr(error)
    if isinstance(error, placer.TraceError) and error.__cause__ is not None:
        error = error.__cause__  # it failed while tracing; the cause is what the plain function raises
    # It says where nodes are from if the function has an ordinary name, which a placed lambda has and a plain one has not.
    text = re.sub(r"^Graph execution error:\n(\s*\n|Detected at node .*\n|  File .*\n)*", "", str(error).strip())
    # TensorFlow counts an error once for each device that hears of it.
    text = re.sub(r"^\d+ root error\(s\) found\.\s*\(0\) [A-Z_]+: ", "", text.strip())
    text = text.splitlines()[0] if text else ""
    return type(error).__name__, re.sub(r"\{\{.*?\}\}|\[\[.*?\]\]|__inference\w*|\S*/device:\S*", "", text).strip()


def node_defs(fn: Any, program: Program) -> dict[str, bytes]:
    """Every node of a traced function and of the functions it calls, devices included; none where it cannot be traced."""
    try:
        definition = fn.get_concrete_function(*program.args, **program.kwargs).graph.as_graph_def()
    except Exception:
        return {}
    nodes = {node.name: node for node in definition.node}
    nodes |= {f"{f.signature.name}/{node.name}": node for f in definition.library.function for node in f.node_def}
    return {name: node.SerializeToString(deterministic=True) for name, node in nodes.items()}


@contextmanager
def soft_placement(on: bool) -> Iterator[None]:
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(on)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(before)
