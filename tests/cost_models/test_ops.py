"""The table of ops: its entries agree with each other, with TensorFlow's registries and with what TensorFlow does."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.python.framework import kernels, op_def_registry

import cost_models.ops
from cost_models.auto import shipped_model
from cost_models.base import OpSignature, TensorSpec
from cost_models.machine_files import load_machine
from cost_models.measurements import signature_of, signature_text
from cost_models.ops import (
    FAMILIES,
    Difference,
    OpType,
    View,
    as_measured,
    entry_of,
    output_bounds,
    types_where,
    view_of,
    work_of,
)
from cost_models.ops.optype import all_int32, never_a_view
from cost_models.ops.table import register
from cost_models.shipped import shipped_table
from tests.helpers.signatures import signature

NODES = {"LoopVariable", "BranchMerge"}
"""Nodes of flattened graphs that are no ops of TensorFlow."""
TABLES = [shipped_table(model) for model in ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "2 AMD EPYC cores")]
RECORDED = [text for table in TABLES for texts in table.values() for text in texts]


def of_tensorflow(op_types: frozenset[str]) -> list[str]:
    return sorted(op_types - NODES)


def device_types(op_type: str) -> set[str]:
    return {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op_type).kernel}


# -- the table -----------------------------------------------------------------------------------------------------------


def test_every_module_of_a_family_fills_the_table() -> None:
    core = {"optype", "recipes", "table", "work"}
    modules = {module.name for module in pkgutil.iter_modules(cost_models.ops.__path__)}
    assert {family.__name__.rpartition(".")[2] for family in FAMILIES} == modules - core


def test_an_op_type_has_one_entry() -> None:
    with pytest.raises(ValueError, match="MatMul is registered twice"):
        register("MatMul", OpType())


def test_the_table_names_ops_of_tensorflow() -> None:
    assert [name for name in of_tensorflow(types_where()) if op_def_registry.get(name) is None] == []


def test_families_are_known_by_their_names() -> None:
    assert entry_of("MapDataset").unseen_code == entry_of("MakeIterator").unseen_code == "dataset"
    assert entry_of("IteratorGetNext").unseen_code == "dataset"
    assert entry_of("CollectiveReduceV2").names_partners
    assert entry_of("DebugNumericSummary").side_effects
    assert entry_of("NoSuchOp") == OpType()


@pytest.mark.parametrize("side", ["reads", "updates"])
def test_what_reads_or_updates_a_variable_takes_a_handle(side: str) -> None:
    for name in types_where(lambda entry: getattr(entry, side)):
        first = op_def_registry.get(name).input_arg[0]
        assert first.type == tf.resource.as_datatype_enum or first.is_ref or name == "AssignVariableXlaConcatND", name
    read_or_updated = types_where(lambda entry: entry.reads in ("value", "rows") or entry.updates in ("value", "rows"))
    of_tensorflow_1 = {"Assign", "AssignAdd", "AssignSub", "AssignVariableXlaConcatND"}
    assert types_where(lambda entry: entry.variable) == read_or_updated - of_tensorflow_1


def test_lists_are_variants_and_take_an_element() -> None:
    for name in types_where(lambda entry: entry.makes_list or entry.list_element is not None):
        definition, entry = op_def_registry.get(name), entry_of(name)
        assert definition.output_arg[0].type == tf.variant.as_datatype_enum, name
        if entry.list_element is not None:
            assert definition.input_arg[entry.list_element].type_attr == "element_dtype", name


def test_effects_agree_with_the_registry() -> None:
    for name in types_where(lambda entry: entry.own_state_only):
        assert op_def_registry.get(name).is_stateful, name
    for name in types_where(lambda entry: entry.side_effects):
        assert not op_def_registry.get(name).is_stateful, name
    for name in types_where(lambda entry: entry.control):
        assert any(attr.type in ("func", "list(func)") for attr in op_def_registry.get(name).attr), name


def test_what_differs_between_devices_runs_on_both() -> None:
    for name in of_tensorflow(types_where(lambda entry: entry.differs)):
        found = device_types(name)
        no_kernels_here = name.startswith("CudnnRNN") or not has_gpu_kernels()
        assert "DEFAULT" in found or {"CPU", "GPU"} <= found or no_kernels_here, (name, found)


def has_gpu_kernels() -> bool:
    return "GPU" in device_types("MatMul")


@pytest.mark.skipif(not has_gpu_kernels(), reason="this TensorFlow is built without GPU support")
def test_awaited_ops_have_gpu_kernels_and_integers_stay_in_host_memory() -> None:
    for name in types_where(lambda entry: entry.awaited):
        assert "GPU" in device_types(name), name
    for name in types_where(lambda entry: entry.host_kernel is all_int32):
        definition = op_def_registry.get(name)
        arguments = {argument.name for argument in (*definition.input_arg, *definition.output_arg)}
        on_host = [
            kernel
            for kernel in kernels.get_registered_kernels_for_op(name).kernel
            if kernel.device_type in ("GPU", "DEFAULT")
            and any(tf.int32.as_datatype_enum in constraint.allowed_values.list.type for constraint in kernel.constraint)
            and arguments <= set(kernel.host_memory_arg)
        ]
        assert on_host, name


# -- views ---------------------------------------------------------------------------------------------------------------


def test_views_do_no_work_and_are_not_written_in_place() -> None:
    assert not types_where(lambda entry: entry.in_place and entry.view is not never_a_view)
    viewing = types_where(lambda entry: entry.view is not never_a_view)
    assert {"Identity", "Reshape", "StridedSlice", "Transpose", "Unpack", "Sum"} <= viewing
    for name in viewing:
        tensor = TensorSpec("float32", (1, 64))
        op = OpSignature(name, (tensor, *[TensorSpec("int32", (1,))] * 3), (tensor,), (("axis", 0),))
        assert view_of(op) is not View.NONE, name
        work = work_of(op)
        assert (work.flops, work.nbytes, work.kernels, work.cpu_serial_ns, work.workspace_bytes) == (0, 0, 0, 0, 0), name


WHOLE_AXIS = {"begin_mask": 1, "end_mask": 1}


@pytest.mark.parametrize(
    ("text", "attrs", "view"),
    [
        ("StridedSlice(float32[8,16], int32[1], int32[1], int32[1]) -> float32[4,16]", {}, View.PARTS),
        ("StridedSlice(float32[8,16], int32[1], int32[1], int32[1]) -> float32[16]", {"shrink_axis_mask": 1}, View.PARTS),
        ("StridedSlice(float32[8,15], int32[1], int32[1], int32[1]) -> float32[4,15]", {}, View.NONE),
        (
            "StridedSlice(float32[8,16], int32[1], int32[1], int32[1]) -> float32[4,16]",
            {"begin_mask": 1, "end_mask": 1},
            View.NONE,
        ),
        ("StridedSlice(float32[8,16], int32[2], int32[2], int32[2]) -> float32[8,4]", {}, View.NONE),
        ("StridedSlice(float32[8,16], int32[2], int32[2], int32[2]) -> float32[8,1,16]", {"new_axis_mask": 2}, View.INPUT),
        ("Transpose(float32[8,16], int32[2]) -> float32[16,8]", {}, View.NONE),
        ("Transpose(float32[1,16], int32[2]) -> float32[16,1]", {}, View.INPUT),
        ("Transpose(float32[1,16,4], int32[3]) -> float32[16,1,4]", {}, View.INPUT),
        ("Unpack(float32[3,16]) -> float32[16], float32[16], float32[16]", {"axis": 0}, View.PARTS),
        ("Unpack(float32[3,15]) -> float32[15], float32[15], float32[15]", {"axis": 0}, View.NONE),
        ("Unpack(float32[16,3]) -> float32[16], float32[16], float32[16]", {"axis": 1}, View.NONE),
        ("Sum(float32[8,1], int32[1]) -> float32[8]", {}, View.INPUT),
        ("Sum(float32[8,2], int32[1]) -> float32[8]", {}, View.NONE),
    ],
)
def test_a_result_is_in_the_memory_of_an_input_where_tensorflow_has_it_there(text: str, attrs: Any, view: View) -> None:
    """Checked against the addresses of arrays that share a CPU's memory with the tensors."""
    op = signature(text, **attrs)
    assert view_of(op) is view
    base = tf.random.uniform(op.inputs[0].shape)
    made = {
        "StridedSlice": lambda: sliced(base, op),
        "Transpose": lambda: tf.transpose(base, (1, 0, *range(2, base.shape.rank))),
        "Unpack": lambda: tf.raw_ops.Unpack(value=base, num=3, axis=op.attr("axis"))[1],
        "Sum": lambda: tf.reduce_sum(base, axis=1),
    }[op.op_type]()
    assert tuple(made.shape) == op.outputs[-1].shape
    start, end = address(base), address(base) + op.inputs[0].nbytes
    assert (start <= address(made) < end) == (view is not View.NONE)


def sliced(base: Any, op: OpSignature) -> Any:
    shape = op.outputs[0].shape
    if op.attr("shrink_axis_mask"):
        return base[3]
    if op.attr("new_axis_mask"):
        return base[:, tf.newaxis]
    if op.attr("begin_mask"):
        return base[::2]
    return base[2:6] if op.inputs[1].shape == (1,) else base[:, : shape[1]]


def address(tensor: Any) -> int:
    return int(np.from_dlpack(tensor).__array_interface__["data"][0])


# -- work ----------------------------------------------------------------------------------------------------------------

NOT_GROWING: tuple[tuple[frozenset[str], set[str]], ...] = (
    # Copies are made if a convolution's channels are no multiple of four, or its padding is unequal.
    (types_where(lambda entry: entry.work and "convolution" in entry.work.__module__), {"gpu_serial_ns", "workspace_bytes"}),
    # One matrix keeps one core busy, several use them all.
    (types_where(lambda entry: entry.work and "linear_algebra" in entry.work.__module__), {"cpu_serial_ns"}),
    # Few of many are kept by a heap, a larger share by a sort.
    (frozenset({"TopK", "TopKV2", "NthElement"}), {"cpu_serial_ns"}),
    # More results share the walk along the axis.
    (frozenset({"ArgMax", "ArgMin"}), {"cpu_serial_ns", "gpu_serial_ns"}),
)
"""Figures that may be smaller for a larger op."""
FIGURES = ("flops", "nbytes", "cpu_serial_ns", "gpu_serial_ns", "workspace_bytes")
sizes = st.sampled_from([1, 2, 3, 5, 8, 16, 100])
tensors = st.builds(
    TensorSpec, st.sampled_from(["float32", "int32", "int64", "string", "bool"]), st.lists(sizes, max_size=5).map(tuple)
)
any_signature = st.builds(
    OpSignature,
    st.sampled_from(sorted(types_where(lambda entry: entry.work))),
    st.lists(tensors, max_size=4).map(tuple),
    st.lists(tensors, max_size=2).map(tuple),
    st.sampled_from([(), (("strides", (1, 2, 2, 1)), ("padding", "SAME")), (("equation", "ij,jk->ik"),)]).map(
        lambda attrs: tuple(sorted(attrs))
    ),
)
recorded_signature = st.sampled_from(RECORDED).map(signature_of)


@given(st.one_of(any_signature, recorded_signature), st.data())
@settings(max_examples=400, deadline=None)
def test_twice_the_size_is_no_less_work(op: OpSignature, data: st.DataObject) -> None:
    sides = sorted({side for spec in (*op.inputs, *op.outputs) for side in spec.shape or () if side})
    if not sides:
        return
    size = data.draw(st.sampled_from(sides))
    larger = replace(op, inputs=doubled(op.inputs, size), outputs=doubled(op.outputs, size))
    if view_of(op) is not view_of(larger):
        return  # a view that becomes a copy, or the other way round
    work, more = work_of(op), work_of(larger)
    exempt = {figure for op_types, figures in NOT_GROWING if op.op_type in op_types for figure in figures}
    for figure in set(FIGURES) - exempt:
        assert getattr(more, figure) >= getattr(work, figure) * (1 - 1e-9), figure


def doubled(specs: tuple[TensorSpec, ...], size: int) -> tuple[TensorSpec, ...]:
    """With all dimensions of this size twice as long, so that what fits together still does."""

    def shape(spec: TensorSpec) -> tuple[int | None, ...] | None:
        return None if spec.shape is None else tuple(2 * side if side == size else side for side in spec.shape)

    return tuple(replace(spec, shape=shape(spec)) for spec in specs)


# -- bounds on output sizes ----------------------------------------------------------------------------------------------

VALUES = {
    "TopKV2": [np.float32([[3, 1, 2], [0, 5, 4]]), np.int32(2)],
    "Unique": [np.int64([1, 2, 1, 3])],
    "UniqueV2": [np.int64([[1, 2], [1, 2], [3, 4]]), np.int64([0])],
    "UniqueWithCounts": [np.int64([1, 2, 1, 3])],
    "UniqueWithCountsV2": [np.int64([[1, 2], [1, 2], [3, 4]]), np.int64([0])],
    "Where": [np.float32([[0, 1, 2], [3, 0, 0]])],
    "ListDiff": [np.int64([1, 2, 3, 4]), np.int64([2, 9])],
    "DynamicPartition": [np.float32([[1, 2], [3, 4], [5, 6]]), np.int32([0, 1, 0])],
    "NonMaxSuppression": [np.float32([[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]]), np.float32([3, 2, 1]), np.int32(9)],
    "NonMaxSuppressionWithOverlaps": [
        np.eye(3, dtype=np.float32),
        np.float32([3, 2, 1]),
        np.int32(2),
        np.float32(0.5),
        np.float32(0),
    ],
    "CTCGreedyDecoder": [np.float32([[[1, 0, 0]], [[0, 1, 0]], [[0, 0, 1]]]), np.int32([3])],
    "CTCBeamSearchDecoder": [np.float32([[[1, 0, 0]], [[0, 1, 0]], [[0, 0, 1]]]), np.int32([3])],
    "SparseFillEmptyRows": [np.int64([[0, 1], [2, 0]]), np.float32([1, 2]), np.int64([4, 3]), np.float32(0)],
}
for _version, _more in {"V2": 1, "V3": 2, "V4": 2, "V5": 3}.items():
    VALUES[f"NonMaxSuppression{_version}"] = [*VALUES["NonMaxSuppression"], *map(np.float32, (0.5, 0.0, 0.0)[:_more])]


def run(op_type: str, values: list[Any], **attrs: Any) -> list[Any]:
    names = ["condition"] if op_type == "Where" else [argument.name for argument in op_def_registry.get(op_type).input_arg]
    made = getattr(tf.raw_ops, op_type)(**dict(zip(names, values, strict=True)), **attrs)
    flat: list[Any] = tf.nest.flatten(tuple(made) if isinstance(made, (list, tuple)) else made)
    return flat


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("op_type", sorted(types_where(lambda entry: entry.output_bounds)))
def test_no_output_is_larger_than_its_bound(op_type: str, known: bool, padded: bool) -> None:
    values = VALUES[op_type]
    needed = {"DynamicPartition": {"num_partitions": 2}, "CTCBeamSearchDecoder": {"beam_width": 4, "top_paths": 2}}
    attrs: dict[str, Any] = needed.get(op_type, {})
    if padded and op_type in ("NonMaxSuppressionV4", "NonMaxSuppressionV5"):
        attrs = {"pad_to_max_output_size": True}
    made = run(op_type, values, **attrs)
    inputs = tuple(TensorSpec(np.asarray(value).dtype.name, np.asarray(value).shape) for value in values)
    outputs = tuple(TensorSpec(each.dtype.name, (None,) * each.shape.rank) for each in made)
    op = OpSignature(op_type, inputs, outputs, tuple(sorted(attrs.items())))
    bounds = output_bounds(op, dict(enumerate(values)) if known else {})
    for each, bound in zip(made, bounds, strict=True):
        assert bound is not None
        assert len(bound) == each.shape.rank
        assert all(most is None or side <= most for side, most in zip(each.shape, bound, strict=True)), (bounds, each.shape)
        if known:
            assert None not in bound


def test_bounds_follow_unknown_sizes_and_what_is_known_stays() -> None:
    unknown = OpSignature("Where", (TensorSpec("bool", (None, 4)),), (TensorSpec("int64", (None, 2)),))
    assert output_bounds(unknown) == ((None, 2),)
    no_rank = OpSignature("Where", (TensorSpec("bool", None),), (TensorSpec("int64", None),))
    assert output_bounds(no_rank) == (None,)
    plain = OpSignature("Relu", (TensorSpec("float32", (None, 4)),), (TensorSpec("float32", (None, 4)),))
    assert output_bounds(plain) == ((None, 4),)
    many = OpSignature("Unique", (TensorSpec("int64", (9,)),), (TensorSpec("int64", (None,)), TensorSpec("int32", (9,))))
    assert output_bounds(many) == ((9,), (9,))


def test_signs_belong_to_decompositions_and_precision_to_products() -> None:
    assert types_where(lambda entry: Difference.SIGN in entry.differs) == {"Qr", "Svd", "SelfAdjointEigV2"}
    products = types_where(lambda entry: Difference.PRECISION in entry.differs)
    assert {"MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "Conv2DBackpropFilter", "_FusedMatMul"} <= products
    assert not {name for name in products if not work_of(OpSignature(name, (), ())).is_product and entry_of(name).work}


def test_a_length_that_the_data_decides_is_left_open_where_an_op_was_measured() -> None:
    ids, index = TensorSpec("int64", (100_000,)), TensorSpec("int32", (100_000,))
    attrs = (("T", "int64"), ("out_idx", "int32"))
    traced = OpSignature("Unique", (ids,), (TensorSpec("int64", (None,)), index), attrs)
    bounded = OpSignature("Unique", (ids,), (ids, index), attrs)
    assert as_measured(bounded) == traced
    assert signature_text(bounded) == signature_text(traced)
    model, machine = shipped_model(), load_machine("h100")
    for device in machine.devices:
        assert model.op_cost(bounded, device) == model.op_cost(traced, device)
        assert model.op_cost(bounded, device).source == "measured"
