"""The description of a cluster: read, joined to one machine, and refused where it is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import placer
from cost_models.machine_files import load_cluster, load_machine
from cost_models.machines import MachineError, host_of, parse_machine
from cost_models.network import Network, known_network, save_network
from cost_models.transfers import LATENCY_IN_A_STEP, copy_costs
from placer.graph.shipped import shipped_graph

TWO_HOSTS = """\
client = "cpu2"
[network]
latency_us = 80
bytes_per_s = 3e9

[[workers]]
address = "host1:2222"
machine = "2xh100"
[[workers]]
address = "10.0.0.2:2222"
machine = "own.toml"
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "own.toml").write_text(load_machine("h100").to_toml())
    (tmp_path / "cluster.toml").write_text(TWO_HOSTS)
    return tmp_path / "cluster.toml"


def test_a_cluster_is_one_machine(written: Path) -> None:
    cluster = load_cluster(written)
    machine = cluster.machine
    assert cluster.addresses == ("host1:2222", "10.0.0.2:2222")
    of_workers = [f"worker:0/{name}" for name in ("CPU:0", "GPU:0", "GPU:1")] + ["worker:1/CPU:0", "worker:1/GPU:0"]
    assert [device.name for device in machine.devices] == ["CPU:0", *of_workers]
    assert "call_us = 2000" in machine.assumed
    assert "latency_us" not in machine.assumed
    assert machine == load_machine(written) == parse_machine(machine.to_toml())
    own = load_machine("h100").device("GPU:0")
    assert machine.device("worker:1/GPU:0").flops == own.flops
    assert machine.device("worker:1/GPU:0").call_ns == own.call_ns + 2_000_000


def test_copies_between_hosts_go_through_both(written: Path) -> None:
    machine = load_machine(written)
    latency, per_byte, _ = copy_costs(machine)
    names = [device.name for device in machine.devices]
    for a, src in enumerate(names):
        for b, dst in enumerate(names):
            if host_of(src) == host_of(dst):
                continue
            hops = [(src, host_of(src)), (host_of(src), host_of(dst)), (host_of(dst), dst)]
            legs = [machine.link(*hop) for hop in hops if hop[0] != hop[1]]
            assert latency[a, b] == round(LATENCY_IN_A_STEP * sum(leg.latency_ns for leg in legs if leg))
            assert np.isclose(per_byte[a, b], sum(1e9 / leg.bytes_per_s for leg in legs if leg))
            hosts = machine.link(host_of(src), host_of(dst))
            assert hosts
            assert per_byte[a + len(names), b + len(names)] == 1e9 / hosts.bytes_per_s


def test_arguments_of_a_client_without_gpus_go_to_workers_at_the_rate_of_the_network(written: Path) -> None:
    plan = placer.solve(shipped_graph("attention_training"), devices=written, pins={"matmul*": "worker:0/CPU:0"})
    [copy] = [copy for copy in plan.transfers if copy.tensor == "x:0" and copy.dst == "worker:0/CPU:0"]
    assert copy.time_ns == pytest.approx(LATENCY_IN_A_STEP * 80e3 + copy.nbytes / 3e9 * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"host1:2222"',
            '"10.0.0.2:2222"',
            r"cluster.toml, line 10: workers\[1\]: address '10.0.0.2:2222' is that of workers\[0\]",
        ),
        ('"host1:2222"', '"host1"', r"line 7: workers\[0\]: address 'host1' must be a host and a port"),
        ('address = "host1:2222"', 'adress = "host1:2222"', r"line 7: workers\[0\]: unknown key 'adress'"),
        ('address = "host1:2222"\n', "", r"line 6: workers\[0\]: key 'address' is missing"),
        ('"2xh100"', '"3xh100"', r"line 8: machine: no shipped machine is called '3xh100'"),
        ('"own.toml"', '"other.toml"', r"line 11: machine: .*other.toml: cannot be read"),
        ('"own.toml"', '"cluster.toml"', "line 11: machine: .*cluster.toml describes a cluster"),
        ("latency_us = 80", 'latency_us = "80"', "line 3: network: latency_us must be a number"),
        ("latency_us = 80", "latency_us = -1", "line 3: network: latency_us is -1"),
        ("bytes_per_s = 3e9", "rate = 3e9", "line 4: network: unknown key 'rate'"),
        ('client = "cpu2"\n', "", "line 1: the file: key 'client' is missing"),
        ("[[workers]]", "[workers]", "line 9.*"),
        ("[network]", "[network", r"line 2"),
    ],
)
def test_errors_name_the_line_and_the_key(written: Path, old: str, new: str, message: str) -> None:
    written.write_text(TWO_HOSTS.replace(old, new))
    with pytest.raises(MachineError, match=message):
        load_machine(written)


def test_a_plan_on_paper(written: Path) -> None:
    graph = shipped_graph("detector")
    plan = placer.solve(graph, str(written), pins={"*NonMaxSuppression*": "worker:1/CPU"}, effort=2_000)
    assert plan.devices == tuple(device.name for device in load_machine(written).devices)
    suppressions = {op.device for name, op in plan.ops.items() if "NonMaxSuppression" in graph.op(name).op_type}
    assert suppressions == {"worker:1/CPU:0"}
    assert any(op.device.endswith("GPU:0") for op in plan.ops.values())
    for text in (plan.summary(), plan.view("ops"), plan.view("timeline"), plan.view("svg"), plan.view("dot")):
        assert "worker:1/CPU:0" in text
    assert "assumed of cluster: the links between hosts: call_us = 2000" in plan.summary()
    path = plan.save(written.parent / "plan.json")
    assert placer.Placement.load(path or written.parent / "plan.json").ops == plan.ops


def test_more_devices_than_bits_in_a_number(written: Path) -> None:
    rows = [f'[[workers]]\naddress = "host{k}:2222"\nmachine = "2xh100"\n' for k in range(24)]
    written.write_text('client = "cpu2"\n' + "".join(rows))
    pins = {"*NonMaxSuppression*": "worker:23/CPU"}
    plan = placer.solve(shipped_graph("detector"), str(written), pins=pins, solver="heft")
    assert len(plan.devices) == 73
    assert "worker:23/CPU:0" in {op.device for op in plan.ops.values()}


def test_a_measured_network_is_that_of_its_workers_however_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    addresses = [f"node{k}.cluster.example.org:2222" for k in range(64)]
    save_network(addresses, Network(latency_us=12.5, bytes_per_s=3e9, call_us=800.0))
    assert known_network(addresses) == {"latency_us": 12.5, "bytes_per_s": 3e9, "call_us": 800.0}
    assert known_network([address.replace(".", "-") for address in addresses]) == {}


def test_no_workers() -> None:
    with pytest.raises(MachineError, match="link CPU:0 -> worker:0/CPU:0 is missing"):
        parse_machine(load_machine("cpu2").to_toml() + _without_links())


def _without_links() -> str:
    described = load_machine("cpu2").to_toml()
    devices = described[described.index("[[devices]]") :].partition("[[links]]")[0]
    return devices.replace('"CPU:0"', '"worker:0/CPU:0"')
