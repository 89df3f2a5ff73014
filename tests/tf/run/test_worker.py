"""`placer worker`: a process that runs ops for others. The test starts and stops it."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest

from placer.errors import OptionError
from placer.tf.run.worker import start_worker
from tests.helpers import forked

CLIENT = """
import sys
import tensorflow as tf
tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": [sys.argv[1]]}))
with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
    doubled = 2 * tf.constant([1.0, 2.0])
print(doubled.device, doubled.numpy())
"""


@dataclass(frozen=True)
class Worker:
    """A worker that is ready."""

    process: forked.Program
    address: str
    devices: list[str]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@contextmanager
def started(port: int) -> Iterator[Worker]:
    process = forked.Program("-m", "placer", "worker", "--json", "--port", str(port))
    try:
        assert process.stdout
        yield Worker(process, **json.loads(process.stdout.readline()))
    finally:
        process.kill()


@pytest.fixture(scope="module")
def running() -> Iterator[Worker]:
    with started(0) as worker:
        yield worker


def test_it_runs_an_op_for_a_client(running: Worker) -> None:
    assert running.devices[0] == "CPU:0"
    ran = forked.run("-c", CLIENT, running.address)
    assert ran.stdout.strip() == "/job:worker/replica:0/task:0/device:CPU:0 [2. 4.]", ran.stderr


def test_other_hosts_cannot_connect(running: Worker) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # sends nothing; tells which address of this host others see
        except OSError:
            pytest.skip("this host has no network")
        outside = route.getsockname()[0]
    socket.create_connection(("127.0.0.1", running.port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((outside, running.port), 5)


def test_a_port_in_use_is_refused(running: Worker) -> None:
    with pytest.raises(OptionError, match=f"--port {running.port}: Address already in use"):
        start_worker("127.0.0.1", running.port)


def test_sigterm_ends_it_and_it_starts_again_at_the_same_port_for_a_client_that_waits(running: Worker) -> None:
    with socket.create_connection(("127.0.0.1", running.port), 5) as client, client.makefile("rb") as sent:
        running.process.send_signal(signal.SIGTERM)
        printed = running.process.output(timeout_s=60)
        sent.read()  # without unread bytes, the host keeps the worker's end of the connection for a minute
    assert running.process.returncode == 0
    assert '"ended": "SIGTERM"' in printed
    with ThreadPoolExecutor() as threads:
        waits = threads.submit(connected, running.port)
        with started(running.port) as again, waits.result(60):
            assert again.address == running.address


def connected(port: int) -> socket.socket:
    """A connection to a port of this host, as soon as someone listens there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError):
            # Of another address, since a socket can connect to itself where nobody listens.
            return socket.create_connection(("127.0.0.1", port), 5, source_address=("127.0.0.2", 0))
        time.sleep(0.001)
    raise TimeoutError
