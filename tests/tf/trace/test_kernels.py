"""Where a node can run: checked against running it, against the whole registry, and against what is known of single kernels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework.kernel_def_pb2 import KernelDef, KernelList
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import kernels, op_def_registry

import placer
from placer.graph.op_graph import Kernel
from placer.tf.trace.kernel_registry import KernelRegistry
from placer.tf.trace.kernels import KernelIndex

F32, F64, I32, I64 = tf.float32, tf.float64, tf.int32, tf.int64

Case = tuple[str, Mapping[str, Any], Mapping[str, Any]]


def ones(*shape: int, dtype: tf.DType = F32) -> tf.Tensor:
    return tf.ones(shape, dtype)


def traced(op: str, tensors: Mapping[str, Any], attrs: Mapping[str, Any]) -> tuple[Any, NodeDef]:
    """The raw op as a function on CPU:0, and the op's node."""

    @tf.function
    def call(**tensors: Any) -> Any:
        with tf.device("/CPU:0"):
            return getattr(tf.raw_ops, op)(**tensors, **attrs)

    concrete = call.get_concrete_function(**tensors)
    return concrete, next(n for n in concrete.graph.as_graph_def().node if n.op == op)


@pytest.fixture(autouse=True)
def no_soft_placement() -> Iterator[None]:
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    yield
    tf.config.set_soft_device_placement(before)


# -- against running -----------------------------------------------------------------------------------------------------


def images(first: bool, dims: int = 2, dtype: tf.DType = F32, size: int = 8) -> tf.Tensor:
    return ones(2, *([4] if first else []), *[size] * dims, *([] if first else [4]), dtype=dtype)


def per_dim(first: bool, value: int, dims: int = 2) -> list[int]:
    return [1, *([1] if first else []), *[value] * dims, *([] if first else [1])]


def layout(first: bool, dims: int = 2) -> str:
    return "".join(["N", "C" * first, "DHW"[3 - dims :], "C" * (not first)])


def windows(first: bool, dims: int = 2) -> dict[str, Any]:
    window = per_dim(first, 2, dims)
    return {"ksize": window, "strides": window, "padding": "SAME", "data_format": layout(first, dims)}


def convolution(first: bool, dilation: int = 1, dims: int = 2) -> dict[str, Any]:
    fixed = {"strides": [1] * (dims + 2), "padding": "SAME", "data_format": layout(first, dims)}
    return {**fixed, "dilations": per_dim(first, dilation, dims)}


def image_cases(first: bool) -> Iterator[Case]:
    x, x3, small, small3 = images(first), images(first, 3), images(first, size=4), images(first, 3, size=4)
    pool, pool3, channels = windows(first), windows(first, 3), {"data_format": layout(first)}
    general = {"strides": [1] * 4, "padding": "SAME", "data_format": "CHANNELS_FIRST" if first else "CHANNELS_LAST"}
    for dtype in (F32, F64, I32):
        yield "Conv", {"input": images(first, dtype=dtype), "filter": ones(3, 3, 4, 4, dtype=dtype)}, general
        yield "Conv2D", {"input": images(first, dtype=dtype), "filter": ones(3, 3, 4, 4, dtype=dtype)}, convolution(first)
        yield "MaxPool", {"input": images(first, dtype=dtype)}, pool
        if dtype.is_floating:
            yield "AvgPool", {"value": images(first, dtype=dtype)}, pool
        yield "BiasAdd", {"value": images(first, dtype=dtype), "bias": ones(4, dtype=dtype)}, channels
    margins = [0, 0, *([0, 0] if first else []), 1, 1, 1, 1, *([] if first else [0, 0])]
    yield "MaxPool", {"input": x}, {**pool, "padding": "EXPLICIT", "explicit_paddings": margins}
    yield "MaxPoolV2", {"input": x, "ksize": pool["ksize"], "strides": pool["strides"]}, {"padding": "SAME", **channels}
    yield "MaxPoolGrad", {"orig_input": x, "orig_output": small, "grad": small}, pool
    yield "MaxPoolGradGrad", {"orig_input": x, "orig_output": small, "grad": x}, pool
    yield "AvgPoolGrad", {"orig_input_shape": list(x.shape), "grad": small}, pool
    yield "MaxPool3D", {"input": x3}, pool3
    yield "MaxPool3DGrad", {"orig_input": x3, "orig_output": small3, "grad": small3}, pool3
    yield "AvgPool3D", {"input": x3}, pool3
    yield "AvgPool3DGrad", {"orig_input_shape": list(x3.shape), "grad": small3}, pool3
    for image in (x, tf.bitcast(images(first, dtype=tf.int8), tf.qint8)):
        yield "SpaceToDepth", {"input": image}, {"block_size": 2, **channels}
        yield "DepthToSpace", {"input": image}, {"block_size": 2, **channels}
    scale, moments = {"scale": ones(4)}, {"mean": ones(4), "variance": ones(4)}
    yield "FusedBatchNormV3", {"x": x, "offset": ones(4), **scale, **moments}, {"is_training": False, **channels}
    for training in (True, False):
        reserved = {"reserve_space_1": ones(4), "reserve_space_2": ones(4), "reserve_space_3": ones(0)}
        for image, dims in ((x, 2), (x3, 3)):
            mode = {"is_training": training, "data_format": layout(first, dims)}
            yield "FusedBatchNormGradV3", {"y_backprop": image, "x": image, **scale, **reserved}, mode
    for dilation in (1, 2):
        conv, conv3 = convolution(first, dilation), convolution(first, dilation, 3)
        for dtype in (F32, I32):
            gradient = {"filter": ones(3, 3, 4, 4, dtype=dtype), "out_backprop": images(first, dtype=dtype)}
            yield "Conv2DBackpropInput", {"input_sizes": list(x.shape), **gradient}, conv
        yield "Conv2DBackpropFilter", {"input": x, "filter_sizes": [3, 3, 4, 4], "out_backprop": x}, conv
        yield "DepthwiseConv2dNative", {"input": x, "filter": ones(3, 3, 4, 1)}, conv
        yield "DepthwiseConv2dNativeBackpropFilter", {"input": x, "filter_sizes": [3, 3, 4, 1], "out_backprop": x}, conv
        yield "Conv3D", {"input": x3, "filter": ones(3, 3, 3, 4, 4)}, conv3
        yield "Conv3DBackpropInputV2", {"input_sizes": list(x3.shape), "filter": ones(3, 3, 3, 4, 4), "out_backprop": x3}, conv3


OTHER_CASES: tuple[Case, ...] = (
    ("MatMul", {"a": ones(2, 2, dtype=I32), "b": ones(2, 2, dtype=I32)}, {}),
    ("MatMul", {"a": ones(2, 2), "b": ones(2, 2)}, {}),
    ("MatMul", {"a": ones(2, 2, dtype=tf.uint8), "b": ones(2, 2, dtype=tf.uint8)}, {}),
    ("StringToHashBucketFast", {"input": tf.constant(["a"])}, {"num_buckets": 7}),
    ("StringLower", {"input": tf.constant(["A"])}, {}),
    ("Add", {"x": tf.constant(["a"]), "y": tf.constant(["b"])}, {}),
    ("Qr", {"input": ones(3, 3)}, {}),
    ("Qr", {"input": ones(3, 3, dtype=tf.float16)}, {}),
    ("Cholesky", {"input": ones(1, 1)}, {}),
    ("Unique", {"x": ones(3)}, {}),
    ("Unique", {"x": tf.constant(["a", "b"])}, {}),
    ("Unique", {"x": ones(3, dtype=tf.complex64)}, {}),
    ("TopKV2", {"input": ones(3), "k": 2}, {}),
    ("Where", {"condition": tf.constant([True])}, {}),
    ("RandomShuffle", {"value": ones(3)}, {}),
    ("RandomUniform", {"shape": [3]}, {"dtype": F32}),
    ("BitwiseAnd", {"x": ones(3, dtype=I64), "y": ones(3, dtype=I64)}, {}),
    ("Sum", {"input": ones(3, dtype=tf.bfloat16), "axis": [0]}, {}),
    ("Cast", {"x": ones(3)}, {"DstT": tf.bool}),
    ("BroadcastTo", {"input": tf.constant(["a"]), "shape": [3]}, {}),
    ("NonMaxSuppressionV2", {"boxes": ones(1, 4), "scores": ones(1), "max_output_size": 1, "iou_threshold": 0.5}, {}),
    (
        "CTCLossV2",
        {"inputs": ones(5, 1, 3), "labels_indices": ones(1, 2, dtype=I64), "labels_values": [1], "sequence_length": [5]},
        {},
    ),
    ("CudnnRNNV3", {**{f"input{i}": ones(1, 1, 4) for i in ("", "_h", "_c")}, "params": ones(160), "sequence_lengths": [1]}, {}),
)

CASES = (*image_cases(first=False), *image_cases(first=True), *OTHER_CASES)


def label(case: Case) -> str:
    op, tensors, attrs = case
    dtypes = dict.fromkeys(t.dtype.name for t in tensors.values() if isinstance(t, tf.Tensor))
    names = [str(attrs[k]) for k in ("data_format", "dilations", "padding", "is_training") if k in attrs]
    return "-".join([op, *dtypes, *names])


@pytest.mark.parametrize("case", [pytest.param(case, id=label(case)) for case in CASES])
def test_said_to_run_on_a_cpu_exactly_if_it_does(case: Case) -> None:
    op, tensors, attrs = case
    arguments = {k: tf.convert_to_tensor(v) for k, v in tensors.items()}
    concrete, node = traced(op, arguments, attrs)
    support = KernelIndex.shared().lookup(node)
    try:
        concrete(**arguments)
        failure = ""
    except tf.errors.OpError as error:
        failure = str(error)
    assert ("CPU" in support.kernels) == (not failure), (support.refusals, failure)


@pytest.mark.skipif("CHILD" in os.environ, reason="this is the child")
def test_the_same_with_onednn_the_other_way() -> None:
    """Whether oneDNN is on decides what runs with channels first; what this process does by default is tested above."""
    from tensorflow.python.util import _pywrap_util_port

    flag = "0" if _pywrap_util_port.IsMklEnabled() else "1"
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "exactly_if_it_does"],
        env={**os.environ, "CHILD": "1", "TF_ENABLE_ONEDNN_OPTS": flag},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout


# -- against the registry ------------------------------------------------------------------------------------------------


def node_for(kernel: KernelDef) -> NodeDef:
    """A node that the kernel can run."""
    node = NodeDef(op=kernel.op)
    node.attr["_kernel"].s = kernel.label.encode()
    kinds = {a.name: a.type for a in op_def_registry.get(kernel.op).attr}
    for constraint in kernel.constraint:
        values, attr = constraint.allowed_values.list, node.attr[constraint.name]
        match kinds.get(constraint.name, "type"):
            case "type":
                attr.type = values.type[-1]
            case "list(type)":
                attr.list.type.extend([values.type[0], values.type[-1]])
            case "string":
                attr.s = values.s[-1]
            case "int":
                attr.i = values.i[-1]
            case "bool":
                attr.b = values.b[-1]
    if kernel.device_type == "GPU" and "data_format" in kinds and node.attr["T"].type == tf.qint8:
        node.attr["data_format"].s = b"NCHW_VECT_C"  # the one layout it has there
    return node


def test_every_kernel_serves_a_node_made_for_it() -> None:
    index = KernelIndex()
    seen = 0
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type not in ("CPU", "GPU", "DEFAULT"):
            continue
        support = index.lookup(node_for(kernel))
        wanted = ("CPU", "GPU") if kernel.device_type == "DEFAULT" else (kernel.device_type,)
        assert set(wanted) <= set(support.kernels), (kernel, support.refusals)
        assert sorted([*support.kernels, *support.refusals]) == ["CPU", "GPU"]
        seen += 1
    assert seen > 10_000


def test_attributes_left_out_have_their_defaults_and_equal_questions_one_answer() -> None:
    index = KernelIndex()
    _, node = traced("Conv2D", {"input": ones(1, 4, 4, 1), "filter": ones(1, 1, 1, 1)}, {"strides": [1] * 4, "padding": "SAME"})
    bare = NodeDef(op="Conv2D", attr={"T": node.attr["T"], "padding": node.attr["padding"]})
    renamed = NodeDef.FromString(node.SerializeToString())
    renamed.name, renamed.attr["strides"].list.i[1] = "other", 2
    assert index.lookup(bare) == index.lookup(node)
    assert index.lookup(renamed) is index.lookup(node)
    assert index.lookup(node).kernels["GPU"] == Kernel()


# -- against what is known -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "tensors", "attrs", "kernel"),
    [
        ("Shape", {"input": ones(3)}, {}, Kernel((), (0,))),
        ("Reshape", {"tensor": ones(3), "shape": tf.constant([3])}, {}, Kernel((1,), ())),
        ("StridedSlice", {"input": ones(3, dtype=I32), "begin": [0], "end": [1], "strides": [1]}, {}, Kernel((0, 1, 2, 3), (0,))),
        ("StridedSlice", {"input": ones(3), "begin": [0], "end": [1], "strides": [1]}, {}, Kernel((1, 2, 3), ())),
        ("Range", {"start": 0, "limit": 3, "delta": 1}, {}, Kernel((0, 1, 2), (0,))),
        ("Unique", {"x": ones(3, dtype=I64)}, {}, Kernel()),
        ("Unique", {"x": tf.constant(["a"])}, {}, Kernel((0,), (0, 1))),
        ("Qr", {"input": ones(3, 3)}, {}, Kernel((0,), (0, 1))),
        ("TopKV2", {"input": ones(3), "k": 2}, {}, Kernel((1,), ())),
        ("Split", {"axis": 0, "value": ones(4)}, {"num_split": 2}, Kernel((0,), ())),
        ("Fill", {"dims": [3], "value": 1.0}, {}, Kernel((0,), ())),
    ],
)
def test_host_arguments(op: str, tensors: Mapping[str, Any], attrs: Mapping[str, Any], kernel: Kernel) -> None:
    _, node = traced(op, {k: tf.convert_to_tensor(v) for k, v in tensors.items()}, attrs)
    support = KernelIndex.shared().lookup(node)
    assert support.kernels == {"CPU": Kernel(), "GPU": kernel}


def built(op: str, **attrs: Any) -> NodeDef:
    """A node with dtypes (also lists of them), numbers and strings as attributes."""
    node = NodeDef(op=op)
    for name, value in attrs.items():
        if isinstance(value, list) and value and isinstance(value[0], tf.DType):
            node.attr[name].list.type.extend([v.as_datatype_enum for v in value])
        elif isinstance(value, list):
            node.attr[name].list.i.extend(value)
        elif isinstance(value, tf.DType):
            node.attr[name].type = value.as_datatype_enum
        elif isinstance(value, bytes):
            node.attr[name].s = value
        elif isinstance(value, bool):
            node.attr[name].b = value
        else:
            node.attr[name].i = value
    return node


@pytest.mark.parametrize(
    ("node", "kernel"),
    [
        (built("Pack", T=I32, N=3), Kernel((0, 1, 2), (0,))),
        (built("ConcatV2", T=F32, N=3, Tidx=I32), Kernel((3,), ())),
        (built("If", Tcond=tf.bool, Tin=[F32, I32], Tout=[F32]), Kernel((0,), ())),
        (built("IdentityN", T=[F32, tf.string, I64]), Kernel((1,), (1,))),
        (built("PartitionedCall", Tin=[F32, I32, tf.resource], Tout=[I32, F32]), Kernel((1, 2), (0,))),
        (built("PartitionedCall", Tin=[F32, I32, tf.resource], Tout=[I32, F32], _XlaMustCompile=True), Kernel((2,), ())),
        (built("ReadVariableOp", dtype=F32), Kernel((0,), ())),
        (built("Relu", T=F32, _output_hostmem=[0]), Kernel((), (0,))),
    ],
    ids=lambda value: value.op if isinstance(value, NodeDef) else "",
)
def test_arguments_that_stand_for_several_tensors(node: NodeDef, kernel: Kernel) -> None:
    assert KernelIndex.shared().lookup(node).kernels["GPU"] == kernel


@pytest.mark.parametrize(
    ("op", "dtype", "kernel"),
    [
        ("Merge", "float32", Kernel((), (1,))),
        ("Merge", "int32", Kernel((0, 1), (0, 1))),
        ("Switch", "float32", Kernel((1,), ())),
        ("Switch", "string", Kernel((0, 1), (0, 1))),
        ("NextIteration", "float32", Kernel()),
        ("Enter", "int32", Kernel((0,), (0,))),
        ("Exit", "variant", Kernel()),
    ],
)
def test_lowered_control_flow(op: str, dtype: str, kernel: Kernel) -> None:
    assert KernelIndex.shared().lookup_type(op, {"T": dtype}).kernels["GPU"] == kernel


@pytest.mark.parametrize(
    ("node", "device_type", "reason"),
    [
        (built("MatMul", T=I32), "GPU", "no GPU kernel of MatMul for T=int32; there are for .*float32"),
        (built("StringLower"), "GPU", "no GPU kernel of StringLower"),
        (built("CudnnRNNV3", T=F32), "CPU", "no CPU kernel of CudnnRNNV3"),
        (built("Cast", SrcT=tf.string, DstT=F32), "GPU", "no GPU kernel of Cast for SrcT=string; there are for .*int32"),
        (built("NoSuchOp"), "CPU", "NoSuchOp is no op that this TensorFlow knows"),
        (built("Conv2D", T=I32, data_format=b"NCHW"), "GPU", "the GPU kernel of Conv2D runs integers with channels last only"),
        (built("Conv2DBackpropInput", T=I32, dilations=[1, 2, 2, 1]), "GPU", ".* runs integers without dilation only"),
        (built("SpaceToDepth", T=tf.qint8), "GPU", ".* takes qint8 with channels in vectors .*"),
        (built("DepthToSpace", T=F32, data_format=b"NCHW_VECT_C"), "GPU", ".* takes qint8 with channels in vectors .*"),
        (built("MaxPool", T=F32, data_format=b"NCHW_VECT_C"), "CPU", ".* does not know channels in vectors"),
    ],
    ids=lambda value: value.op if isinstance(value, NodeDef) else "",
)
def test_reasons(node: NodeDef, device_type: str, reason: str) -> None:
    support = KernelIndex.shared().lookup(node)
    assert device_type not in support.kernels
    assert re.fullmatch(reason + ".*", support.refusals[device_type])


def test_what_is_asked_to_raise_for_an_index_out_of_range_stays_on_the_cpu() -> None:
    policy = "bad_indices_policy"
    op_types = {kernel.op for kernel in kernels.get_all_registered_kernels().kernel}
    asked = [op for op in sorted(op_types) if policy in {a.name for a in op_def_registry.get(op).attr}]
    for op in asked:
        dtypes = {"T": F32, "Tparams": F32, "Tindices": I32}
        for value, devices in ((b"ERROR", {"CPU"}), (b"IGNORE", {"CPU", "GPU"})):
            assert set(KernelIndex.shared().lookup(built(op, **dtypes, **{policy: value})).kernels) == devices, op
    assert "GatherNd" in asked


def test_layout_is_a_reason() -> None:
    pool = windows(first=True)
    _, node = traced("MaxPoolGrad", {"orig_input": images(True), "orig_output": images(True), "grad": images(True)}, pool)
    support = KernelIndex.shared().lookup(node)
    assert support.refusals["CPU"] == "the CPU kernel of MaxPoolGrad runs with channels last only (NHWC)"
    assert "GPU" in support.kernels


def test_a_build_without_gpu_support_has_the_gpu_kernels_of_one_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own, registered = KernelIndex(), kernels.get_all_registered_kernels().kernel
    assert own.snapshot == ""
    cpu_only = KernelList(kernel=[kernel for kernel in registered if kernel.device_type == "CPU"])
    monkeypatch.setattr(kernels, "get_all_registered_kernels", lambda: cpu_only)
    index = KernelIndex()
    for kernel in registered:
        if kernel.device_type in ("GPU", "DEFAULT"):
            node = node_for(kernel)
            assert index.lookup(node) == own.lookup(node), kernel

    monkeypatch.setattr(KernelIndex, "shared", lambda: index)
    graph = placer.build_graph(lambda x: x @ x, tf.ones([2, 2]))
    graph.save(tmp_path / "graph.json")
    said = f"GPU kernels are those of TensorFlow {'.'.join(tf.__version__.split('.')[:2])}, from a snapshot"
    assert said in placer.solve(placer.OpGraph.load(tmp_path / "graph.json"), "h100").summary()
    assert said not in placer.solve(graph, "cpu2").summary()


@pytest.mark.parametrize(("version", "nearest"), [("2.22.0-rc1", "2.21"), ("2.9.3", "2.20"), ("3.0.0", "2.21")])
def test_a_release_without_a_snapshot_uses_the_nearest(version: str, nearest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "get_all_registered_kernels", KernelList)
    monkeypatch.setattr(tf, "__version__", version)
    assert KernelRegistry.read().snapshot == f"TensorFlow {nearest}, the release nearest to {version} that has a snapshot"
