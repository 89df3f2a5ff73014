"""What this process sees: TensorFlow's devices and the machine they make up."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import context

from cost_models.calibrations import with_calibration
from cost_models.cpu_names import cpu_name
from cost_models.host_cores import core_cache_bytes, threads_per_core
from cost_models.host_memory import host_bytes
from cost_models.machines import DEFAULT_CORE_CACHE_BYTES, DEFAULT_THREADS_PER_CORE, Device, Link, Machine, load_machine
from placer.common.device_spec import parse


@functools.cache
def process_devices() -> tuple[str, ...]:
    """The CPUs and GPUs of this process, ("CPU:0", "GPU:0"). Asking starts TensorFlow's runtime, after which they are fixed."""
    specs = [parse(d.name) for kind in ("CPU", "GPU") for d in tf.config.list_logical_devices(kind)]
    return tuple(spec.short for spec in specs if spec.job in (None, "localhost"))


def full_name(device: str) -> str:
    """The name the runtime gives a device of this process: "GPU:0" is "/job:localhost/replica:0/task:0/device:GPU:0"."""
    return parse(device).full


RESERVE_BYTES, RESERVE_SHARE = 64 << 20, 1 / 32
"""Of a GPU's memory what is not for tensors: libraries' workspaces, and gaps that its allocator cannot fill."""


def local_machine(planned_bytes: Mapping[str, int] | None = None) -> Machine:
    """This process's devices with the constants that `placer calibrate` found, else those of the shipped machine that fits best.

    The provenance says which, and how well it fits.

    A GPU's memory is what TensorFlow may take of it, a limit set by the user included, less a reserve and what this process
    holds there already; a CPU's is the host's, or what a container or a batch job may have of it. Several logical CPUs share
    the host, and each is given all of its cores and memory.

    Args:
        planned_bytes: by device: what of that, such as variables, the plan to be made counts itself.
    """
    memory_bytes = _memory_bytes()
    models: list[str] = []
    for gpu in tf.config.get_visible_devices("GPU"):
        parts = tf.config.get_logical_device_configuration(gpu) or [None]
        models += [str(tf.config.experimental.get_device_details(gpu).get("device_name", "unknown GPU"))] * len(parts)
    seen = machine_of(
        cpus=sum(name.startswith("CPU") for name in process_devices()),
        gpus=[(model, memory_bytes[f"GPU:{i}"]) for i, model in enumerate(models)],
        cores=len(os.sched_getaffinity(0)),
        host_bytes=host_bytes(),
        host_model=_processor(),
        threads_per_core=threads_per_core(),
        core_cache_bytes=core_cache_bytes(),
    )
    ours = planned_bytes or {}
    held = {f"GPU:{i}": int(tf.config.experimental.get_memory_info(f"GPU:{i}")["current"]) for i in range(len(models))}
    reserves = {name: reserve_bytes(memory_bytes[name], nbytes - ours.get(name, 0)) for name, nbytes in held.items()}
    return replace(with_calibration(seen), reserve_bytes=reserves)


def reserve_bytes(memory_bytes: int, held_bytes: int) -> int:
    """What of a GPU's memory no plan may count on, where so much is held that is not the plan's."""
    reserve = RESERVE_BYTES + round(RESERVE_SHARE * memory_bytes) + max(0, held_bytes)
    return min(reserve, memory_bytes - 1)


def machine_of(
    cpus: int,
    gpus: Sequence[tuple[str, int]],
    cores: int,
    host_bytes: int,
    host_model: str = "host",
    threads_per_core: int = DEFAULT_THREADS_PER_CORE,
    core_cache_bytes: int = DEFAULT_CORE_CACHE_BYTES,
) -> Machine:
    """A machine of `cpus` logical CPUs on one host of `cores` cores, and of GPUs given by model and memory in bytes.

    The host's rates are the shipped host's, scaled by cores. GPUs of whatever model are priced as the shipped one, since
    TensorFlow tells nothing of their speed.
    """
    like = load_machine("cpu2" if not gpus else "h100" if len(gpus) == 1 else "2xh100")
    host = like.device("CPU:0")
    scale = cores / host.cores
    priced = replace(
        host,
        model=f"{cores} {host_model} cores",
        memory_bytes=host_bytes,
        cores=cores,
        threads_per_core=threads_per_core,
        core_cache_bytes=core_cache_bytes,
        threads=round(host.threads * scale),
        flops={dtype: rate * scale for dtype, rate in host.flops.items()},
        memory_bytes_per_s=host.memory_bytes_per_s * scale,
    )
    devices = [replace(priced, name=f"CPU:{i}") for i in range(cpus)]
    links: list[Link] = []
    notes = [f"the devices of this process with the constants of {like.name!r}"]
    notes[0] += f", the host's rates scaled from {host.cores} cores" if cores != host.cores else ""
    notes.append("placer calibrate measures them")
    for i, (model, memory_bytes) in enumerate(gpus):
        shipped = like.device("GPU:0")
        gpu = replace(shipped, name=f"GPU:{i}", model=model, memory_bytes=memory_bytes)
        for other in [devices[0], *devices[cpus:]]:
            links += _links(like, other, gpu)
        devices.append(gpu)
        if shipped.model not in model:
            notes.append(f"{gpu.name} is a {model} and priced as a {shipped.model}")
    return Machine(
        name="local",
        devices=tuple(devices),
        links=tuple(links),
        call_overhead_ns=like.call_overhead_ns,
        host_hop_ns=like.host_hop_ns,
        split_ns=like.split_ns,
        argument_ns=like.argument_ns,
        passed_ns=like.passed_ns,
        waiting_ns=like.waiting_ns,
        provenance="; ".join(notes),
    )


def _links(like: Machine, one: Device, gpu: Device) -> list[Link]:
    """Both directions between `gpu` and a device before it, as the shipped machine has them."""
    first, last = ("CPU:0", "GPU:0") if one.kind == "CPU" else ("GPU:0", "GPU:1")
    shipped = ((one, gpu, like.link(first, last)), (gpu, one, like.link(last, first)))
    return [replace(link, src=src.name, dst=dst.name) for src, dst, link in shipped if link is not None]


def _processor() -> str:
    """What the processor is called; the architecture where it has no name."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpuinfo = ""
    return cpu_name(cpuinfo) or platform.machine() or "host"


def _memory_bytes() -> dict[str, int]:
    """What TensorFlow's allocator may take on each device. There is no public way to ask."""
    process_devices()  # the runtime must be up
    found = pywrap_tfe.TFE_ContextListDevices(context.context()._handle)
    try:
        specs = [parse(pywrap_tf_session.TF_DeviceListName(found, i)) for i in range(pywrap_tf_session.TF_DeviceListCount(found))]
        sizes = [pywrap_tf_session.TF_DeviceListMemoryBytes(found, i) for i in range(len(specs))]
        return {spec.short: size for spec, size in zip(specs, sizes, strict=True) if spec.matches(spec.short)}
    finally:
        pywrap_tf_session.TF_DeleteDeviceList(found)
