"""The tables of op types against the registry, and against running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from placer.tf.optypes import BOUNDS_SENSITIVE, INTEGER_ERRORS, RANDOM_STATEFUL, is_stateful

ROWS = tf.ones([4, 3])
ROW = tf.ones([1, 3])
DEVICE_KERNELS: dict[str, set[str]] = {}
for _kernel in kernels.get_all_registered_kernels().kernel:
    DEVICE_KERNELS.setdefault(_kernel.op, set()).add(_kernel.device_type)


def on_both(op: str) -> bool:
    return "DEFAULT" in DEVICE_KERNELS[op] or {"CPU", "GPU"} <= DEVICE_KERNELS[op]


def test_each_op_that_depends_on_the_device_has_a_choice_of_two() -> None:
    for op in sorted(BOUNDS_SENSITIVE):
        assert on_both(op), op


@pytest.mark.parametrize("op", INTEGER_ERRORS)
def test_an_integer_division_by_zero_or_negative_power_raises_on_a_cpu(op: str) -> None:
    assert on_both(op)
    with tf.device("/CPU:0"), pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError)):
        getattr(tf.raw_ops, op)(x=tf.constant([5]), y=tf.constant([-1 if op == "Pow" else 0]))


def test_random_ops_are_those_that_keep_seeds_on_both_devices() -> None:
    seeded = set()
    for op in DEVICE_KERNELS:
        definition = op_def_registry.get(op)
        if definition.is_stateful and {"seed", "seed2"} <= {a.name for a in definition.attr} and on_both(op):
            seeded.add(op)
    assert seeded == RANDOM_STATEFUL


def _variable() -> Any:
    return tf.Variable(ROWS).handle


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("GatherV2", lambda op: op(params=ROWS, indices=[9], axis=0)),
        ("GatherNd", lambda op: op(params=ROWS, indices=[[9]])),
        ("ScatterNd", lambda op: op(indices=[[9]], updates=ROW, shape=[4, 3])),
        ("TensorScatterAdd", lambda op: op(tensor=ROWS, indices=[[9]], updates=ROW)),
        ("ResourceGather", lambda op: op(resource=_variable(), indices=[9], dtype=tf.float32)),
        ("ResourceScatterAdd", lambda op: op(resource=_variable(), indices=[9], updates=ROW)),
        ("ResourceScatterNdUpdate", lambda op: op(ref=_variable(), indices=[[9]], updates=ROW)),
        ("SegmentSum", lambda op: op(data=ROWS, segment_ids=[3, 1, 2, 0])),
        ("UnsortedSegmentMax", lambda op: op(data=ROWS, segment_ids=[0, 1, 2, 9], num_segments=4)),
        ("SparseSegmentMean", lambda op: op(data=ROWS, indices=[9], segment_ids=[0])),
        ("SparseSoftmaxCrossEntropyWithLogits", lambda op: op(features=ROWS, labels=[0, 1, 2, 9])),
    ],
)
def test_an_index_out_of_range_raises_on_a_cpu(op: str, call: Callable[[Any], Any]) -> None:
    assert op in BOUNDS_SENSITIVE
    with tf.device("/CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        call(getattr(tf.raw_ops, op))


def test_stateful() -> None:
    assert all(map(is_stateful, [*RANDOM_STATEFUL, "AssignVariableOp", "ReadVariableOp", "EagerPyFunc", "__inference_step_17"]))
    assert not any(map(is_stateful, ["MatMul", "StatelessRandomUniform", "PartitionedCall", "Const"]))
