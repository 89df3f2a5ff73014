"""Servers of TensorFlow as child processes on this host: the workers of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cost_models.machine_files import load_machine

_SERVER = """
import sys
import tensorflow as tf

config = tf.compat.v1.ConfigProto(device_count={"CPU": int(sys.argv[1])})
server = tf.distribute.Server({"worker": ["127.0.0.1:0"]}, job_name="worker", task_index=0, protocol="grpc", config=config)
print(server.target.removeprefix("grpc://"), flush=True)
server.join()
"""


@contextmanager
def workers(cpus: Sequence[int]) -> Iterator[list[str]]:
    """Starts a worker for each number, with so many CPU devices; yields their addresses. Ends them with the block."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    started = [
        subprocess.Popen([sys.executable, "-c", _SERVER, str(n)], stdout=subprocess.PIPE, text=True, env=environment)
        for n in cpus
    ]
    try:
        addresses = []
        for process in started:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "a worker ended before it listened"
            addresses.append(address)
        yield addresses
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
