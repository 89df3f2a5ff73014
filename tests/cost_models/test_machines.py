"""Machines survive TOML, say what is wrong with them, and price copies consistently."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from cost_models import Device, Link, Machine, MachineError, copy_costs, load_machine, parse_machine, shipped_machines
from cost_models.machines import MAX_NS, MIN_RATE_PER_S
from cost_models.transfers import LATENCY_IN_A_STEP, unpinned_factor
from tests.helpers.graphs import towers

H100, TWO = load_machine("h100"), load_machine("2xh100")

times = st.integers(0, 10**12)
rates = st.floats(1e6, 1e24)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def machines(draw):
    kinds = ["CPU", *draw(st.lists(st.sampled_from(["CPU", "GPU"]), max_size=3))]
    devices = tuple(
        Device(
            name=f"{kind}:{kinds[:i].count(kind)}",
            kind=kind,
            model=draw(texts),
            memory_bytes=draw(st.integers(1, 2**60)),
            asynchronous=draw(st.booleans()),
            dispatch_ns=draw(times),
            min_kernel_ns=draw(times),
            flops={"default": draw(rates), **draw(st.dictionaries(texts, rates, max_size=2))},
            memory_bytes_per_s=draw(rates),
            cores=draw(st.integers(1, 256)),
        )
        for i, kind in enumerate(kinds)
    )
    links = tuple(
        Link(a.name, b.name, draw(times), draw(rates), interval_ns=draw(times))
        for a in devices
        for b in devices
        if a is not b and ((a.kind != b.kind and "CPU:0" in (a.name, b.name)) or draw(st.booleans()))
    )
    reserve = {d.name: draw(st.integers(0, d.memory_bytes - 1)) for d in devices if draw(st.booleans())}
    free = {d.name: d.memory_bytes - 1 - reserve.get(d.name, 0) for d in devices}
    others = {name: draw(st.integers(0, most)) for name, most in free.items() if draw(st.booleans())}
    return Machine(draw(texts), devices, links, draw(times), draw(times), draw(texts), reserve, others_bytes=others)


@given(machines())
def test_toml_round_trip(machine):
    assert parse_machine(machine.to_toml()) == machine


@given(machines())
def test_only_copies_that_move_nothing_are_free(machine):
    latency, per_byte, interval = copy_costs(machine)
    count = len(machine.devices)
    assert latency.shape == per_byte.shape == (2 * count, 2 * count)
    assert (latency >= 0).all()
    assert (per_byte >= 0).all()
    for matrix in (latency, per_byte, interval):
        assert not matrix.diagonal().any()
        for d, device in enumerate(machine.devices):
            if device.kind == "CPU":  # both views are the host
                np.testing.assert_array_equal(matrix[d], matrix[count + d])
                np.testing.assert_array_equal(matrix[:, d], matrix[:, count + d])
            else:  # into or out of a GPU's own memory bytes must move, whoever looks
                others = [p for p in range(2 * count) if p != d]
                assert (per_byte[d, others] > 0).all()
                assert (per_byte[others, d] > 0).all()


def test_directions_and_views_of_host_memory_differ():
    latency, per_byte, _ = copy_costs(TWO)
    cpu, gpu0, gpu1, host0, host1 = 0, 1, 2, 4, 5
    assert per_byte[cpu, gpu0] > per_byte[gpu0, cpu]
    assert unpinned_factor(TWO) > 2  # arguments and variables of the host take about three times as long as what ops make
    assert latency[gpu0, host0] == latency[gpu0, cpu]
    assert per_byte[gpu0, host0] == per_byte[gpu0, cpu]
    assert latency[gpu0, host1] == latency[gpu0, cpu]
    assert latency[host0, cpu] == latency[cpu, host1] == round(LATENCY_IN_A_STEP * TWO.host_hop_ns)
    assert per_byte[host0, cpu] == 0
    assert per_byte[gpu0, gpu1] < per_byte[gpu0, cpu] < per_byte[cpu, gpu1]


def test_without_a_direct_link_a_copy_goes_through_the_host():
    apart = dataclasses.replace(TWO, links=tuple(link for link in TWO.links if "CPU:0" in (link.src, link.dst)))
    latency, per_byte, _ = copy_costs(apart)
    assert latency[1, 2] == latency[1, 0] + latency[0, 2]
    assert per_byte[1, 2] == pytest.approx(per_byte[1, 0] + per_byte[0, 2])


@pytest.mark.parametrize(
    ("src", "dst", "nbytes", "measured_us"),
    [
        ("CPU:0", "GPU:0", 256, 141),
        ("CPU:0", "GPU:0", 2**18, 181),
        ("CPU:0", "GPU:0", 2**22, 958),
        ("CPU:0", "GPU:0", 2**26, 6900),
        ("GPU:0", "GPU:1", 256, 94),
        ("GPU:0", "GPU:1", 2**26, 668),
    ],
)
def test_round_trips_are_near_measured_ones(src, dst, nbytes, measured_us):
    """What was measured has an op at each end, which takes a share that grows with the bytes; what is predicted has none."""
    latency, per_byte, _ = copy_costs(TWO)
    names = [d.name for d in TWO.devices]
    a, b = names.index(src), names.index(dst)
    predicted = latency[a, b] + latency[b, a] + nbytes * (per_byte[a, b] + per_byte[b, a])
    assert (0.3 if nbytes >= 2**20 else 0.5) < predicted / (measured_us * 1e3) < 2


def test_shipped_machines():
    assert set(shipped_machines()) >= {"h100", "2xh100", "cpu2"}
    for name in shipped_machines():
        machine = load_machine(name)
        assert machine.name == name
        assert machine.provenance
    assert [d.name for d in TWO.devices] == ["CPU:0", "GPU:0", "GPU:1"]


@pytest.mark.parametrize("name", shipped_machines())
def test_a_plan_for_a_machine_that_was_not_measured_says_so(name):
    machine = load_machine(name)
    said = "from data sheets, not measured" in placer.solve(towers(), machine, solver="tf_default").summary()
    assert said == machine.from_data_sheets == ("not measured" in machine.provenance)


def test_a_machine_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(H100.to_toml())
    assert load_machine(path) == load_machine(str(path)) == H100


TEXT = H100.to_toml()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", ["x.toml", "TOML"]),
        (TEXT.replace("cores = 132", "kores = 132"), ["x.toml", "devices[1]", "kores", "cores"]),
        (TEXT.replace("cores = 132", 'cores = "many"'), ["devices[1]", "cores", "whole number", "many"]),
        (TEXT.replace("cores = 132", "cores = 0"), ["GPU:0", "cores", "0"]),
        (TEXT.replace('kind = "GPU"', 'kind = "TPU"'), ["TPU", "CPU", "GPU"]),
        (TEXT.replace('name = "GPU:0"', 'name = "/GPU:0"'), ["/GPU:0"]),
        (TEXT.replace('dst = "GPU:0"', 'dst = "GPU:7"'), ["GPU:7", "CPU:0, GPU:0"]),
        (TEXT.split("[[links]]")[0], ["GPU:0 -> CPU:0", "missing"]),
        (TEXT.replace("call_overhead_ns", "call_overhead_us"), ["call_overhead_us", "call_overhead_ns"]),
        ("\n".join(line for line in TEXT.splitlines() if "call_overhead_ns" not in line), ["call_overhead_ns", "missing"]),
        ("devices = 3", ["devices", "[[devices]]"]),
    ],
)
def test_an_error_names_the_place(text, words):
    with pytest.raises(MachineError) as caught:
        parse_machine(text, "x.toml")
    assert all(word in str(caught.value) for word in words), caught.value


SIZES = ("memory_bytes", "cores", "memory_bytes_per_s", "bytes_per_s")
DEVICE_TIMES = ("dispatch_ns", "min_kernel_ns", "host_op_ns", "wake_ns", "cold_ns")
TIMES = (*DEVICE_TIMES, "latency_ns", "call_overhead_ns", "argument_ns", "passed_ns", "waiting_ns", "host_hop_ns")


@pytest.mark.parametrize("key", [*SIZES, *TIMES])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e-300", f"{10**30}", f"{10**400}", "true", '"1"'])
def test_a_number_out_of_range_is_refused(key, value):
    text = re.sub(rf"^{key} = .*$", f"{key} = {value}", TEXT, flags=re.MULTILINE)
    with pytest.raises(MachineError, match=key):
        parse_machine(text)


@pytest.mark.parametrize("machine", [H100, TWO], ids=lambda m: m.name)
def test_costs_on_the_slowest_possible_machine_are_integers(machine):
    slow = dataclasses.replace(
        machine,
        devices=tuple(
            dataclasses.replace(d, memory_bytes_per_s=MIN_RATE_PER_S, flops={"default": MIN_RATE_PER_S}) for d in machine.devices
        ),
        links=tuple(dataclasses.replace(link, latency_ns=MAX_NS, bytes_per_s=MIN_RATE_PER_S) for link in machine.links),
        host_hop_ns=MAX_NS,
    )
    plan = placer.solve(towers(), slow, solver="tf_default")
    assert plan.step_time_ns > MAX_NS
    assert plan.total_cost_ns > MAX_NS


def test_errors_about_unknown_names_list_the_known_ones():
    with pytest.raises(MachineError, match=r"2xh100.*h100"):
        load_machine("h300")
    with pytest.raises(MachineError, match=r"nowhere\.toml"):
        load_machine("nowhere.toml")
    with pytest.raises(MachineError, match=r"GPU:1.*CPU:0, GPU:0"):
        H100.device("GPU:1")
