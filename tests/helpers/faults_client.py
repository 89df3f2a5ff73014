"""The client of a cluster whose workers die, hang and start again.

`python -m tests.helpers.faults_client` starts two workers, and runs all scenarios in order.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
import placer.verbs.calibrate_network
from placer.tf import connecting
from placer.tf._private.sockets import cut
from tests.helpers.clients import Scenarios
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import cpus
from tests.helpers.workers import address_of, begun

WITHIN_S = 30.0
"""Time in which a call must end."""
NEAR, FAR = "worker:0/CPU:0", "worker:1/CPU:0"


class Workers:
    """Two workers, of which the second one suffers."""

    def __init__(self) -> None:
        self.processes = [begun(1), begun(1)]
        self.addresses = [address_of(process) for process in self.processes]
        self.machine = placer.cluster(workers=self.addresses)
        self.state = tf.Variable(1.0)

    def step(self, rounds: int = 1) -> Any:
        """A placed function of which the second worker takes a part, and its result."""

        def work(x: Any) -> Any:
            x = tf.cos(x)
            for _ in tf.range(rounds):
                x = tf.sin(x)
            self.state.assign_add(1.0)
            return tf.exp(x)

        options = {"pins": {"Cos": NEAR, "*Sin": FAR, "Exp": NEAR}, "race": "off", "learn_sizes": False}
        return placer.place(work, devices=self.machine, **options)

    def kill(self) -> None:
        self.processes[1].kill()
        self.processes[1].wait()

    def start_again(self, cpus: int = 1) -> None:
        self.kill()
        self.processes[1] = begun(cpus, port=int(self.addresses[1].rpartition(":")[2]))
        address_of(self.processes[1])


scenario = Scenarios[Workers]()


def fails(call: Callable[[], Any], why: str) -> None:
    """The call raises one error in time, which names the task."""
    before = time.monotonic()
    with pytest.raises(placer.WorkerError, match=rf"work failed: worker:1 at 127.0.0.1:\d+ {why}"):
        call()
    assert time.monotonic() - before < WITHIN_S


X = tf.constant([0.5, 1.0])
WANTED = np.exp(np.sin(np.cos(X)))


@scenario
def a_worker_dies_before_a_step(workers: Workers) -> None:
    with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
        kept = tf.Variable(3.0)
    total = tf.Variable(0.0)

    def work(x: Any) -> Any:
        total.assign_add(1.0)
        return tf.exp(tf.sin(tf.cos(x)))

    step, goes_on = workers.step(), placer.place(work, devices=workers.machine, solver=RandomLegal(3), race="off")
    for each in (step, goes_on):
        np.testing.assert_allclose(each(X), WANTED, rtol=1e-6)
        assert FAR in {op.device for op in each.placement.ops.values()}
    workers.kill()
    with pytest.raises(placer.WorkerError, match="cannot be observed while worker:1"):
        step.observe(X)  # TensorFlow would wait for ever
    assert placer.place(lambda x: tf.sin(x @ x), devices=cpus(1)).tune(tf.ones([2, 2]), budget_s=1.0)  # no part of it is there
    checkpoint = tf.train.Checkpoint(kept=kept)
    checkpoint.restore(checkpoint.save(f"{os.environ['PLACER_CACHE']}/checkpoint"))  # TensorFlow would wait for the dead worker
    with pytest.raises(placer.DeviceError, match="asks for 'worker:1/CPU:0'"):
        step.plan(X, devices=workers.machine.without("worker:1"))  # the step keeps its machine
    for call in (step, step, step.learn, lambda x: step.tune(x, budget_s=1.0, side_effects="allow")):
        fails(lambda call=call: call(X), "does not answer")
    fails(lambda: goes_on(X), "does not answer")
    before = total.numpy()
    assert goes_on.plan(X, devices=workers.machine.without("worker:1")).devices == ("CPU:0", NEAR)
    with tf.GradientTape() as tape:
        tape.watch(X)
        found = goes_on(X)
    np.testing.assert_allclose(found, WANTED, rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(found, X), -WANTED * np.cos(np.cos(X)) * np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(goes_on(X), WANTED, rtol=1e-6)
    assert total.numpy() == before + 2

    def build() -> Any:
        far = tf.Variable(X, name="far")
        return lambda x: x * far

    made = {"devices": workers.machine, "pins": {"far": FAR}, "race": "off"}
    with pytest.raises(placer.WorkerError, match="failed: worker:1 at"):
        placer.plan_then_create(build, [X], **made)
    np.testing.assert_allclose(tf.function(tf.sin)(X), np.sin(X), rtol=1e-6)
    workers.start_again()
    fails(lambda: step(X), "was started again; what it held is lost")
    assert placer.cluster(workers=workers.addresses).devices == workers.machine.devices
    np.testing.assert_allclose(step(X), WANTED, rtol=1e-6)
    np.testing.assert_allclose(workers.step()(X), WANTED, rtol=1e-6)
    assert kept.numpy() == 3.0  # the other worker lost nothing


@scenario
def a_worker_dies_in_a_step(workers: Workers) -> None:
    step = workers.step(rounds=100_000_000)
    step.plan(X)
    Timer(1.0, cut, [workers.addresses[1]]).start()
    with pytest.raises(placer.WorkerError, match="work failed: the connection to worker:1 ended"):
        step(X)
    Timer(1.0, workers.kill).start()
    fails(lambda: step(X), "does not answer")
    workers.start_again(cpus=2)
    fails(lambda: step(X), "was started again, with other devices than before: CPU:0, CPU:1")
    machine = placer.cluster(workers=workers.addresses)
    assert [device.name for device in machine.devices] == ["CPU:0", NEAR, FAR, "worker:1/CPU:1"]
    np.testing.assert_allclose(workers.step()(X), WANTED, rtol=1e-6)
    second = placer.place(tf.sin, devices=machine, pins={"Sin": "worker:1/CPU:1"}, race="off")
    np.testing.assert_allclose(second(X), np.sin(X), rtol=1e-6)
    workers.start_again()
    with pytest.raises(placer.WorkerError, match="with other devices than before: CPU:0;"):
        second(X)
    assert placer.cluster(workers=workers.addresses) == workers.machine
    with pytest.raises(placer.DeviceError, match="its plan uses worker:1/CPU:1, which is not here any more"):
        second(X)


@scenario
def what_a_dead_worker_held_is_lost(workers: Workers) -> None:
    with tf.device("/job:worker/task:1/device:CPU:0"):
        far, used = tf.Variable(tf.ones([2])), tf.Variable(4.0)
    here = tf.Variable(X, name="here")
    options = {"devices": workers.machine, "race": "off"}
    uses_far = placer.place(lambda x: x * far, variables="fixed", **options)
    np.testing.assert_allclose(uses_far(X), X)
    assert placer.place(lambda x: x * used, **options)(1.0) == 4.0  # variables="auto" moves it to the client
    moving = placer.place(lambda x: x * here, variables="move", pins={"here": FAR}, **options)
    step = workers.step()
    around = tf.function(lambda x: 1.0 * step(x))
    np.testing.assert_allclose(around(X), WANTED, rtol=1e-6)
    workers.kill()
    for read in (far.numpy, lambda: around(X)):  # not in a placed call
        with pytest.raises(tf.errors.OpError):
            read()
    assert used.numpy() == 4.0
    for call in (
        lambda: uses_far(X),
        lambda: moving(X),
        lambda: placer.predict(step, X, budget_s=1.0),
        lambda: step.harvest(X),
        lambda: measure_network(workers),
    ):
        with pytest.raises(placer.WorkerError, match=r"worker:[01] at 127.0.0.1:\d+ does not answer"):
            call()
    np.testing.assert_array_equal(here, X)  # it did not move
    assert here.device.startswith("/job:localhost")
    assert step.profile(X, budget_s=1.0)  # which measures here
    workers.start_again()
    answered = connecting.ask({f"worker:{k}": address for k, address in enumerate(workers.addresses)})
    workers.kill()
    for first in (0, 1):
        with pytest.raises(placer.WorkerError, match=r"while this process connected: worker:[01] at .* does not answer"):
            connect_late(workers, answered, first)
    workers.start_again()
    with ThreadPoolExecutor(2) as threads:
        machines = list(threads.map(lambda _: placer.cluster(workers=workers.addresses), range(2)))
    assert machines == [workers.machine] * 2
    np.testing.assert_allclose(step(X), WANTED, rtol=1e-6)
    with pytest.raises(placer.WorkerError, match=r"uses a variable or a tensor that was on worker:1, .* so it is lost"):
        uses_far(X)
    np.testing.assert_allclose(moving(X), X * X)
    assert here.device.startswith("/job:worker/replica:0/task:1")


def measure_network(workers: Workers) -> None:
    """Measures the network of workers that this process has connected to before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placer.verbs.calibrate_network, "cluster", lambda *given, **named: workers.machine)
        placer.calibrate_network(workers=workers.addresses, budget_s=1.0)


def connect_late(workers: Workers, answered: Mapping[str, connecting.Worker], first: int) -> None:
    """Connects to workers that answered before one of them died.

    Args:
        answered: by task: what each worker said of itself.
        first: the task of the worker that is named first.
    """
    by_address = {worker.address: worker for worker in answered.values()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connecting, "ask", lambda addresses: {task: by_address[each] for task, each in addresses.items()})
        placer.cluster(workers=workers.addresses[first:] + workers.addresses[:first])


@scenario
def a_worker_never_answers(workers: Workers) -> None:
    step = workers.step()
    np.testing.assert_allclose(step(X), WANTED, rtol=1e-6)
    process = workers.processes[1]
    process.send_signal(signal.SIGSTOP)
    fails(lambda: step(X), "does not answer")
    fails(lambda: step(X), "does not answer")
    plan = placer.place(lambda x: tf.sin(tf.cos(x)), devices=workers.machine, pins={"Cos": NEAR}, race="off")
    with pytest.raises(placer.WorkerError):
        plan(X)
    fewer = plan.plan(X, devices=workers.machine.without("worker:1"))
    assert fewer.devices == ("CPU:0", NEAR)
    np.testing.assert_allclose(plan(X), np.sin(np.cos(X)), rtol=1e-6)
    with pytest.raises(placer.WorkerError, match="cannot be observed while worker:1"):
        plan.observe(X)
    process.send_signal(signal.SIGCONT)
    np.testing.assert_allclose(step(X), WANTED, rtol=1e-6)


def main() -> None:
    connecting.ANSWER_S, connecting.HANGS_S, connecting.WATCH_EVERY_S, connecting.LATE_S = 4.0, 4.0, 1.0, 2.0
    workers = Workers()
    try:
        scenario.run_all(workers)
    finally:
        for process in workers.processes:
            process.kill()
    os._exit(0)  # without waiting for the servers


if __name__ == "__main__":
    main()
