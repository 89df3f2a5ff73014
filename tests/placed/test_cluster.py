"""Functions that run over several processes: a client and two workers on this host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import placer
from tests.helpers.clients import failures_in
from tests.helpers.cluster_client import scenario
from tests.helpers.workers import workers


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with workers([1, 2]) as addresses:
        return failures_in("tests.helpers.cluster_client", *addresses, TMPDIR=str(tmp_path_factory.mktemp("client")))


@pytest.mark.parametrize("name", scenario.by_name)
def test_of_several_processes(failures: dict[str, str], name: str) -> None:
    assert failures[name] == "", failures[name]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give one of the two"),
        ({"description": "cluster.toml", "workers": ["a:1"]}, "give one of the two"),
        *(({"workers": workers}, "no list of addresses") for workers in ("a:1", 3, {"a:1"}, iter(["a:1"]), [None])),
        *(({"description": given}, "no path") for given in (3, ["a:1"], placer.load_machine("cpu2"))),
        ({"workers": ["a:1", "b"]}, r"workers\[1\]: address 'b' must be a host and a port"),
        ({"workers": ["a:1", "a:1"]}, r"workers\[1\]: address 'a:1' is that of workers\[0\]"),
    ],
)
def test_what_cannot_be_connected(given: dict[str, object], message: str) -> None:
    with pytest.raises(placer.OptionError, match=message):
        placer.cluster(**given)  # type: ignore[arg-type]


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(placer.PlanError, match=r"no-such.toml: cannot be read"):
        placer.cluster("no-such.toml")


@pytest.mark.parametrize(("answer", "message"), [(b"", "it has no devices"), (b"\xff", "not that of a server of TensorFlow")])
def test_another_server_is_no_worker(answer: bytes, message: str) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tensorflow.WorkerService", {"GetStatus": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(placer.DeviceError, match=f"does not answer as a worker .*{message}"):
            placer.cluster(workers=[f"127.0.0.1:{port}"])
    finally:
        server.stop(None)
