"""Saving a placed function: no device is written, and what is loaded does what the plain function does, wherever that is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import placer
from placer.tf.run.observing import observe_call
from placer.tf.trace.tracing import traceable
from tests.helpers import forked
from tests.helpers.machines import two_cpus

pytestmark = pytest.mark.filterwarnings("ignore:.*GPU.3.*relaxed:placer.PlacementWarning")

X = tf.constant(np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16))
ANY_BATCH = tf.TensorSpec([None, 16], tf.float32)


@tf.custom_gradient
def doubled(x: Any) -> Any:
    return 2.0 * x, lambda upstream: 3.0 * upstream


class Model(tf.Module):
    """Functions of several kinds that share a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.fill([16, 4], 0.1))
        self.captured = tf.linspace(0.0, 1.0, 4)

    def scopes(self, x: Any) -> Any:
        with tf.device("/CPU:1"):
            h = x @ self.weights
        with tf.device("/device:GPU:3"):
            return tf.nn.softmax(h + self.captured)

    def structured(self, x: Any, power: int = 2) -> Any:
        return {"sum": tf.reduce_sum(x @ self.weights), "powers": x**power}

    def looped(self, x: Any) -> Any:
        for _ in tf.range(3):
            x = tf.tanh(x @ self.weights) @ tf.transpose(self.weights)
        return x if tf.reduce_sum(x) > 0 else -x

    def nested(self, x: Any) -> Any:
        return doubled(tf.function(lambda y: y @ self.weights)(x))


NAMES = ("scopes", "structured", "looped", "nested")
SIGNATURES = {f"{name}{way}": name for name in NAMES for way in ("", "_whole", "_traced")}
"""Of what is saved, each with the function of `Model` it is made of."""


def placed(model: Model, name: str) -> placer.PlacedFunction:
    return placer.place(getattr(model, name), devices=two_cpus(), pins={"MatMul": "CPU:1"})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with each function saved four ways: as a signature, as an attribute, inside a function around it, that traced."""
    folder, model, signatures = tmp_path_factory.mktemp("saved"), Model(), {}
    for name in NAMES:
        fn = placed(model, name)
        fn(X)
        before = fn.placement
        signatures[name] = fn.get_concrete_function(ANY_BATCH)
        setattr(model, f"{name}_itself", signatures[name])
        setattr(model, f"{name}_inside", around(fn))
        assert fn.placement is not before  # that of any batch, from here on
        signatures[f"{name}_whole"] = getattr(model, f"{name}_inside")
        signatures[f"{name}_traced"] = around(fn).get_concrete_function()
    tf.saved_model.save(model, str(folder), signatures=signatures)
    return folder


def around(fn: Callable[..., Any]) -> Any:
    return tf.function(fn, input_signature=[ANY_BATCH])


def devices(folder: Path) -> set[str]:
    """The device strings of all nodes in a SavedModel."""
    read = SavedModel()
    read.ParseFromString((folder / "saved_model.pb").read_bytes())
    graphs = [part.graph_def for part in read.meta_graphs]
    bodies = [graph.node for graph in graphs] + [f.node_def for graph in graphs for f in graph.library.function]
    return {node.device for body in bodies for node in body}


def flat(results: Any) -> list[Any]:
    return sorted((np.asarray(t) for t in tf.nest.flatten(results)), key=lambda a: (a.shape, a.tobytes()))


def gradient(fn: Callable[[Any], Any], weights: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        total = tf.add_n([tf.reduce_sum(t**2) for t in tf.nest.flatten(fn(X))])
    return tape.gradient(total, weights)


def test_no_device_is_written(saved: Path, tmp_path: Path) -> None:
    module = tf.Module()
    module.variable = tf.Variable(1.0)
    tf.saved_model.save(module, str(tmp_path))
    assert devices(saved) == devices(tmp_path)  # those of TensorFlow's own ops, which save and restore variables


@pytest.mark.parametrize("name", NAMES)
def test_what_is_loaded_does_what_the_plain_function_does(saved: Path, name: str) -> None:
    plain, loaded = Model(), tf.saved_model.load(str(saved))
    loaded.weights.assign_add(tf.ones([16, 4]))
    plain.weights.assign_add(tf.ones([16, 4]))
    run = tf.function(getattr(plain, name))
    for found in (loaded.signatures[signature] for signature, of in SIGNATURES.items() if of == name):
        for want, have in zip(flat(run(X)), flat(found(x=X)), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5)
    for found in (getattr(loaded, f"{name}_itself"), getattr(loaded, f"{name}_inside")):
        tf.nest.assert_same_structure(run(X), found(X))
        np.testing.assert_allclose(gradient(found, loaded.weights), gradient(run, plain.weights), rtol=1e-4)


def test_it_runs_where_there_is_one_device_and_no_soft_placement(saved: Path, tmp_path: Path) -> None:
    code = """
import sys, numpy as np, tensorflow as tf
tf.config.set_visible_devices([], "GPU")
tf.config.set_soft_device_placement(False)
assert len(tf.config.list_logical_devices()) == 1
model = tf.saved_model.load(sys.argv[1])
x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
np.savez(sys.argv[2], **{f"{n}/{k}": v for n, f in model.signatures.items() for k, v in f(x=tf.constant(x)).items()})
"""
    done = forked.run("-c", code, str(saved), str(tmp_path / "found.npz"))
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    assert {key.partition("/")[0] for key in found} == set(SIGNATURES)
    for key in found:
        want = tf.nest.flatten(tf.function(getattr(Model(), SIGNATURES[key.partition("/")[0]]))(X))
        assert any(w.shape == found[key].shape and np.allclose(w, found[key], rtol=1e-5) for w in want)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_loaded_can_be_planned_again(saved: Path, name: str) -> None:
    loaded = tf.saved_model.load(str(saved))
    again = placer.place(loaded.signatures[name], devices=two_cpus(), pins={"MatMul": "CPU:1"})
    for want, have in zip(flat(loaded.signatures[name](x=X)), flat(again(x=X)), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)
    graph = again.placement.graph
    assert {"CPU:1"} == {again.placement.device_of(op.name) for op in graph if op.op_type == "MatMul"}


def decorated(decorator: Callable[..., Any]) -> Any:
    """A module whose methods are tf.functions, decorated."""

    class Decorated(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.fill([16, 4], 0.1))

        @decorator
        @tf.function
        def called(self, x: Any, power: int = 2, more: Any = None) -> Any:
            h = (x @ self.weights) ** power
            return {"h": h if more is None else h + more["bias"]}

        @decorator
        @tf.function
        def looped(self, x: Any) -> Any:
            for _ in tf.range(3):
                with tf.device("/CPU:1"):
                    x = tf.tanh(self.called(x)["h"]) @ tf.transpose(self.weights)
            return x

        @decorator
        @tf.function(input_signature=[ANY_BATCH])
        def sized(self, x: Any) -> Any:
            return self.looped(x) + 1.0

        @decorator
        @tf.function
        def never_called(self, x: Any) -> Any:
            return x

    return Decorated()


@pytest.mark.filterwarnings("ignore:.*relaxed:placer.PlacementWarning")
def test_methods_are_saved_as_those_of_a_plain_class_are(tmp_path: Path) -> None:
    calls = [lambda m: m.called(X), lambda m: m.called(X[:1], 3), lambda m: m.looped(X)]
    later = [lambda m: m.called(x=X, more={"bias": tf.ones([4])}), lambda m: m.looped(X[:1])]
    loaded = []
    for name, decorator in {"plain": lambda fn: fn, "placed": placer.optimized_placement(devices=two_cpus())}.items():
        model = decorated(decorator)
        for some in (calls, later):
            for call in some:
                call(model)
            tf.saved_model.save(model, str(tmp_path / name))
        loaded.append(tf.saved_model.load(str(tmp_path / name)))
    for call in (*calls, *later, lambda m: m.sized(X)):
        want, have = map(call, loaded)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-5), want, have)
    for again in loaded:
        with pytest.raises(ValueError, match="zero restored functions"):
            again.never_called(X)
    assert isinstance(model.called, placer.PlacedFunction)
    assert not any("CPU:1" in device for device in devices(tmp_path / "placed"))


class Served(tf.Module):
    """Functions as attributes and in a list: one with a signature, one called with Python values, one ConcreteFunction."""

    def __init__(self, decorator: Callable[..., Any]) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.fill([16, 4], 0.1))

        def power(x: Any, exponent: int = 2) -> Any:
            return tf.tanh(x @ self.weights) ** exponent

        self.any_batch = decorator(tf.function(power, input_signature=[ANY_BATCH]))
        self.called = decorator(power)
        self.called(X), self.called(X, 3)
        self.concrete = decorator(tf.function(lambda x: x @ self.weights).get_concrete_function(X))
        self.listed = [self.called]


def test_a_placed_function_is_saved_as_the_plain_one_is(tmp_path: Path) -> None:
    loaded = []
    for name, decorator in {"plain": traceable, "placed": placer.optimized_placement(devices=two_cpus())}.items():
        model = Served(decorator)
        tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
        signatures = {"serving_default": model.any_batch, "concrete": model.concrete}
        with pytest.raises(ValueError, match="with an input signature"):
            tf.saved_model.save(model, str(tmp_path / name), signatures=model.called)
        tf.saved_model.save(model, str(tmp_path / name), signatures=signatures)
        loaded.append(tf.saved_model.load(str(tmp_path / name)))
    assert devices(tmp_path / "placed") == devices(tmp_path / "plain")
    for call in (
        lambda m: m.any_batch(X[:1]),
        lambda m: [m.called(X), m.called(X, 3), m.called(x=X), m.listed[0](X)],
        lambda m: m.concrete(X),
        lambda m: [signature(x=X) for signature in (m.signatures["serving_default"], m.signatures["concrete"])],
    ):
        want, have = map(call, loaded)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-5), want, have)


def test_a_placed_function_is_an_endpoint_of_keras(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input([16]), keras.layers.Dense(3)])
    serve = placer.place(model, devices=two_cpus(), pins={"MatMul": "CPU:1"})
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("any_batch", serve, input_signature=[ANY_BATCH])
    with pytest.raises(ValueError, match="never been called"):
        archive.add_endpoint("called", serve)
    serve(X)
    archive.add_endpoint("called", serve)
    archive.write_out(str(tmp_path), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path))
    for found in (loaded.any_batch(X), loaded.called(X), loaded.signatures["serving_default"](X)["output_0"]):
        np.testing.assert_allclose(found, model(X), rtol=1e-5)
    assert not any("CPU:1" in device for device in devices(tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_a_concrete_function_is_the_plain_ones_like_and_runs_by_plan(name: str) -> None:
    model = Model()
    fn, plain = placed(model, name), tf.function(getattr(model, name))
    concrete, like = fn.get_concrete_function(ANY_BATCH), plain.get_concrete_function(ANY_BATCH)
    assert concrete is fn.get_concrete_function(ANY_BATCH)
    assert concrete.structured_input_signature == like.structured_input_signature
    tf.nest.assert_same_structure(concrete.structured_outputs, like.structured_outputs)
    observation = observe_call(lambda: concrete(X), lambda: fn.placement, 1)
    assert not observation.mismatches
    assert set(observation.ran.values()) == {"CPU:0", "CPU:1"}
    for want, have in zip(flat(like(X)), flat(concrete(X)), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)
    np.testing.assert_allclose(gradient(concrete, model.weights), gradient(like, model.weights), rtol=1e-4)


def test_a_function_that_is_left_alone_is_saved_as_it_is(tmp_path: Path) -> None:
    module = tf.Module()
    fn = placer.place(tf.function(lambda x: x * 2.0, jit_compile=True), devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="XLA"):
        module.fn = fn.get_concrete_function(ANY_BATCH)
    tf.saved_model.save(module, str(tmp_path))
    np.testing.assert_allclose(tf.saved_model.load(str(tmp_path)).fn(X), 2 * X.numpy())


def test_a_placed_function_is_traced_and_planned_as_what_it_wraps() -> None:
    fn = placed(Model(), "looped")
    assert placer.build_graph(fn, X).fingerprint == fn.plan(X).fingerprint
    again = placer.place(fn, X, devices=two_cpus(), pins={"Tanh": "CPU:1", "MatMul": "CPU:0"})
    np.testing.assert_allclose(again(X), fn(X), rtol=1e-5)
