"""SavedModels with plans: what is loaded does what the model does, on the devices of the plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import placer
from placer.command.main import main
from tests.helpers import forked
from tests.helpers.machines import two_cpus

X = tf.constant(np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16))
ANY_BATCH = tf.TensorSpec([None, 16], tf.float32, "x")
W = np.linspace(-0.2, 0.3, 64, dtype=np.float32).reshape(16, 4)
OPTIONS: dict[str, Any] = {"pins": {"MatMul": "CPU:1"}, "sizes": {"x": [32]}}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("machine") / "two.toml"
    path.write_text(two_cpus().to_toml())
    return str(path)


def saved_by_tf2(folder: Path) -> None:
    model = tf.Module()
    model.w = tf.Variable(W)

    @tf.function(input_signature=[ANY_BATCH])
    def serve(x: Any) -> Any:
        return {"y": tf.tanh(x @ model.w)}

    @tf.function(input_signature=[ANY_BATCH, tf.TensorSpec([], tf.int32, "rounds")])
    def loop(x: Any, rounds: Any) -> Any:
        for _ in tf.range(rounds):
            x = tf.tanh(x @ model.w) @ tf.transpose(model.w)
        return {"y": x}

    tf.saved_model.save(model, str(folder), signatures={"serving_default": serve, "a/loop": loop})


def saved_by_tf1(folder: Path, *, resource: bool) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 16], name="x")
        w = v1.get_variable("w", initializer=W, use_resource=resource)
        y = tf.tanh(x @ w)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})


def frozen(path: Path, *, text: bool) -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.tanh(tf.compat.v1.placeholder(tf.float32, [None, 16], name="x") @ tf.constant(W), name="y")
    tf.io.write_graph(graph, str(path.parent), path.name, as_text=text)


SOURCES: dict[str, Callable[[Path], None]] = {
    "saved by TensorFlow 2": saved_by_tf2,
    "resource variables of TensorFlow 1": lambda path: saved_by_tf1(path, resource=True),
    "reference variables of TensorFlow 1": lambda path: saved_by_tf1(path, resource=False),
    "frozen.pb": lambda path: frozen(path, text=False),
    "frozen.pbtxt": lambda path: frozen(path, text=True),
}


def devices(folder: Path) -> set[str]:
    """The devices of the matrix products in a SavedModel."""
    read = SavedModel()
    read.ParseFromString((folder / "saved_model.pb").read_bytes())
    graphs = [part.graph_def for part in read.meta_graphs]
    nodes = [*(n for g in graphs for n in g.node), *(n for g in graphs for f in g.library.function for n in f.node_def)]
    return {node.device for node in nodes if node.op == "MatMul"}


@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_placed_and_loaded_runs_by_its_plans(kind: str, tmp_path: Path, machine: str) -> None:
    source, out = tmp_path / kind, tmp_path / "out"
    SOURCES[kind](source)
    placed = placer.place_saved_model(source, out, devices=machine, **OPTIONS)
    assert not placed.unplaced
    assert not [note for plan in placed.plans.values() for note in plan.notes if "not used" in note]
    loaded = placer.load(out)
    assert loaded.signatures.keys() == placed.plans.keys()
    assert all(plan.graph.name == name for name, plan in placed.plans.items())
    serve = loaded.signatures["serving_default"]
    np.testing.assert_allclose(serve(x=X)["y"], np.tanh(X.numpy() @ W), rtol=1e-5)
    observation = serve.observe(x=X)
    assert not observation.mismatches
    assert set(observation.ran.values()) == {"CPU:0", "CPU:1"}
    assert serve.placement.ops == placed.plans["serving_default"].ops
    plain = tf.saved_model.load(str(out))
    np.testing.assert_allclose(plain.signatures["serving_default"](x=X)["y"], serve(x=X)["y"], rtol=1e-5)
    assert devices(out) == {""}


def test_the_command_places_every_signature(tmp_path: Path, machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    saved_by_tf2(tmp_path / "model")
    flags = [
        "--devices",
        machine,
        "--pins",
        "MatMul=CPU:1",
        "--pins",
        "Transpose=CPU:1",
        "--sizes",
        "x=32",
        "--rounds",
        "*while=7",
    ]
    assert main(["place", str(tmp_path / "model"), str(tmp_path / "out"), "--json", *flags]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["plans"].keys() == {"serving_default", "a/loop"}
    loop = placer.load(tmp_path / "out").signatures["a/loop"]
    assert [rounds.value for rounds in loop.placement.graph.rounds.values()] == [7]
    plain = tf.saved_model.load(str(tmp_path / "model")).signatures["a/loop"]
    np.testing.assert_allclose(loop(x=X, rounds=2)["y"], plain(x=X, rounds=tf.constant(2))["y"], rtol=1e-5)
    assert main(["place", str(tmp_path / "model"), str(tmp_path / "out")]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert all(f"signature {name}\n" in shown for name in printed["plans"])
    assert main(["show", str(tmp_path / "out"), "--signature", "a/loop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == printed["plans"]["a/loop"]["devices"]
    for flags, words in (([], "one of serving_default, a/loop"), (["--signature", "loop"], "did you mean a/loop")):
        assert main(["show", str(tmp_path / "out"), "--view", "layers", *flags]) == 2
        assert words in capsys.readouterr().err
    assert main(["show", str(tmp_path / "model")]) == 2
    assert "placer place" in capsys.readouterr().err


def field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer's message, of fewer than 128 bytes."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def request(signature: str, shapes: dict[str, list[int]]) -> bytes:
    """A request as TensorFlow Serving records it: PredictionLog.predict_log.request."""
    tensors = {name: tf.make_tensor_proto(0.0, shape=shape) for name, shape in shapes.items()}
    fields = [field(2, field(1, name.encode()) + field(2, proto.SerializeToString())) for name, proto in tensors.items()]
    return field(6, field(1, field(1, field(1, b"model") + field(3, signature.encode())) + b"".join(fields)))


@pytest.mark.parametrize(("given", "batch"), [({}, 7), ({"x": [5]}, 5)])
def test_open_sizes_are_those_of_the_request_that_the_model_has(
    given: dict[str, Any], batch: int, tmp_path: Path, machine: str
) -> None:
    saved_by_tf2(tmp_path / "model")
    requests = tmp_path / "model" / "assets.extra" / "tf_serving_warmup_requests"
    requests.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(requests)) as file:
        file.write(request("serving_default", {"x": [7, 16]}))
    plan = placer.place_saved_model(tmp_path / "model", tmp_path / "out", devices=machine, sizes=given).plans["serving_default"]
    assert plan.graph.op("x").signature.outputs[0].shape == (batch, 16)
    requests.write_bytes(b"no records")
    plan = placer.place_saved_model(tmp_path / "model", tmp_path / "other", devices=machine).plans["serving_default"]
    assert plan.graph.op("x").signature.outputs[0].shape == (None, 16)
    np.testing.assert_allclose(placer.load(tmp_path / "out").signatures["serving_default"](x=X)["y"], np.tanh(X @ W), rtol=1e-5)


def test_a_graph_with_devices_runs_on_them_and_elsewhere(tmp_path: Path, machine: str) -> None:
    saved_by_tf2(tmp_path / "model")
    placer.place_saved_model(tmp_path / "model", tmp_path / "out", with_devices=True, devices=machine, **OPTIONS)
    assert any(device.endswith("CPU:1") for device in devices(tmp_path / "out"))
    run = placer.load(tmp_path / "out").signatures["serving_default"]
    np.testing.assert_allclose(run(x=X)["y"], np.tanh(X.numpy() @ W), rtol=1e-5)


def test_it_runs_where_the_devices_of_the_plans_are_not(tmp_path: Path) -> None:
    saved_by_tf2(tmp_path / "model")
    for name, with_devices in {"plans": False, "devices": True}.items():
        placer.place_saved_model(
            tmp_path / "model",
            tmp_path / name,
            with_devices=with_devices,
            devices="h100",
            pins={"MatMul": "GPU:0"},
        )
    code = """
import sys, warnings, numpy as np, tensorflow as tf, placer
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    models = [placer.load(folder) for folder in sys.argv[1:3]]
told = [str(each.message) for each in caught if "GPU:0, which this process does not have" in str(each.message)]
assert len(told) == 1 and "'serving_default', 'a/loop'" in told[0], told
x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
np.savez(sys.argv[3], *(model.signatures["serving_default"](x=tf.constant(x))["y"] for model in models))
"""
    arguments = [str(tmp_path / name) for name in ("plans", "devices", "found.npz")]
    done = forked.run("-c", code, *arguments)
    assert done.returncode == 0, done.stderr
    for found in np.load(tmp_path / "found.npz").values():
        np.testing.assert_allclose(found, np.tanh(X.numpy() @ W), rtol=1e-5)


def test_what_is_no_model_and_what_was_changed_is_refused(tmp_path: Path, machine: str) -> None:
    (tmp_path / "text.pb").write_text("no graph")
    with pytest.raises(placer.TraceError, match="GraphDef"):
        placer.place_saved_model(tmp_path / "text.pb", tmp_path / "out")
    (tmp_path / "model.keras").write_text("a Keras model")
    with pytest.raises(placer.OptionError, match=r"model.keras'\).export\("):
        placer.place_saved_model(tmp_path / "model.keras", tmp_path / "out")
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(placer.OptionError, match="neither"):
            placer.place_saved_model(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    saved_by_tf2(tmp_path / "model")
    for option in ({"sizes": {"xx": 3}}, {"rounds": {"whil": 3}}, {"pins": {"MatMull": "CPU:0"}}):
        with pytest.raises(placer.OptionError, match=r"signature 'serving_default': .*(did you mean|no such loop)"):
            placer.place_saved_model(tmp_path / "model", tmp_path / "out", devices=machine, **option)
    saved_by_tf1(tmp_path / "other", resource=True)
    placer.place_saved_model(tmp_path / "model", tmp_path / "out", devices=machine)
    (tmp_path / "other" / "saved_model.pb").replace(tmp_path / "out" / "saved_model.pb")
    for file in (tmp_path / "other" / "variables").iterdir():
        file.replace(tmp_path / "out" / "variables" / file.name)
    with pytest.raises(placer.PlanError):
        placer.load(tmp_path / "out")
