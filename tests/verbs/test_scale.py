"""Training on many GPUs, on paper."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from cost_models.all_reduce import Wire, all_gather_ns, ring_ns, tree_ns
from cost_models.network import Network
from placer.command.main import main
from placer.graph.op_graph import OpGraph
from placer.verbs.read_target import read_target
from placer.verbs.scale import exchanged_bytes

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
PROCESSES = st.integers(2, 1024)
BYTES = st.floats(1, 1e12)
WIRES = st.builds(Wire, st.floats(1, 1e7), st.floats(1e6, 1e13))
PRECISION = 1e-6


@given(BYTES, PROCESSES, WIRES)
def test_no_algorithm_is_faster_than_the_rate_allows(nbytes: float, processes: int, wire: Wire) -> None:
    bound = 2 * (processes - 1) / processes * wire.ns(nbytes) * (1 - PRECISION)
    assert ring_ns(nbytes, processes, wire) >= bound
    assert tree_ns(nbytes, processes, wire) >= bound
    assert ring_ns(nbytes, 1, wire) == tree_ns(nbytes, 1, wire) == all_gather_ns(nbytes, 1, wire) == 0


@given(BYTES, PROCESSES, WIRES, st.floats(1, 100))
def test_a_longer_latency_takes_longer(nbytes: float, processes: int, wire: Wire, factor: float) -> None:
    slower = replace(wire, latency_ns=wire.latency_ns * factor)
    for time_ns in (ring_ns, tree_ns, all_gather_ns):
        assert time_ns(nbytes, processes, slower) >= time_ns(nbytes, processes, wire) * (1 - PRECISION)


@given(BYTES, PROCESSES, WIRES, st.floats(1, 100))
def test_trees_are_faster_below_one_size_and_the_ring_above(nbytes: float, processes: int, wire: Wire, factor: float) -> None:
    if processes >= 8:
        assert ring_ns(0, processes, wire) >= tree_ns(0, processes, wire)
    if ring_ns(nbytes, processes, wire) <= tree_ns(nbytes, processes, wire):
        larger = nbytes * factor
        assert ring_ns(larger, processes, wire) <= tree_ns(larger, processes, wire) * (1 + PRECISION)
    huge = processes**2 * wire.latency_ns * wire.bytes_per_s + 1
    assert ring_ns(huge, processes, wire) < tree_ns(huge, processes, wire)


@given(BYTES, PROCESSES, WIRES, st.integers(1, 10_000))
def test_trees_send_pieces_of_the_best_size(nbytes: float, processes: int, wire: Wire, pieces: int) -> None:
    """In a tree, each process passes a piece on to two others, one after the other. Its level is at most log2 p."""

    def in_pieces(count: int) -> float:
        return 2 * (2 * math.ceil(math.log2(processes)) + count) * (wire.latency_ns + wire.ns(nbytes / count))

    best_ns = tree_ns(nbytes, processes, wire)
    assert best_ns <= in_pieces(pieces) * (1 + PRECISION)
    count = math.sqrt(2 * math.ceil(math.log2(processes)) * wire.ns(nbytes) / wire.latency_ns)
    if count >= 1:
        assert in_pieces(round(count)) <= 1.1 * best_ns


def shipped(name: str) -> OpGraph:
    return read_target(f"shipped:{name}")[0]


def test_what_is_exchanged_are_the_gradients() -> None:
    assert exchanged_bytes(shipped("encoder_training")) == (10_545_056, 0)  # not the optimizer's state, twice as much
    assert exchanged_bytes(shipped("resnet50_training"))[0] == pytest.approx(4 * 25.6e6, rel=0.01)
    whole, rows = exchanged_bytes(shipped("recommender_training"))  # 26 tables, of which 8192 rows each are updated
    assert rows == 26 * 8192 * (32 * 4 + 8)
    assert 0 < whole < 3 * 2**20
    assert exchanged_bytes(shipped("detector")) == (0, 0)


def test_one_gpu_is_the_plan_and_more_take_longer_on_a_slower_network() -> None:
    graph = shipped("attention_training")
    fast, slow = (placer.scale(graph, "h100", network=Network(100.0, rate)) for rate in (1e10, 1e9))
    assert [row.gpus for row in fast.rows] == [1, 2, 8, 64, 256, 1024]
    alone = placer.solve(graph, "h100").step_time_ns
    assert fast.rows[0].overlapped_ns == fast.rows[0].in_turn_ns == alone
    for a, b in zip(fast.rows, slow.rows, strict=True):
        assert alone <= a.overlapped_ns <= a.in_turn_ns <= b.in_turn_ns
        assert (a == b) == (a.hosts == 1)
    assert any("given" in text for text in fast.constants)


def test_a_replica_of_two_gpus_exchanges_with_others_only() -> None:
    """Its plan uses both GPUs, so there are half as many replicas as GPUs."""
    graph = shipped("attention_training")
    options: dict[str, Any] = {
        "network": Network(1e4, 1e9),
        "solver": "tf_default",
    }  # a network that is slower than any link within a host
    one, many = placer.scale(graph, "2xh100", gpus=[2, 64], **options).rows
    assert one.ring_ns == one.tree_ns == 0
    assert one.in_turn_ns == placer.solve(graph, "2xh100", solver="tf_default").step_time_ns
    assert (one.hosts, many.hosts) == (1, 8)
    (same,) = placer.scale(graph, "h100", gpus=32, gpus_per_host=4, **options).rows
    assert (many.ring_ns, many.tree_ns) == (same.ring_ns, same.tree_ns)


@pytest.mark.parametrize(
    ("graph", "machine", "numbers", "message"),
    [
        ("attention_training", "cpu2", {}, "has no GPU"),
        ("attention_training", "2xh100", {"gpus": [3]}, "multiple of the 2 GPUs"),
        ("attention_training", "h100", {"gpus": [2048]}, "from 1 to 1024"),
        ("attention_training", "2xh100", {"gpus_per_host": 5}, "multiple of the 2 GPUs"),
        ("attention_training", "h100", {"gpus": []}, "gpus is empty"),
        *(
            ("attention_training", "h100", {name: value}, f"{name}=.* must be a")
            for name, values in {
                "gpus": ("8", 8.0, None, [True], [2.0], ["2"], [0]),
                "gpus_per_host": (0, "8", 8.0, None, True),
                "network": ("fast", {"latency_us": 1}),
            }.items()
            for value in values
        ),
        ("detector", "h100", {}, "give a training step"),
    ],
)
def test_what_cannot_be_scaled(graph: str, machine: str, numbers: dict[str, object], message: str) -> None:
    with pytest.raises(placer.OptionError, match=message):
        placer.scale(shipped(graph), machine, solver="tf_default", **numbers)


def test_numbers_may_come_one_by_one() -> None:
    graph = shipped("attention_training")
    for gpus in (iter([8]), range(8, 9), np.array([8]), 8):
        assert [row.gpus for row in placer.scale(graph, "h100", gpus=gpus, solver="tf_default").rows] == [8]


def test_the_page_has_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "shipped:attention_training", "--devices", "h100"]) == 0
    printed = "".join(f"    {line}".rstrip() + "\n" for line in capsys.readouterr().out.splitlines())
    assert printed in PAGE.read_text()


def test_a_replica_can_have_the_gpus_of_a_worker(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('client = "cpu2"\n[[workers]]\naddress = "host1:2222"\nmachine = "h100"\n')
    graph = shipped("attention_training")
    here, there = (placer.scale(graph, machine, solver="tf_default") for machine in ("h100", str(tmp_path / "cluster.toml")))
    assert [row.ring_ns for row in there.rows] == [row.ring_ns for row in here.rows]
