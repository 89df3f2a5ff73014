"""Connects this process to the workers of a cluster, whose devices then are devices of TensorFlow here."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread

import tensorflow as tf
from tensorflow.core.framework.device_attributes_pb2 import DeviceAttributes

from cost_models.cluster import JOB
from cost_models.machines import task_of
from cost_models.measuring.chains import error_line
from placer.common.device_spec import parse
from placer.errors import DeviceError, WorkerError
from placer.tf._private.left_handles import leave_handles
from placer.tf._private.runtime import connect_again, errors_of_workers_at_once, wait_for_workers_by
from placer.tf._private.sockets import cut
from placer.tf._private.worker_status import NoAnswer, answers, devices_of_workers
from placer.tf.devices import connected_devices, full_name, is_task

ANSWER_S = 20.0
"""How long workers have to answer, in seconds."""
HANGS_S = 12.0
"""After how long without an answer a worker hangs, in seconds. After 20 s gRPC would say that nobody listens."""
LATE_S = 5.0
"""How long a worker has to answer after a call has failed, in seconds."""
RETRY_S = 0.5
"""How long to wait before another try to connect, in seconds."""
WATCH_EVERY_S = 5.0
"""How often workers are asked whether they are alive, in seconds."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that has answered."""

    address: str
    devices: Mapping[str, tuple[str, int]]
    """By name within the task: the model, and the bytes of memory that TensorFlow may take."""
    incarnation: int
    """A number that its server drew when it started."""

    @classmethod
    def of(cls, address: str, devices: Sequence[DeviceAttributes]) -> Worker:
        """A worker by the devices that it says it has."""
        described = {parse(d.name).short.rpartition("/")[2]: (_model(d.physical_device_desc), d.memory_limit) for d in devices}
        return cls(address, described, devices[0].incarnation)


_LOST = ("Unable to find the relevant tensor remote_handle", "Resource input tensor contains an invalid device")
"""TensorFlow's words for a tensor and for a variable that a worker no longer has."""
_UNREACHED = re.compile(r"remote target (/job:\S+)")
"""TensorFlow's words for the device of a worker that it did not reach."""

_connected: list[Worker] = []
"""The workers that this process is connected to, by task."""
lost: set[str] = set()
"""Tasks that did not answer when they were last asked."""
_renewed: set[str] = set()
"""Tasks that were started again or left, so that what they held is lost."""
_lock = Lock()
"""Held while this process connects."""


def ask(addresses: Mapping[str, str]) -> dict[str, Worker]:
    """Asks workers for their devices, without connecting to them.

    Args:
        addresses: host and port by task.

    Raises:
        DeviceError: a worker does not answer within `ANSWER_S`, or two addresses are of one worker.
    """
    answered = devices_of_workers(addresses, ANSWER_S)
    found = {task: Worker.of(addresses[task], devices) for task, devices in answered.items()}
    first: dict[int, str] = {}
    for task, worker in found.items():
        if (other := first.setdefault(worker.incarnation, task)) != task:
            raise DeviceError(f"{other} at {addresses[other]} and {task} at {worker.address} are one worker: name it once.")
    return found


def ask_one(addresses: Mapping[str, str]) -> Worker:
    """The first worker that answers at once, of workers that are alike. Others may have died and be starting again.

    Args:
        addresses: host and port by task.

    Raises:
        DeviceError: no worker answers.
    """
    for task, address in addresses.items():
        if not isinstance(answer := answers({task: address}, LATE_S, wait=False)[task], NoAnswer):
            return Worker.of(address, answer)
    raise DeviceError(f"none of the workers answers: {', '.join(addresses.values())}.")


def connect(workers: Iterable[Worker]) -> None:
    """Connects to workers, unless this process is connected to them already. Other workers of an earlier call are left.

    Tensors and variables on workers that are left are lost. So are those on a worker that was started again. If the addresses
    are those of the earlier call, the other workers keep theirs.

    Args:
        workers: by task.

    Raises:
        DeviceError: this process is a task of a cluster itself.
        WorkerError: a worker fails meanwhile.
    """
    if is_task():
        raise DeviceError("this process is a task of a cluster itself, so it cannot be the client of another one.")
    wanted = list(workers)
    with _lock:
        if [worker.incarnation for worker in wanted] == [worker.incarnation for worker in _connected]:
            return
        is_same = [worker.address for worker in wanted] == [worker.address for worker in _connected]
        if not is_same:
            leave_handles()
        _connect_in_time(wanted)
        if not _connected:
            Thread(target=_watch, name="placer-watches-workers", daemon=True).start()
            wait_for_workers_by(_wait_if_all_answer)
        before, now = _by_task(_connected), _by_task(wanted)
        _renewed.update(task for task, worker in before.items() if not (is_same and now[task] == worker))
        _connected[:] = wanted
        lost.clear()


def _connect_in_time(workers: Sequence[Worker]) -> None:
    """Connects to workers, or raises WorkerError if one fails meanwhile.

    After a failure, TensorFlow's channel to a worker waits a second or more before it connects again. So this tries again, as
    long as all workers answer.
    """
    last_try = time.monotonic() + ANSWER_S
    while True:
        try:
            return _connect([worker.address for worker in workers])
        except (OSError, tf.errors.OpError) as error:
            silent = _silent(workers)
            if silent or time.monotonic() > last_try:
                everyone = ", ".join(f"{task} at {worker.address}" for task, worker in _by_task(workers).items())
                why = silent or f"TensorFlow cannot connect to {everyone} ({error_line(error)})"
                way_out = "Way out: start the worker again and call placer.cluster(...) again."
                raise WorkerError(f"a worker failed while this process connected: {why}. {way_out}") from error
        time.sleep(RETRY_S)


def _connect(addresses: Sequence[str]) -> None:
    """Connects to workers at these addresses, in the order of their tasks. Raises OpError or OSError if one fails meanwhile."""
    with errors_of_workers_at_once():
        if addresses == [worker.address for worker in _connected]:
            connect_again()
        else:
            spec = tf.train.ClusterSpec({JOB: addresses, "localhost": [_own_address(addresses)]})
            tf.config.experimental_connect_to_cluster(spec, protocol="grpc", make_master_device_default=False)


def _silent(workers: Sequence[Worker]) -> str:
    """Which workers do not answer, and why, in words; "" if all do."""
    asked = _by_task(workers)
    found = answers({task: worker.address for task, worker in asked.items()}, LATE_S, wait=False)
    return "; ".join(_no_answer(task, asked[task], answer) for task, answer in found.items() if isinstance(answer, NoAnswer))


def _no_answer(task: str, worker: Worker, answer: NoAnswer) -> str:
    return f"{task} at {worker.address} does not answer ({answer.why})"


def failures(tasks: Collection[str]) -> dict[str, str]:
    """Why calls with ops on these tasks cannot run: by task that does not answer or was started again, in words."""
    connected = {task: worker for task, worker in _by_task(_connected).items() if task in tasks}
    found = {}
    for task, answer in answers({t: worker.address for t, worker in connected.items()}, LATE_S, wait=False).items():
        worker = connected[task]
        if isinstance(answer, NoAnswer):
            found[task] = _no_answer(task, worker, answer)
        elif answer[0].incarnation != worker.incarnation:
            devices = [parse(d.name).short.rpartition("/")[2] for d in answer]
            other = "" if devices == list(worker.devices) else f", with other devices than before: {', '.join(devices)}"
            found[task] = f"{task} at {worker.address} was started again{other}; what it held is lost"
    lost.difference_update(connected)
    lost.update(found)
    return found


def lost_with_worker(error: Exception, tasks: Collection[str]) -> list[str]:
    """The tasks that held what an error of TensorFlow says is lost: of these tasks, those that were started again or left."""
    return sorted(_renewed.intersection(tasks)) if any(text in str(error) for text in _LOST) else []


def disconnected(error: Exception, tasks: Collection[str]) -> list[str]:
    """The tasks among these to which a connection ended, as an error of TensorFlow says."""
    if not isinstance(error, tf.errors.UnavailableError):
        return []
    return sorted({task_of(parse(name).short) for name in _UNREACHED.findall(str(error))}.intersection(tasks))


def missing(error: Exception, devices: Collection[str]) -> list[str]:
    """The devices among these that are not here, as an error of TensorFlow says."""
    return sorted(device for device in {*devices}.difference(connected_devices()) if full_name(device) in str(error))


def _wait_if_all_answer(wait: Callable[[], None]) -> None:
    """Lets TensorFlow wait for eager ops on workers, unless a worker does not answer: the wait for this one would fail.

    Eager ops on the other workers have run, since each is waited for.
    """
    if do_all_answer():
        wait()


def do_all_answer() -> bool:
    """Whether all workers answer; True without any."""
    return not failures(_by_task(_connected))


def check_all_answer() -> None:
    """Raises WorkerError if a worker does not answer.

    TensorFlow's record of what ran waits for all workers, also for those that ran nothing, and lets no other thread run.
    """
    if found := failures(_by_task(_connected)):
        way_out = "Way out: start the worker again and call placer.cluster(...) again."
        raise WorkerError(f"calls cannot be observed while {'; '.join(found.values())}. {way_out}")


def _by_task(workers: Sequence[Worker]) -> dict[str, Worker]:
    return {f"{JOB}:{k}": worker for k, worker in enumerate(workers)}


def _watch() -> None:
    """Runs for ever, and ends the connections to workers that hang. TensorFlow would wait for their answers without limit.

    A worker that dies needs no watching: the host ends its connections, and TensorFlow raises an error.
    """
    while True:
        time.sleep(WATCH_EVERY_S)
        if hanging := _cut_hanging(_by_task(_connected), HANGS_S):
            time.sleep(RETRY_S)
            _cut_hanging(hanging, LATE_S)  # TensorFlow may have connected again, to send what it had to


def _cut_hanging(asked: Mapping[str, Worker], within_s: float) -> dict[str, Worker]:
    """Ends the connections to those of these workers that do not answer in time; returns these."""
    hanging = {}
    for task, answer in answers({task: worker.address for task, worker in asked.items()}, within_s, wait=False).items():
        is_same = _by_task(_connected).get(task) is asked[task]  # otherwise this process has connected to another one meanwhile
        if isinstance(answer, NoAnswer) and answer.late and is_same:
            lost.add(task)
            hanging[task] = asked[task]
            with suppress(OSError):
                cut(asked[task].address)
    return hanging


def _model(description: str) -> str:
    """The model in TensorFlow's description of a device, such as "device: 0, name: NVIDIA L4, pci bus id: ..."; "" if none."""
    return next((part.removeprefix("name: ") for part in description.split(", ") if part.startswith("name: ")), "")


def _own_address(addresses: Iterable[str]) -> str:
    """A free port of this host, under the address by which the workers' hosts reach it.

    TensorFlow would give "localhost" to the workers, which is right only for those of this host.
    """
    own = set()
    for address in addresses:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S) as reached:
            own.add(str(reached.getsockname()[0]))
    ip = next((ip for ip in sorted(own) if not ip.startswith("127.") and ip != "::1"), min(own))
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as free:
        free.bind((ip, 0))
        own_port = free.getsockname()[1]
    return f"[{ip}]:{own_port}" if ":" in ip else f"{ip}:{own_port}"
