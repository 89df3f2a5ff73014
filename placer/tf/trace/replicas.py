"""The replicas of a distribution strategy in a trace: the ops of each, and which ops of two replicas do the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import tensorflow as tf

from placer.common.device_spec import parse
from placer.tf.devices import process_devices
from placer.tf.trace.bodies import Body
from placer.tf.trace.body_tree import owner_of_value
from placer.tf.trace.tracing import Trace

_SCOPE = re.compile(r"(?:^|/)replica_(\d+)(?:/|$)")
"""The name scope of all replicas but the first, which has none."""
_NUMBERS = re.compile(r"_\d+(?=/|_|$)")
_THREADS = "/tensorflow/python/distribute/mirrored_run.py"
"""TensorFlow's file in which each replica is a thread, whose outermost function of the file is `run`."""
_REASONS = {
    tf.distribute.ParameterServerStrategy: "a function is placed if coordinator.schedule of a ParameterServerStrategy gets it",
    tf.distribute.TPUStrategy: "XLA compiles the replicas of a TPUStrategy as a whole",
    tf.distribute.experimental.CentralStorageStrategy: "a CentralStorageStrategy has its variables on one device",
}
"""Why no functions are planned under a strategy, by its class."""


Op = tuple[Body, str]
"""A body and the name of an op in it."""


@dataclass(frozen=True, eq=False)
class Replicas:
    """The ops of a trace that run once in each replica. All other ops are the strategy's, or of the code around the replicas."""

    devices: tuple[str, ...]
    """The device of each replica, short."""
    numbers: dict[str, int]
    """By path of an op of a replica: the replica's number."""
    firsts: dict[str, str]
    """By path of an op of a replica: the path of the op of the first replica that does the same. Some have none: TensorFlow makes
    some ops once for all replicas, such as the shape of a gradient, and a replica's code may depend on its number."""

    def number(self, path: str) -> int | None:
        """The replica of a node of the `OpGraph`; None for a node of none."""
        return self.numbers.get(path, self.numbers.get(owner_of_value(path)))

    def first(self, path: str) -> str | None:
        """The node of the first replica that does what a replica's node does; None if there is none."""
        owner = path if path in self.firsts else owner_of_value(path)
        first = self.firsts.get(owner)
        return None if first is None else first + path[len(owner) :]


_IN_THREADS = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
"""The strategies that are planned for and run each replica of this process in a thread."""


def strategy_devices() -> tuple[str, ...]:
    """The devices of the current strategy's replicas in this process, short."""
    process_devices()  # short names leave out the task that this process is
    return tuple(parse(device).short for device in tf.distribute.get_strategy().extended.worker_devices)


def is_planned_for(strategy: Any) -> bool:
    """Whether functions are planned that the replicas of a strategy run."""
    return isinstance(strategy, (*_IN_THREADS, tf.distribute.OneDeviceStrategy))


def schedules(strategy: Any) -> bool:
    """Whether a strategy has a coordinator, which schedules functions on workers."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def run_in_all_replicas(fn: Any, args: Any, kwargs: Any) -> Any:
    """The result of `run` of the current strategy."""
    return tf.distribute.get_strategy().run(fn, args=args, kwargs=kwargs)


def why_left_to_strategy() -> str:
    """Why a call under the current strategy is left as it is."""
    strategy = tf.distribute.get_strategy()
    why = next((why for kind, why in _REASONS.items() if isinstance(strategy, kind)), "")
    if is_planned_for(strategy):
        why = "strategy.run of the placed function itself places it, and so does a call from outside of the scope"
    return f"it is called under a distribution strategy, which decides the devices{why and '; '}{why}"


def runs_in_threads() -> bool:
    """Whether the current strategy is planned for and runs each replica in a thread, as a MirroredStrategy does."""
    return isinstance(tf.distribute.get_strategy(), _IN_THREADS)


def is_one_device() -> bool:
    """Whether the current strategy is a OneDeviceStrategy, which calls a replica's function without a thread."""
    return isinstance(tf.distribute.get_strategy(), tf.distribute.OneDeviceStrategy)


def mirrored_replicas(trace: Trace, devices: Sequence[str]) -> Replicas:
    """The replicas in a trace that a MirroredStrategy made in its threads.

    Args:
        trace: of a function that runs the replicas.
        devices: of the replicas, short.
    """
    found: list[list[Op]] = [[] for _ in devices]
    _collect(trace.root, devices, found)
    numbers = {path: number for number, ops in enumerate(found) for path in _all_paths(ops)}
    firsts = {path: path for path in _all_paths(found[0])}
    for others in found[1:]:
        _match(found[0], others, firsts)
    return Replicas(tuple(devices), numbers, firsts)


def only_replica(trace: Trace, device: str) -> Replicas:
    """The replica of a trace that is of one replica alone, as under a OneDeviceStrategy."""
    paths = [path for body in trace.root.walk() for path in body.names.values()]
    return Replicas((device,), dict.fromkeys(paths, 0), {path: path for path in paths})


def _collect(body: Body, devices: Sequence[str], found: list[list[Op]]) -> None:
    """Adds the ops that replicas made, by replica, in the order in which they were made."""
    for name in body.nodes:
        if name in body.inputs:
            continue
        operation = body.operations[name]
        if _is_of_replica(operation):
            found[_number(operation, devices)].append((body, name))
        else:
            for child in body.children.get(name, ()):
                _collect(child, devices, found)


def _is_of_replica(operation: Any) -> bool:
    """Whether a replica's thread made an op; what replicas do together is made in the thread that started them."""
    made_in = next((frame.name for frame in operation.traceback or () if frame.filename.endswith(_THREADS)), "")
    return made_in == "run"


def _number(operation: Any, devices: Sequence[str]) -> int:
    if (scope := _SCOPE.search(operation.name)) and int(scope[1]) < len(devices):
        return int(scope[1])
    device = parse(operation.device).short if operation.device else ""
    return devices.index(device) if device in devices else 0


def _match(ops: Sequence[Op], others: Sequence[Op], first_of: dict[str, str]) -> None:
    """Notes which of `ops`, of the first replica, does what each of `others` does, of another replica."""
    matcher = SequenceMatcher(None, [*map(_key, ops)], [*map(_key, others)], autojunk=False)
    for start, other_start, length in matcher.get_matching_blocks():
        for (body, name), (other_body, other_name) in zip(
            ops[start : start + length], others[other_start : other_start + length], strict=True
        ):
            first_of[other_body.names[other_name]] = body.names[name]
            for child, other_child in zip(body.children.get(name, ()), other_body.children.get(other_name, ()), strict=False):
                _match(_own(child), _own(other_child), first_of)


def _key(op: Op) -> tuple[str, str]:
    """The type of an op, and its name without what TensorFlow adds to make it unique."""
    body, name = op
    return body.nodes[name].op, _NUMBERS.sub("", _SCOPE.sub("/", name)).removeprefix("/")


def _all_paths(ops: Sequence[Op]) -> Iterator[str]:
    """The paths of ops and of all ops in the bodies that they call."""
    for body, name in ops:
        yield body.names[name]
        for child in body.children.get(name, ()):
            yield from (path for inner in child.walk() for path in inner.names.values())


def _own(body: Body) -> list[Op]:
    return [(body, name) for name in body.nodes if name not in body.inputs]
