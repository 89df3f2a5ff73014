"""Servers of TensorFlow as child processes on this host: the workers of a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cost_models.machine_files import load_machine
from tests.helpers.forked import Program

_SERVER = """
import sys
import tensorflow as tf

config = tf.compat.v1.ConfigProto(device_count={"CPU": int(sys.argv[1])})
cluster = {"worker": [f"127.0.0.1:{sys.argv[2]}"]}
server = tf.distribute.Server(cluster, job_name="worker", task_index=0, protocol="grpc", config=config)
print(server.target.removeprefix("grpc://"), flush=True)
server.join()
"""


def begun(cpus: int, port: int = 0) -> Program:
    """Begins to start a worker with so many CPU devices."""
    return Program("-c", _SERVER, str(cpus), str(port), environment={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"})


def address_of(process: Program) -> str:
    """The address of a worker, as soon as it listens."""
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "a worker ended before it listened"
    return address


@contextmanager
def workers(cpus: Sequence[int]) -> Iterator[list[str]]:
    """Starts a worker for each number, with so many CPU devices; yields their addresses. Ends them with the block."""
    started = [begun(n) for n in cpus]
    try:
        yield [address_of(process) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def machine_file(folder: Path, cpus: int) -> str:
    """Writes the description of a host with so many CPU devices; the file's name."""
    described = load_machine("cpu2")
    devices = tuple(replace(described.device("CPU:0"), name=f"CPU:{k}") for k in range(cpus))
    path = folder / f"cpu{cpus}.toml"
    path.write_text(replace(described, devices=devices).to_toml())
    return path.name
