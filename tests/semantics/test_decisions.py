"""What a plan decides by cost, memory and kernels, and how it tells: properties of whole functions, planned for GPUs."""

from __future__ import annotations

import re
from typing import Any

import keras
import pytest
import tensorflow as tf

import placer
from cost_models.analytic import AnalyticModel
from cost_models.overrides import Override, OverrideModel
from placer.plan.placement import Placement
from placer.problem.price import total_cost_ns
from placer.problem.schedule import Simulator
from placer.solvers.base import MIN_GAIN
from tests.helpers.harness import Program, plan
from tests.helpers.random_problems import assignments


def device_of(placement: Placement, op_type: str) -> set[str]:
    found = {placement.ops[op.name].device for op in placement.graph if op.op_type == op_type}
    assert found, f"no {op_type}"
    return found


# -- kernels -----------------------------------------------------------------------------------------------------------


def test_the_one_op_that_drops_to_the_cpu_is_told_with_its_copies() -> None:
    """Nothing else is there; the report names op and type, and the two tensors around it with their bytes."""
    first, second = tf.fill([1024, 4096], 0.01), tf.fill([4096, 1024], 0.01)

    def f(x: tf.Tensor) -> tf.Tensor:
        p = tf.sigmoid(tf.matmul(x, first))
        draws = tf.random.stateless_binomial([512, 4096], seed=[1, 2], counts=10.0, probs=p, output_dtype=tf.float32)
        return tf.matmul(draws, second)

    placement = plan(Program(fn=tf.function(f), args=(tf.ones([512, 1024]),)), pins={"MatMul": "GPU:0"})
    (binomial,) = [op.name for op in placement.graph if op.op_type == "StatelessRandomBinomial"]
    assert device_of(placement, "StatelessRandomBinomial") == {"CPU:0"}
    assert "no GPU kernel of StatelessRandomBinomial" in placement.explain(binomial)
    around = {t.tensor.rpartition(":")[0]: t.nbytes for t in placement.transfers if t.nbytes == 512 * 4096 * 4}
    assert around.keys() == {next(iter(placement.graph.graph.pred[binomial] & around.keys())), binomial}
    others = {r["op_type"] for r in placement.records() if r["device"] == "CPU:0" and r["role"] == "op" and r["time_ns"]}
    assert others <= {"StatelessRandomBinomial"}


@pytest.mark.parametrize("machine", ["h100", "2xh100"])
def test_an_op_for_gpus_alone_is_on_one_or_the_plan_is_refused_by_name(machine: str) -> None:
    units, features = 16, 8
    parameters = tf.fill([4 * (features * units + units * units) + 8 * units], 0.01)

    def f(x: tf.Tensor) -> tf.Tensor:
        zeros = tf.zeros([1, 4, units])
        y = tf.raw_ops.CudnnRNNV3(
            input=x, input_h=zeros, input_c=zeros, params=parameters, sequence_lengths=tf.fill([4], 6), rnn_mode="lstm",
            is_training=False, time_major=True,
        ).output  # fmt: skip
        return tf.matmul(tf.reshape(y, [-1, units]), tf.ones([units, 4]))

    program = Program(fn=tf.function(f), args=(tf.ones([6, 4, features]),))
    (device,) = device_of(plan(program, machine), "CudnnRNNV3")
    assert device.startswith("GPU")
    with pytest.raises(placer.ConstraintError, match=r"'CudnnRNNV3'.*no CPU kernel of CudnnRNNV3"):
        plan(program, "cpu2")


@pytest.mark.parametrize(("layer", "op_type"), [
    (lambda x: tf.nn.avg_pool2d(x, 2, 2, "VALID", data_format="NCHW"), "AvgPool"),
    (lambda x: tf.nn.conv2d(x, tf.fill([3, 3, 3, 8], 0.1), 1, "SAME", data_format="NCHW"), "Conv2D"),
])  # fmt: skip
def test_a_layout_that_a_cpu_kernel_refuses_when_run_is_not_offered_it(layer: Any, op_type: str) -> None:
    """Unless this TensorFlow's CPU kernels take it; a bias in the same layout can be on either."""
    program = Program(fn=tf.function(lambda x: layer(tf.nn.bias_add(x, tf.ones([3]), "NCHW"))), args=(tf.ones([2, 3, 16, 16]),))
    try:
        with tf.device("CPU:0"):
            program.fn(*program.args)
    except tf.errors.OpError:
        assert device_of(plan(program), op_type) == {"GPU:0"}
        assert plan(program, pins={"BiasAdd": "CPU:0"}).device_of("BiasAdd") == "CPU:0"
        with pytest.raises(placer.ConstraintError, match=rf"{op_type}.*NHWC"):
            plan(program, "cpu2")
    else:
        assert device_of(plan(program, "cpu2"), op_type) == {"CPU:0"}


# -- cost --------------------------------------------------------------------------------------------------------------


def network(batch: int) -> Program:
    """Its weights are constants, so that nothing of it is on a device already."""

    def f(x: tf.Tensor) -> tf.Tensor:
        for size in ((4, 24), (24, 24), (24, 2)):
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, tf.constant(0.1, shape=size)), tf.constant(0.0, shape=size[1:])))
        return x

    return Program(fn=tf.function(f), args=(tf.ones([batch, 4]),))


def test_a_tiny_network_is_on_the_cpu_and_goes_as_its_batch_grows() -> None:
    """The share of its work on the GPU never goes down."""
    shares = []
    for batch in (1, 64, 4096, 262144, 4194304):
        placement = plan(network(batch))
        work = [r for r in placement.records() if r["role"] == "op" and r["op_type"] in ("MatMul", "BiasAdd", "Relu")]
        shares.append(sum(r["device"] == "GPU:0" for r in work) / len(work))
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_users_cost_overrides_the_formula() -> None:
    """An op with a GPU kernel that is far slower there stays, the products around it do not follow."""
    wide = tf.fill([4, 4096], 0.1)

    def f(m: tf.Tensor) -> tf.Tensor:
        values, vectors = tf.linalg.eigh(0.5 * (m + tf.linalg.matrix_transpose(m)))
        rebuilt = tf.matmul(vectors * values[:, None, :], vectors, transpose_b=True)
        return tf.matmul(tf.matmul(tf.reshape(rebuilt, [-1, 4]), wide), wide, transpose_b=True)

    program = Program(fn=tf.function(f), args=(tf.ones([20000, 2, 2]),))
    base = AnalyticModel()
    slow = OverrideModel(
        base, {"SelfAdjointEigV2": {"GPU": Override(time_ns=7_000_000_000), "CPU": Override(time_ns=20_000_000)}}
    )
    placement = plan(program, cost_model=slow)
    assert device_of(placement, "SelfAdjointEigV2") == {"CPU:0"}
    assert "given by you" in placement.explain("SelfAdjointEigV2")
    assert device_of(placement, "MatMul") == {"GPU:0"}
    quick = OverrideModel(base, {"SelfAdjointEigV2": {"GPU": Override(time_ns=10), "CPU": Override(time_ns=7_000_000_000)}})
    assert device_of(plan(program, cost_model=quick), "SelfAdjointEigV2") == {"GPU:0"}


def ladder_down(x: tf.Tensor) -> tf.Tensor:
    b = tf.nn.relu(tf.matmul(x, x))
    keep = tf.raw_ops.ListDiff(x=tf.constant([3, 1]), y=tf.constant([1])).out
    return tf.gather(b, keep) * 2.0


def ladder_up(x: tf.Tensor) -> tf.Tensor:
    left, right = tf.matmul(x, x), tf.strings.to_number(tf.strings.as_string(x[:2, :2]))
    return tf.matmul(left, left) * tf.reduce_sum(right) + tf.tanh(left)


@pytest.mark.parametrize("size", [256, 1024])
@pytest.mark.parametrize("f", [ladder_up, ladder_down])
def test_no_other_placement_priced_alike_is_cheaper(f: Any, size: int) -> None:
    """All of them are tried; a step's time is not beaten by more than its gap says."""
    program = Program(fn=tf.function(f), args=(tf.ones([size, size]),))
    placement = plan(program, objective="total_cost")
    best = plan(program, objective="total_cost", solver=lambda p: min(assignments(p), key=lambda a: total_cost_ns(p, a)))
    assert placement.objective_ns == best.objective_ns == placement.lower_bound_ns
    for solver in ("all_cpu", "all_gpu", "greedy", "tf_default"):
        assert placement.total_cost_ns <= plan(program, objective="total_cost", solver=solver).total_cost_ns
    step, quickest = plan(program), plan(program, solver=lambda p: min(assignments(p), key=Simulator(p).step_ns))
    assert step.lower_bound_ns <= quickest.objective_ns <= step.objective_ns
    for solver in ("all_cpu", "all_gpu", "greedy", "tf_default"):
        assert step.objective_ns * (1 - MIN_GAIN) <= plan(program, solver=solver).objective_ns


# -- memory ------------------------------------------------------------------------------------------------------------


def test_the_estimate_is_a_peak_over_lifetimes() -> None:
    """Of six products of 4 MiB, none of which can take its input's place, two are alive at a time; asked for without a run."""

    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in range(6):
            x = tf.tanh(tf.matmul(x, x))
        return tf.reduce_sum(x)

    placement = plan(Program(fn=tf.function(f), args=(tf.TensorSpec([1024, 1024]),)), solver="all_gpu")
    assert 8 << 20 <= placement.totals["GPU:0"].peak_bytes < 16 << 20


def layers(count: int, size: int) -> Program:
    weights = [tf.fill([size, size], 0.01 * (i + 1)) for i in range(count)]

    def f(x: tf.Tensor) -> tf.Tensor:
        for w in weights:
            x = tf.tanh(tf.matmul(x, w))
        return x

    return Program(fn=tf.function(f), args=(tf.ones([32, size]),))


@pytest.mark.parametrize(("count", "limit"), [(8, "96MiB"), (6, "64MiB")])
def test_a_model_that_fits_on_no_gpu_alone_is_spread_over_both(count: int, limit: str) -> None:
    """Weights so large that bringing them over takes longer than going to where they are."""
    limits = {"GPU:0": limit, "GPU:1": limit}
    with pytest.warns(placer.PlacementWarning, match="captured tensors"):
        placement = plan(layers(count, 2048), "2xh100", memory_limits=limits, pins={"MatMul": "GPU"})
    for name in limits:
        totals = placement.totals[name]
        assert 0 < totals.persistent_bytes <= totals.peak_bytes <= totals.limit_bytes
    between = [t for t in placement.transfers if t.src.startswith("GPU") and t.dst.startswith("GPU") and t.src != t.dst]
    assert len([t for t in between if t.nbytes]) <= 2


def test_limits_that_nothing_fits_are_refused_with_those_that_would_do() -> None:
    """The weights, 8 MiB together, come over from the host as soon as the step starts: they wait for nothing."""
    program, pins = layers(8, 512), {"MatMul": "GPU"}
    with pytest.raises(
        placer.InfeasibleError, match=r"limits of .*\(\d+ bytes\) for GPU:0 and .*\(\d+ bytes\) for GPU:1"
    ) as refused:
        plan(program, "2xh100", memory_limits={"GPU:0": "1MiB", "GPU:1": "1MiB"}, pins=pins)
    enough = {f"GPU:{k}": int(nbytes) for nbytes, k in re.findall(r"\((\d+) bytes\) for GPU:(\d)", str(refused.value))}
    assert all(4 << 20 < nbytes < 9 << 19 for nbytes in enough.values())
    plan(program, "2xh100", memory_limits=enough, pins=pins)


def test_a_layer_that_does_not_fit_stops_no_other() -> None:
    small = [tf.fill([256, 256], 0.01 * (i + 1)) for i in range(6)]
    up, down = tf.fill([256, 16384], 0.001), tf.fill([16384, 4], 0.001)

    def f(x: tf.Tensor) -> Any:
        for w in small[:3]:
            x = tf.nn.relu(tf.matmul(x, w))
        side = tf.matmul(tf.matmul(x, up, name="oversized"), down)
        for w in small[3:]:
            x = tf.nn.relu(tf.matmul(x, w))
        return x, side

    program = Program(fn=tf.function(f), args=(tf.ones([256, 256]),))
    slow_host = OverrideModel(AnalyticModel(), {"MatMul": {"CPU": Override(factor=20)}})
    options = {"memory_limits": {"GPU:0": "4MiB"}, "cost_model": slow_host}
    with pytest.warns(placer.PlacementWarning, match="captured tensors"):
        placement = plan(program, **options)
    assert placement.device_of("oversized") == "CPU:0"
    assert "GPU:0" in device_of(placement, "MatMul")
    assert placement.totals["GPU:0"].peak_bytes <= 4 << 20
    for solver in ("all_cpu", "in_order_fill"):
        assert placement.step_time_ns <= plan(program, solver=solver, **options).step_time_ns


# -- models over two GPUs ----------------------------------------------------------------------------------------------


def test_layers_are_computed_where_their_variables_are() -> None:
    """Keras leaves no device on any node: the variables decide, unless a small activation is dearer to move."""
    inputs = keras.Input([4096])
    hidden = inputs
    for name in ("first", "second", "third"):
        hidden = keras.layers.Dense(4096, activation="relu", name=name)(hidden)
    model = keras.Model(inputs, hidden)
    program = Program(fn=tf.function(lambda x: model(x, training=False)), args=(tf.ones([512, 4096]),))
    placement = plan(
        program, "2xh100", pins={"*second/*": "GPU:1", "*first/*": "GPU:0", "*third/*": "GPU:0"}, objective="total_cost"
    )
    variables = {name: placement.device_of(name) for name in placement.graph.resources}
    assert {device for name, device in variables.items() if "second" in name} == {"GPU:1"}
    for op in placement.graph:
        if op.op_type == "ReadVariableOp":
            (handle,) = [s for s in placement.graph.graph.pred[op.name] if placement.graph.op(s).resource]
            assert placement.ops[op.name].device == placement.ops[handle].device
        if op.op_type == "MatMul":
            assert placement.ops[op.name].device == ("GPU:1" if "second" in op.name else "GPU:0")
