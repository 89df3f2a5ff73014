"""The tour of `placer demo`: two functions that suit no single device, planned, run by plan and checked.

Without a GPU they are planned for a machine that has one. They then run on two logical CPU devices, the second of which has the
costs of that GPU; sends, receives and results are real. With a GPU they are planned for it, run on it and timed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cost_models.machine_files import load_machine
from cost_models.machines import Machine
from placer.common.progress import progress
from placer.common.units import format_ns
from placer.errors import OptionError, PlacerError
from placer.placed.decorators import place
from placer.verbs.build_graph import build_graph
from placer.verbs.solve import solve
from placer.views.shared.facts import plan_facts

if TYPE_CHECKING:
    from placer.placed.function import PlacedFunction
    from placer.plan.placement import Placement

MACHINE = "h100"
"""The machine to plan for if there is no GPU here."""
MAX_REASONS = 3
"""Reasons printed for each plan."""
Work: TypeAlias = tuple[Any, tuple[Any, ...]]
"""A `tf.function` and the arguments of a call."""


def run(out: Path, report: Callable[[str], None] = print) -> tuple[dict[str, Any], str]:
    """Runs the tour. Writes plans, a report and a picture to the folder `out`, and passes each text to print to `report`.

    Returns:
        The results by function, as plain JSON types; and a text on what to try next.

    Raises:
        OptionError: `out` cannot be written to.
        PlacerError: a result differs from the plain function's, or an op ran elsewhere than planned.
    """
    from placer.tf.run.starting import start

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{out} cannot be a folder for plans: {error.strerror}.") from error
    start(cpus=2)
    from placer.tf.devices import process_devices

    has_gpu = "GPU:0" in process_devices()
    results: dict[str, Any] = {}
    for build in (lstm_then_dense, detector):
        report(f"\n== {(build.__doc__ or '').strip()}\n")
        with progress("tracing and planning"):
            fn, args = _built_on("GPU:0" if has_gpu else "CPU:1", build)
            plan = solve(build_graph(fn, *args), None if has_gpu else MACHINE)
        report(f"{plan.summary()}\n\nthe {MAX_REASONS} largest reasons:")
        for reason in _largest_reasons(plan):
            report(f"  {reason}")
        with progress("running plain and placed"):
            placed = place(fn, *args, devices=None if has_gpu else _pair_priced_as(load_machine(MACHINE)))
            checked = _check(fn, placed, args)
            measured_ns = _step_times_ns(build, fn, placed, args) if has_gpu else {}
        report(f"\n{_check_in_words(checked)}")
        for name, time_ns in measured_ns.items():
            report(f"  {name:22}{format_ns(time_ns)} per step")
        plan.save(out / f"{build.__name__}.json")
        results[build.__name__] = {"plan": plan_facts(plan), "measured_ns": measured_ns, "checked": checked}
    return results, _save(plan, out)


# -- the two functions -------------------------------------------------------------------------------------------------


def lstm_then_dense(steps: int = 64, units: int = 64, rows: int = 512, width: int = 4096) -> Work:
    """A loop of tiny ops (an LSTM cell, batch 1), then four wide dense layers"""
    import tensorflow as tf

    cell = tf.Variable(_normal(1, 2 * units, 4 * units), name="cell")
    widen = tf.Variable(_normal(2, units, width), name="widen")
    wide = [tf.Variable(_normal(3 + i, width, width), name=f"wide_{i}") for i in range(4)]

    def infer(sequence: Any, x: Any) -> Any:
        h, c = tf.zeros([1, units]), tf.zeros([1, units])
        for t in tf.range(steps):
            forget, keep, new, show = tf.split(tf.concat([sequence[t], h], 1) @ cell, 4, axis=1)
            c = tf.sigmoid(forget) * c + tf.sigmoid(keep) * tf.tanh(new)
            h = tf.sigmoid(show) * tf.tanh(c)
        x += h @ widen
        for weights in wide:
            x = tf.nn.relu(x @ weights)
        return tf.reduce_mean(x, axis=1)

    return tf.function(infer), (_normal(7, steps, 1, units), _normal(8, rows, width))


def detector(pixels: int = 256, widths: tuple[int, ...] = (64, 128, 256, 256), classes: int = 10, kept: int = 100) -> Work:
    """Convolutional features, then boxes, scores and ten non-max suppressions"""
    import tensorflow as tf

    channels = (3, *widths)
    filters = [tf.Variable(_normal(i, 3, 3, *channels[i : i + 2]), name=f"conv_{i}") for i in range(len(widths))]
    head = tf.Variable(_normal(9, 1, 1, widths[-1], 4 + classes), name="head")
    at = tf.range(2.0, pixels, 4.0)
    centres = tf.reshape(tf.stack(tf.meshgrid(at, at, indexing="ij"), axis=-1), [-1, 2]).numpy()

    def detect(image: Any) -> Any:
        x = image
        for i, weights in enumerate(filters):
            x = tf.nn.relu(tf.nn.conv2d(x, weights, strides=2 if i < 2 else 1, padding="SAME"))
        predicted = tf.reshape(tf.nn.conv2d(x, head, strides=1, padding="SAME"), [-1, 4 + classes])
        offsets, extents, scores = tf.split(predicted, [2, 2, classes], axis=1)
        middles, halves = centres + offsets, 8.0 * tf.exp(tf.tanh(extents))
        boxes = tf.concat([middles - halves, middles + halves], axis=1)
        best = [tf.image.non_max_suppression(boxes, score, kept) for score in tf.unstack(tf.sigmoid(scores), axis=1)]
        return [tf.gather(boxes, chosen) for chosen in best]

    return tf.function(detect), (_normal(10, 1, pixels, pixels, 3),)


def _normal(seed: int, *shape: int) -> Any:
    """Random weights, scaled so that a layer keeps the variance of its input."""
    import tensorflow as tf

    fan_in = tf.size(tf.zeros(shape[:-1])).numpy() if len(shape) != 3 else 1
    return tf.random.stateless_normal(shape, [seed, 0]) * (2 / fan_in) ** 0.5


def _built_on(device: str, build: Callable[[], Work]) -> Work:
    """Builds variables and arguments on one device, as TensorFlow puts all of them on a GPU if there is one."""
    import tensorflow as tf

    with tf.device(device):
        return build()


# -- running -----------------------------------------------------------------------------------------------------------


def _pair_priced_as(machine: Machine) -> Machine:
    """The machine with a CPU device, of the same costs, in the place of its GPU: for a process with two logical CPUs.

    The two devices share their memory. So their links have the GPU's bandwidth without its latency, and a call that uses both
    costs nothing extra.
    """
    cpu, gpu = machine.device("CPU:0"), machine.device("GPU:0")
    second = replace(gpu, name="CPU:1", kind="CPU", asynchronous=False, call_ns=0)
    names = {cpu.name: cpu.name, gpu.name: second.name}
    links = tuple(
        replace(link, src=names[link.src], dst=names[link.dst], latency_ns=machine.host_hop_ns, interval_ns=0)
        for link in machine.links
        if link.src in names and link.dst in names
    )
    name = f"two CPUs, one priced as {gpu.model}"
    return replace(machine, name=name, devices=(cpu, second), links=links, split_ns=0, reserve_bytes={})


def _check(fn: Any, placed: PlacedFunction, args: tuple[Any, ...]) -> dict[str, Any]:
    """Runs the plain and the placed function. Raises PlacerError if a result differs or an op ran elsewhere than planned."""
    import numpy as np
    import tensorflow as tf

    with _full_precision():
        plain = tf.nest.flatten(fn(*args))
        observation = placed.observe(*args)
    worst = 0.0
    for number, (want, got) in enumerate(zip(plain, tf.nest.flatten(observation.outputs), strict=True)):
        if want.shape != got.shape or not np.allclose(want, got, rtol=1e-3, atol=1e-4):
            raise PlacerError(f"result {number} of {fn.__name__} differs between the plain and the placed function")
        worst = max(worst, float(np.max(np.abs(want - got), initial=0.0)))
    if observation.mismatches:
        first = observation.mismatches[0]
        raise PlacerError(
            f"{len(observation.mismatches)} ops ran elsewhere, {first.op} on {first.ran} instead of {first.planned}"
        )
    ran = dict(sorted(Counter(observation.ran.values()).items()))
    return {"largest_difference": worst, "ops_ran": ran, "ops_folded": len(observation.folded)}


@contextmanager
def _full_precision() -> Iterator[None]:
    """Disables TF32, whose rounding depends on the kernel that TensorFlow picks."""
    import tensorflow as tf

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def _step_times_ns(build: Callable[[], Work], fn: Any, placed: PlacedFunction, args: tuple[Any, ...]) -> dict[str, int]:
    """Median time of a step, including fetching its results, by kind of placement; they are called in turns."""
    import tensorflow as tf

    on_cpu, cpu_args = _built_on("CPU:0", build)

    def all_cpu() -> Any:
        with tf.device("CPU:0"):
            return on_cpu(*cpu_args)

    steps: dict[str, Callable[[], Any]] = {
        "TensorFlow's default": lambda: fn(*args),
        "all on the CPU": all_cpu,
        "this plan": lambda: placed(*args),
    }
    times_ns: dict[str, list[int]] = {name: [] for name in steps}
    for turn in range(25):
        for name, step in steps.items():
            start_ns = time.perf_counter_ns()
            for result in tf.nest.flatten(step()):
                result.numpy()
            if turn >= 5:  # the first turns compile, tune and warm up
                times_ns[name].append(time.perf_counter_ns() - start_ns)
    return {name: int(statistics.median(times)) for name, times in times_ns.items()}


# -- reporting -----------------------------------------------------------------------------------------------------------


def _check_in_words(checked: dict[str, Any]) -> str:
    ran = ", ".join(f"{count} on {device}" for device, count in checked["ops_ran"].items())
    return (
        f"ran it: results equal the plain function's (largest difference {checked['largest_difference']:.1g}); "
        f"every op that TensorFlow kept ran where its plan says: {ran} ({checked['ops_folded']} folded away)"
    )


def _largest_reasons(plan: Placement) -> list[str]:
    """The reasons for groups of ops, by op type and device, that would take most longer on their next best device."""
    stakes: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for op in plan.graph:
        choice = plan.ops[op.name]
        others = [time_ns for device, time_ns in choice.time_ns.items() if device != choice.device]
        if others:
            stakes[op.op_type, choice.device][op.name] = min(others) - choice.time_ns[choice.device]
    largest = sorted(stakes.items(), key=lambda entry: sum(entry[1].values()), reverse=True)[:MAX_REASONS]
    reasons = []
    for (op_type, device), ops in largest:
        name = max(ops, key=ops.__getitem__)
        reasons.append(f"{len(ops)} {op_type} on {device}, such as {name}: {plan.why(name).text}")
    return reasons


def _save(plan: Placement, out: Path) -> str:
    """Writes plan.json, a report and a picture. Returns a text on what to do with them."""
    plan.save(out / "plan.json")
    plan.write("html", out / "report.html")
    why = ""
    try:
        plan.write("svg", picture := out / "graph.svg")
    except OptionError as error:  # without matplotlib
        plan.write("dot", picture := out / "graph.dot")
        why = f" (no SVG: {error})"
    op = max(plan.ops, key=lambda name: plan.ops[name].time_ns.get(plan.ops[name].device, 0))
    # Without an active environment there is no `placer` command.
    placer = "placer" if shutil.which("placer") else f"{os.path.relpath(sys.executable)} -m placer"
    return f"""
wrote {out / "report.html"}, which shows the second plan in a browser, {picture}{why}, {out / "plan.json"}, and a plan by each
function's name beside it. Try next:
  {placer} show {out / "plan.json"} --explain {op}
  {placer} solve {out / "plan.json"} --devices {MACHINE} --pins {plan.graph.op(op).op_type}=GPU:0
  {placer} solve yourmodule:yourfunction --devices {MACHINE} --signature "float32[8,224,224,3], int32[8]"
and put @placer.optimized_placement on yourfunction, call it, and print(yourfunction.placement.summary())"""
