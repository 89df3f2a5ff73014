"""What the process sees, and the machine made of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from cost_models import host_cores, host_memory
from cost_models.cpu_names import cpu_generation, cpu_name, without_generation
from cost_models.machine_files import load_machine, shipped_machines
from cost_models.machines import Machine, parse_machine
from placer.tf.devices import full_name, local_machine, machine_of, process_devices, reserve_bytes


def test_devices_are_those_tensorflow_lists() -> None:
    kinds = [d.device_type for d in tf.config.list_logical_devices() if d.device_type in ("CPU", "GPU")]
    assert sorted(name.split(":")[0] for name in process_devices()) == sorted(kinds)
    for name in process_devices():
        with tf.device(name):
            assert tf.random.uniform([]).device == full_name(name)


def test_local_machine_has_exactly_this_process_devices() -> None:
    machine = local_machine()
    assert tuple(d.name for d in machine.devices) == process_devices()
    host = machine.device("CPU:0")
    assert host.cores == len(os.sched_getaffinity(0))
    assert 2**28 < host.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert parse_machine(machine.to_toml()) == machine


@given(
    cpus=st.integers(1, 3),
    gpus=st.lists(st.tuples(st.sampled_from(["NVIDIA H100 80GB HBM3", "Tesla V100"]), st.integers(2**30, 2**37)), max_size=4),
    cores=st.integers(1, 128),
)
def test_machines_are_whole(cpus: int, gpus: list[tuple[str, int]], cores: int) -> None:
    machine: Machine = machine_of(cpus, gpus, cores, 2**35)
    assert [d.name for d in machine.devices] == [f"CPU:{i}" for i in range(cpus)] + [f"GPU:{i}" for i in range(len(gpus))]
    assert [(d.model, d.memory_bytes) for d in machine.devices if d.kind == "GPU"] == gpus
    own = ["CPU:0", *(f"GPU:{i}" for i in range(len(gpus)))]
    assert {(link.src, link.dst) for link in machine.links} == {(a, b) for a in own for b in own if a != b}
    for i, (model, _) in enumerate(gpus):
        assert (f"GPU:{i} is a {model} and priced as" in machine.provenance) == ("H100" not in model)


@pytest.mark.parametrize("name", shipped_machines())
def test_a_shipped_machine_comes_out_as_it_is(name: str) -> None:
    """The same GPUs and as many cores are priced as the shipped machine."""
    shipped = load_machine(name)
    host, *gpus = shipped.devices
    models = [(gpu.model, gpu.memory_bytes) for gpu in gpus]
    host_model = host.model.removeprefix(f"{host.cores} ").removesuffix(" cores")
    machine = machine_of(1, models, host.cores, host.memory_bytes, host_model, host.threads_per_core, host.core_cache_bytes)
    same = replace(shipped, name=machine.name, provenance=machine.provenance, reserve_bytes={})
    assert machine == same
    fewer = machine_of(1, models, host.cores - 1, host.memory_bytes)
    assert ["scaled from" in each.provenance for each in (machine, fewer)] == [False, True]


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("AMD EPYC", "AMD EPYC (family 25, model 1)"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel(R) Xeon(R) CPU @ 2.20GHz (family 25, model 1)"),
        ("AMD EPYC 7B13 64-Core Processor", "AMD EPYC 7B13 64-Core Processor"),
        ("", ""),
    ],
)
def test_a_processor_whose_name_hides_its_generation_is_told_from_others(name: str, called: str) -> None:
    one = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
    one += f"model name\t: {name}\n" if name else ""
    assert cpu_name(f"{one}\n{one.replace('25', '26')}") == called
    assert cpu_generation(f"2 {called} cores") == ((25, 1) if "family" in called else None)
    assert without_generation(f"2 {called} cores") == f"2 {name} cores"


@given(st.integers(2**27, 2**37), st.integers(-(2**37), 2**37))
def test_what_is_held_and_a_reserve_are_not_for_plans(memory: int, held: int) -> None:
    left = memory - reserve_bytes(memory, held)
    assert 0 < left < memory
    assert left <= max(1, memory - held)
    assert reserve_bytes(memory, held) == reserve_bytes(memory, max(0, held)) >= reserve_bytes(memory, 0)


def test_host_rates_grow_with_cores() -> None:
    few, many = (machine_of(1, [], cores, 2**35).device("CPU:0") for cores in (2, 8))
    assert many.flops["float32"] == pytest.approx(4 * few.flops["float32"])
    assert many.memory_bytes_per_s == pytest.approx(4 * few.memory_bytes_per_s)


def test_a_system_without_the_files_of_linux_has_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(host_memory, "PROC", tmp_path)
    monkeypatch.setattr(host_cores, "CPU_FOLDER", tmp_path)
    host = local_machine().device("CPU:0")
    assert host.cores == os.cpu_count()
    assert host.memory_bytes > 1 << 28
