"""A calibration can be loaded again, is used by later plans, and fits the copies that it was made from."""

from __future__ import annotations

import pwd
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import placer
from cost_models.base import OpSignature
from cost_models.cache import cache_folder
from cost_models.calibrations import calibration_file, save_calibration, with_calibration, with_constants
from cost_models.machine_files import load_machine
from cost_models.machines import Machine
from cost_models.measurements import Measurement
from cost_models.measuring import calibration, links
from cost_models.measuring.calibration import Calibration
from cost_models.measuring.calls import call_times_ns, per_passed_tensor_ns, per_variable_ns
from cost_models.measuring.links import CopyTime, copy_times, latency_and_rate
from cost_models.ops import UnmeasurableError, work_of
from cost_models.store import Store
from placer.command.main import main
from placer.common.device_spec import parse
from placer.tf._private.runtime import recorded_partitions
from placer.tf.devices import local_machine
from tests.helpers.graphs import layers
from tests.helpers.machines import cpus, two_cpus


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    return tmp_path


def test_later_plans_use_the_calibration(
    cache: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.get_logger(), "handlers", [caplog.handler])
    before = local_machine()
    assert main(["calibrate", "--budget-s", "5", "--json"]) == 0
    assert not caplog.messages  # the user cannot do anything about TensorFlow's warnings
    calibrated = local_machine()
    assert load_machine(calibration_file(before)).provenance == calibrated.provenance != before.provenance
    assert [(d.name, d.model, d.memory_bytes, d.cores) for d in calibrated.devices] == [
        (d.name, d.model, d.memory_bytes, d.cores) for d in before.devices
    ]
    for device in calibrated.devices:
        assert 0 < device.dispatch_ns < 10**6
        assert all(0 < rate < 1e15 for rate in (device.memory_bytes_per_s, *device.flops.values()))
    assert 0 < calibrated.call_overhead_ns < 10**8
    assert sum(Store().counts().values()) >= 5

    graph = layers(width=32)
    assert placer.solve(graph).step_time_ns == placer.solve(graph, calibrated).step_time_ns
    capsys.readouterr()
    assert main(["devices"]) == 0
    assert "measured here by placer calibrate" in capsys.readouterr().out
    assert main(["calibrate", "--budget-s", "-1"]) == 2

    def full(_: Calibration) -> Machine:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(Calibration, "machine", full)
    assert main(["calibrate"]) == 1
    assert "cannot be measured: TensorFlow refuses: OOM" in capsys.readouterr().err

    (cache / "taken").write_text("")
    monkeypatch.setenv("PLACER_CACHE", str(cache / "taken"))
    monkeypatch.setattr(Calibration, "machine", lambda _: pytest.fail("measured before the folder was checked"))
    assert main(["calibrate"]) == 1


def test_a_calibration_is_used_for_its_devices_only(cache: Path) -> None:
    one, two = load_machine("h100"), load_machine("2xh100")
    assert with_calibration(one) == one
    faster = replace(one, call_overhead_ns=7, provenance="measured")
    save_calibration(faster)
    assert with_calibration(one) == faster
    assert with_calibration(two) == two
    calibration_file(one).write_text("name = ")
    with pytest.warns(UserWarning, match="placer calibrate makes a new one"):
        assert with_calibration(one) == one


def test_a_calibration_is_used_with_fewer_devices_too(cache: Path) -> None:
    one, two = load_machine("h100"), load_machine("2xh100")
    host = replace(one, devices=one.devices[:1], links=(), reserve_bytes={})
    save_calibration(replace(with_constants(two, one), call_overhead_ns=7, provenance="measured"))
    for fewer in (one, host):
        assert with_calibration(fewer).call_overhead_ns == 7
        assert [device.name for device in with_calibration(fewer).devices] == [device.name for device in fewer.devices]
    other_host = replace(one, devices=(replace(one.devices[0], model=f"{one.devices[0].model} v2"), *one.devices[1:]))
    assert with_calibration(other_host) == other_host
    calibration_file(two).write_text("name = ")
    assert with_calibration(one) == one


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setenv("PLACER_CACHE", "")
    assert cache_folder() == Path("/somewhere/placer")
    monkeypatch.setenv("PLACER_CACHE", "~/mine")
    assert cache_folder() == Path.home() / "mine"
    monkeypatch.setenv("PLACER_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache/placer"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # as in a container that runs as some user of its own
    assert cache_folder().parent == Path(tempfile.gettempdir())


def test_devices_of_one_model_get_the_same_constants() -> None:
    """Two GPUs get the constants measured on one, and the link between them keeps its constants."""
    one, two = load_machine("h100"), load_machine("2xh100")
    devices, links = [replace(d, dispatch_ns=9) for d in one.devices], [replace(link, latency_ns=1) for link in one.links]
    merged = with_constants(two, replace(one, devices=tuple(devices), links=tuple(links)))
    assert {d.dispatch_ns for d in merged.devices} == {9}
    assert [d.name for d in merged.devices] == [d.name for d in two.devices]
    assert [(link.src, link.dst) for link in merged.links] == [(link.src, link.dst) for link in two.links]
    for link in merged.links:
        assert (link.latency_ns == 1) == ("CPU:0" in (link.src, link.dst))


@pytest.mark.parametrize("like", [load_machine("h100"), load_machine("2xh100"), two_cpus(), cpus(3)], ids=lambda m: m.name)
def test_the_constants_of_calls_are_separated(like: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that take as long as a machine says give this machine; the overhead of every call is measured on the host."""
    own = {"GPU:0": 90_000, "GPU:1": 300_000}
    devices = tuple(replace(d, call_ns=own.get(d.name, 0), cold_ns=7_000 if d.name in own else 3_000) for d in like.devices)
    calls = {"call_overhead_ns": 150_000, "argument_ns": 4_000, "passed_ns": 6_000, "waiting_ns": 200_000}
    machine = replace(like, devices=devices, split_ns=50_000, **calls)

    def call_ns(names: list[str]) -> int:
        used = [machine.device(name) for name in names]
        own_ns = max(d.call_ns for d in used) + used[-1].dispatch_ns + used[-1].min_kernel_ns
        each_ns = machine.argument_ns + machine.passed_ns
        return machine.call_overhead_ns + each_ns * len(names) + own_ns + machine.split_ns * (len(names) - 1)

    host = machine.devices[0]
    on_host = {
        "per_variable_ns": machine.argument_ns + 2 * host.host_op_ns,
        "per_passed_tensor_ns": machine.argument_ns + machine.passed_ns,
    }
    for name, takes in {**on_host, "waiting_ns": machine.waiting_ns}.items():
        monkeypatch.setattr(calibration, name, {host.name: takes}.__getitem__)
    monkeypatch.setattr(calibration, "cold_ns", lambda name: machine.device(name).cold_ns)
    monkeypatch.setattr(calibration, "call_times_ns", lambda groups: [call_ns(names) for names in groups])
    uncalibrated = replace(like, devices=tuple(replace(d, call_ns=1) for d in like.devices))
    assert Calibration(uncalibrated, 10.0, lambda *_: None)._with_call_constants(uncalibrated) == machine
    assert with_constants(like, machine).devices == machine.devices


@pytest.mark.parametrize(
    ("cores", "alone", "together", "per_core"), [(16, 134e9, 1.1e12, 2), (2, 270e9, 525e9, 1), (2, 5e11, 525e9, 2)]
)
def test_threads_per_core_follow_from_a_product_on_one_core(
    cores: int, alone: float, together: float, per_core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(op: OpSignature, *_: object) -> Measurement:
        compute_ns = round(work_of(op).flops * 1e9 / alone)
        return Measurement(compute_ns, 0, compute_ns, 0.0)

    monkeypatch.setattr(calibration, "measure", measured)
    host = replace(two_cpus().devices[0], cores=cores, threads_per_core=4, flops={"float32": together, "default": 1e9})
    assert Calibration(two_cpus(), 10.0, lambda *_: None)._threads_per_core(host) == per_core


@pytest.mark.parametrize("measure", [lambda device: call_times_ns([[device]]), per_passed_tensor_ns, per_variable_ns])
def test_a_measured_call_stays_on_its_device(measure: Callable[[str], object]) -> None:
    """So do its results, which TensorFlow would pass through ops on the default device."""
    for device in ("CPU:1", "CPU:0"):
        with recorded_partitions() as graphs:
            measure(device)
        used = {parse(node.device).short for graph in graphs for part in graph.partition_graphs for node in part.node}
        assert used == {device}


def test_a_constant_lost_in_the_noise_is_named_and_keeps_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(op: OpSignature, *_: object) -> Measurement:
        if op.op_type in lost_types:
            raise UnmeasurableError("its time is lost in the noise")
        return Measurement(2_000, 0, 2_000, 0.1)

    host = replace(two_cpus().devices[0], cores=1, dispatch_ns=11, host_op_ns=13)
    monkeypatch.setattr(calibration, "measure", lost)
    monkeypatch.setattr(calibration, "traffic_bytes_per_s", lambda *_: 1e10)
    for lost_types, named in (({"AddV2"}, ["dispatch"]), ({"MatMul", "Shape"}, ["ops that start no kernel", "matrix rates"])):
        measuring = Calibration(two_cpus(), 10.0, lambda *_: None)
        device = measuring._device(host)
        assert measuring.unmeasured == [f"{what} of {host.name}" for what in named]
        assert (device.dispatch_ns == 11) == ("AddV2" in lost_types)
        assert (device.host_op_ns == 13) == ("Shape" in lost_types)


@given(st.integers(1_000, 10**6), st.floats(1e8, 1e12), st.integers(0, 2**32 - 1))
def test_latency_and_rate_fit_copies_of_all_sizes(latency_ns: int, bytes_per_s: float, seed: int) -> None:
    sizes = (4, 2**12, 2**16, 2**20, 2**24, 2**26, 2**28)
    noise = np.random.default_rng(seed).normal(1, 0.01, len(sizes))
    exact = [latency_ns + 1e9 * nbytes / bytes_per_s for nbytes in sizes]
    fitted_ns, rate = latency_and_rate([CopyTime(n, round(t * f)) for n, t, f in zip(sizes, exact, noise, strict=True)])
    for nbytes, time_ns in zip(sizes, exact, strict=True):
        assert fitted_ns + 1e9 * nbytes / rate == pytest.approx(time_ns, rel=0.1)


@pytest.mark.parametrize("made_by_op", [True, False])
def test_copies_between_two_devices_take_time(made_by_op: bool) -> None:
    """Two logical CPUs share their memory, so only the hand-over takes time; a GPU's link is measured by the same calls."""
    times = copy_times("CPU:0", "CPU:1", (4, 2**16), 0.02, made_by_op=made_by_op)
    assert [copy.nbytes for copy in times] == [4, 2**16]
    assert all(0 < copy.time_ns < 10**8 for copy in times)


def test_copies_that_do_not_fit_into_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    per_round = links._round_ns
    monkeypatch.setattr(links, "_round_ns", lambda *args: (full if args[2] > 4 else per_round)(*args))
    assert [copy.nbytes for copy in copy_times("CPU:0", "CPU:1", (4, 2**16, 2**28), 0.01)] == [4]
    with pytest.raises(tf.errors.ResourceExhaustedError):
        copy_times("CPU:0", "CPU:1", (2**16, 2**28), 0.01)
