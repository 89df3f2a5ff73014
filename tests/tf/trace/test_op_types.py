"""The tables of op types against the registry, and against running."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from cost_models.ops import Difference, types_where
from placer.tf.trace.op_types import is_stateful

BOUNDS_SENSITIVE = types_where(lambda entry: Difference.BOUNDS in entry.differs)
INTEGER_ERRORS = types_where(lambda entry: entry.differs & {Difference.DIVISION, Difference.POWER})
RANDOM_STATEFUL = types_where(lambda entry: Difference.RANDOM in entry.differs)
ROWS = tf.ones([4, 3])
ROW = tf.ones([1, 3])
DEVICE_KERNELS: dict[str, set[str]] = {}
for _kernel in kernels.get_all_registered_kernels().kernel:
    DEVICE_KERNELS.setdefault(_kernel.op, set()).add(_kernel.device_type)

TABLE = tf.Variable(ROWS)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Bincount": {"arr": [-1], "weights": tf.zeros([0])},
    "DenseBincount": {"input": [-1], "weights": tf.zeros([0])},
    "DynamicPartition": {"partitions": [0, 1, 9, 0], "num_partitions": 2},
    "ResourceGather": {"dtype": tf.float32},
    "ResourceGatherNd": {"dtype": tf.float32},
    "ReverseSequence": {"seq_lengths": [9, 1, 1, 1], "seq_dim": 1},
    "SparseSoftmaxCrossEntropyWithLogits": {"labels": [0, 1, 2, 9]},
    "SparseTensorDenseMatMul": {
        "a_indices": tf.constant([[0, 9]], tf.int64),
        "a_values": [1.0],
        "a_shape": tf.constant([4, 4], tf.int64),
    },
    "SparseToDense": {
        "sparse_indices": [9],
        "output_shape": [4],
        "sparse_values": 1.0,
        "default_value": 0.0,
        "validate_indices": False,
    },
}


def takes_references(op: str) -> bool:
    """Whether only graphs of TensorFlow 1 can have it."""
    return any(a.is_ref for a in op_def_registry.get(op).input_arg)


def on_both(op: str) -> bool:
    return "DEFAULT" in DEVICE_KERNELS[op] or {"CPU", "GPU"} <= DEVICE_KERNELS[op]


def test_each_op_that_depends_on_the_device_has_a_choice_of_two() -> None:
    for op in sorted(BOUNDS_SENSITIVE):
        assert on_both(op), op


@pytest.mark.parametrize("op", sorted(INTEGER_ERRORS))
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


def out_of_range(op: str) -> dict[str, Any]:
    """Arguments of the op, among four rows of three an index to a tenth."""
    shared = dict.fromkeys(("resource", "ref", "var", "accum", "accum_update", "linear"), TABLE.handle)
    shared |= dict.fromkeys(("params", "data", "tensor", "input", "features", "b"), ROWS)
    shared |= dict.fromkeys(("lr", "l1", "l2", "l2_shrinkage", "rho", "epsilon", "momentum"), 1.0) | {"lr_power": -0.5}
    shared |= dict.fromkeys(("num_segments", "output_dim0", "dense_output_dim0", "size"), 4) | {"shape": [4, 3], "axis": 0}
    shared |= {"updates": ROW, "grad": ROW, "indices": [[9]] if "Nd" in op or op.startswith("TensorScatter") else [9]}
    shared["segment_ids"] = [3, 1, 2, 0] if op.startswith("Segment") else [0, 1, 2, 9] if op.startswith("Unsorted") else [0]
    names = {a.name for a in op_def_registry.get(op).input_arg}
    return {name: value for name, value in shared.items() if name in names} | ARGUMENTS.get(op, {})


@pytest.mark.parametrize("op", [op for op in sorted(BOUNDS_SENSITIVE) if not takes_references(op)])
def test_an_index_out_of_range_raises_on_a_cpu(op: str) -> None:
    with tf.device("/CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        getattr(tf.raw_ops, op)(**out_of_range(op))


def test_stateful() -> None:
    assert all(map(is_stateful, [*RANDOM_STATEFUL, "AssignVariableOp", "ReadVariableOp", "EagerPyFunc", "__inference_step_17"]))
    assert not any(map(is_stateful, ["MatMul", "StatelessRandomUniform", "PartitionedCall", "Const"]))
