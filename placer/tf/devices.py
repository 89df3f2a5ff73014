"""The devices of this process, and the machine that they are."""

from __future__ import annotations

import functools
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
from cost_models.host_cores import core_cache_bytes, threads_per_core, usable_cores
from cost_models.host_memory import host_bytes
from cost_models.machine_files import load_machine, shipped_machines
from cost_models.machines import DEFAULT_CORE_CACHE_BYTES, DEFAULT_THREADS_PER_CORE, Device, Link, Machine, task_of
from placer.common.device_spec import parse, set_own_task
from placer.common.warning import warn
from placer.tf._private.runtime import own_task
from placer.tf.gpu_use import gpu_use


def process_devices() -> tuple[str, ...]:
    """The CPUs and GPUs of this process, such as ("CPU:0", "GPU:0"). Starts TensorFlow's runtime, after which they are fixed.

    A process can become a task of a cluster. Then its devices have other full names, and the same short ones.
    """
    return _devices_of(own_task())


def is_task() -> bool:
    """Whether this process is a task of a cluster, as under a strategy of several processes. A client of workers is none."""
    return not own_task().startswith("/job:localhost")


@functools.cache
def _devices_of(task: str) -> tuple[str, ...]:
    set_own_task(task)
    names = (parse(d.name).short for kind in ("CPU", "GPU") for d in tf.config.list_logical_devices(kind))
    return tuple(name for name in names if not task_of(name))


def connected_devices() -> tuple[str, ...]:
    """The devices of this process, then those of the other tasks that it is connected to, such as "worker:0/GPU:0"."""
    names = [parse(device.name).short for kind in ("CPU", "GPU") for device in tf.config.list_logical_devices(kind)]
    return (*process_devices(), *(name for name in names if task_of(name)))


def full_name(device: str) -> str:
    """The runtime's name of a device: such as "/job:localhost/replica:0/task:0/device:GPU:0" for "GPU:0"."""
    return parse(device).full


def full_names(device_of: Mapping[str, str]) -> dict[str, str]:
    """The full device name of each op of a plan."""
    full = {device: full_name(device) for device in set(device_of.values())}
    return {name: full[device] for name, device in device_of.items()}


RESERVE_BYTES, RESERVE_SHARE = 64 << 20, 1 / 32
"""Bytes of a GPU's memory, and a share of it, that tensors cannot use: workspaces of libraries, and gaps between allocations."""


def local_machine(planned_bytes: Mapping[str, int] | None = None) -> Machine:
    """A machine of this process's devices, with the constants that `placer calibrate` measured.

    Without a calibration, the constants are those of the shipped machine that is most similar. The provenance says which, and how
    similar it is.

    A GPU's memory is what TensorFlow may use of it, by a limit of the user too. Plans leave out a reserve, the bytes that this
    process already holds, and those that NVML says other programs hold. A CPU's memory is the host's, or the share of a
    container or batch job. Several logical CPUs share the host: each has all of its cores and memory.

    Args:
        planned_bytes: by device: bytes held already that the next plan counts itself, such as those of variables.
    """
    memory_bytes = _memory_bytes()
    models: list[str] = []
    for gpu in tf.config.get_visible_devices("GPU"):
        parts = tf.config.get_logical_device_configuration(gpu) or [None]
        models += [str(tf.config.experimental.get_device_details(gpu).get("device_name", "unknown GPU"))] * len(parts)
    uncalibrated = machine_of(
        cpus=sum(name.startswith("CPU") for name in process_devices()),
        gpus=[(model, memory_bytes[f"GPU:{i}"]) for i, model in enumerate(models)],
        cores=usable_cores(),
        host_bytes=host_bytes(),
        host_model=processor(),
        threads_per_core=threads_per_core(),
        core_cache_bytes=core_cache_bytes(),
    )
    planned = planned_bytes or {}
    held = {f"GPU:{i}": int(tf.config.experimental.get_memory_info(f"GPU:{i}")["current"]) for i in range(len(models))}
    taken, used_by_others = _used_by_others(memory_bytes, held)
    reserves = {name: reserve_bytes(memory_bytes[name], nbytes - planned.get(name, 0)) for name, nbytes in held.items()}
    others = {name: min(nbytes, memory_bytes[name] - 1 - reserves[name]) for name, nbytes in taken.items()}
    machine = with_calibration(uncalibrated)
    return replace(machine, reserve_bytes=reserves, others_bytes=others, used_by_others=used_by_others)


def _used_by_others(memory_bytes: Mapping[str, int], held_bytes: Mapping[str, int]) -> tuple[dict[str, int], str]:
    """By GPU: bytes that TensorFlow may take but other programs hold; and what they use, in words. Warns once of each such GPU.

    Args:
        memory_bytes: by device: what TensorFlow may take.
        held_bytes: by GPU: what tensors of this process hold.
    """
    taken: dict[str, int] = {}
    texts: list[str] = []
    first = 0
    gpus = tf.config.get_visible_devices("GPU")
    for gpu, use in zip(gpus, gpu_use([int(gpu.name.rpartition(":")[2]) for gpu in gpus]), strict=True):
        parts = len(tf.config.get_logical_device_configuration(gpu) or [None])
        name, first = f"GPU:{first}", first + parts
        if use is None:
            continue
        if text := use.by_others(name):
            texts.append(text)
            if name not in _warned_of:
                _warned_of.add(name)
                warn(text)
        # What TensorFlow has taken is its own. With memory growth, and before the first tensor, it has not taken all.
        is_known = use.own_bytes or not held_bytes[name] or tf.config.experimental.get_memory_growth(gpu)
        if parts == 1 and is_known:
            taken[name] = max(0, memory_bytes[name] - max(use.own_bytes, held_bytes[name]) - use.free_bytes)
    return taken, "; ".join(texts)


_warned_of: set[str] = set()
"""GPUs of which a warning said that other programs use them."""


def reserve_bytes(memory_bytes: int, held_bytes: int) -> int:
    """The bytes of a GPU's memory that no plan may use, where `held_bytes` are held by others."""
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
    """A machine of logical CPUs and GPUs, with the constants of a shipped machine.

    The host's rates are the shipped host's, scaled by cores. A GPU of a model that no shipped machine has is priced as an H100,
    since TensorFlow does not give its speed.

    Args:
        cpus: how many logical CPUs the host has.
        gpus: the model and the memory in bytes of each GPU.
        cores, host_bytes, host_model, threads_per_core, core_cache_bytes: of the host.
    """
    shipped = _most_similar([model for model, _ in gpus])
    host = shipped.device("CPU:0")
    scale = cores / host.cores
    scaled = replace(
        host,
        model=f"{cores} {host_model} cores",
        memory_bytes=host_bytes,
        cores=cores,
        threads_per_core=threads_per_core,
        core_cache_bytes=core_cache_bytes,
        flops={dtype: rate * scale for dtype, rate in host.flops.items()},
        memory_bytes_per_s=host.memory_bytes_per_s * scale,
    )
    devices = [replace(scaled, name=f"CPU:{i}") for i in range(cpus)]
    links: list[Link] = []
    notes = [f"the devices of this process with the constants of {shipped.name!r}"]
    notes[0] += f", the host's rates scaled from {host.cores} cores" if cores != host.cores else ""
    notes.append("placer calibrate measures them")
    for i, (model, memory_bytes) in enumerate(gpus):
        shipped_gpu = shipped.device("GPU:0")
        gpu = replace(shipped_gpu, name=f"GPU:{i}", model=model, memory_bytes=memory_bytes)
        for other in [devices[0], *devices[cpus:]]:
            links += _links(shipped, other, gpu)
        devices.append(gpu)
        if shipped_gpu.model not in model:
            notes.append(f"{gpu.name} is a {model} and priced as a {shipped_gpu.model}")
    return Machine(
        name="local",
        devices=tuple(devices),
        links=tuple(links),
        call_overhead_ns=shipped.call_overhead_ns,
        host_hop_ns=shipped.host_hop_ns,
        split_ns=shipped.split_ns,
        argument_ns=shipped.argument_ns,
        passed_ns=shipped.passed_ns,
        waiting_ns=shipped.waiting_ns,
        provenance="; ".join(notes),
        from_data_sheets=shipped.from_data_sheets,
    )


def _most_similar(gpu_models: Sequence[str]) -> Machine:
    """The shipped machine with GPUs of the same models; or else with as many H100s, one or two; or "cpu2" if there is no GPU."""
    machines = map(load_machine, shipped_machines())
    same = [machine for machine in machines if [d.model for d in machine.devices if d.kind == "GPU"] == [*gpu_models][:2]]
    return next(iter(same), None) or load_machine("h100" if len(gpu_models) == 1 else "2xh100")


def _links(shipped: Machine, other: Device, gpu: Device) -> list[Link]:
    """The links between `gpu` and another device, in both directions, with the constants of the shipped machine."""
    first, second = ("CPU:0", "GPU:0") if other.kind == "CPU" else ("GPU:0", "GPU:1")
    links = ((other, gpu, shipped.link(first, second)), (gpu, other, shipped.link(second, first)))
    return [replace(link, src=src.name, dst=dst.name) for src, dst, link in links if link is not None]


def processor() -> str:
    """The name of the processor; the architecture if it has no name."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpuinfo = ""
    return cpu_name(cpuinfo) or platform.machine() or "host"


def _memory_bytes() -> dict[str, int]:
    """By device: the bytes that TensorFlow's allocator may use. No public function of TensorFlow gives them."""
    process_devices()  # the runtime must be up
    devices = pywrap_tfe.TFE_ContextListDevices(context.context()._handle)
    try:
        specs = [
            parse(pywrap_tf_session.TF_DeviceListName(devices, i)) for i in range(pywrap_tf_session.TF_DeviceListCount(devices))
        ]
        sizes = [pywrap_tf_session.TF_DeviceListMemoryBytes(devices, i) for i in range(len(specs))]
        return {spec.short: size for spec, size in zip(specs, sizes, strict=True) if spec.matches(spec.short)}
    finally:
        pywrap_tf_session.TF_DeleteDeviceList(devices)
