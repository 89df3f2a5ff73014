"""What each op type has to do, whatever device does it: one table from op types to formulas.

Unknown dimensions count as 1 (see `TensorSpec`). Resources have no bytes here, so an op on a variable is sized by what goes
in and out beside the handle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from cost_models.base import OpSignature, TensorSpec


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one op.

    Throughput work is ``flops`` and ``nbytes`` (memory traffic); work that does not spread over a device is stated in time,
    ``cpu_serial_ns`` on one host core and ``gpu_serial_ns`` on an H100-class GPU, waiting for the host included.
    """

    flops: float = 0.0
    nbytes: float = 0.0
    tiles: float = 0.0
    """Independent pieces for matrix units to share, each some 64 x 64 outputs by 512 deep; 0 where no matrix unit helps."""
    efficiency: float = 1.0
    """Share of the matrix rate that a large instance reaches on a GPU."""
    cpu_efficiency: float = 1.0
    """And on a CPU."""
    one_core: bool = False
    """A CPU does it on one core where it fits that core's cache."""
    kernels: int = 1
    """Kernels a GPU launches; 0 where only the host works."""
    nodes: int = 1
    """Ops that TensorFlow makes of it, where only the host works."""
    cpu_serial_ns: float = 0.0
    gpu_serial_ns: float = 0.0
    workspace_bytes: int = 0
    """What its kernel takes beside its results while it runs, as TensorFlow's allocator told of a GPU's."""


Formula: TypeAlias = Callable[[OpSignature], Work]


def fallback(op: OpSignature) -> Work:
    """For op types without a formula: every input read and output written once, a few operations per output."""
    return Work(flops=4 * _elements(op.outputs), nbytes=_nbytes(op.inputs) + _nbytes(op.outputs))


def host_only(op: OpSignature) -> Work:
    """Metadata, handles, control flow: the host is done after dispatch, nothing is read or written."""
    return Work(kernels=0)


def _loop_variable(op: OpSignature) -> Work:
    """A Merge and a Switch."""
    return Work(kernels=0, nodes=2)


def copied_read(read: OpSignature) -> OpSignature:
    """The same read of a variable where TensorFlow copies the value."""
    return replace(read, attrs=(*read.attrs, ("copied", True)))


def is_copied(read: OpSignature) -> bool:
    """Whether a read of a variable copies its value."""
    return bool(read.attr("copied"))


_CORE_NS_PER_BYTE = 1 / 15
"""Memory traffic of one core."""


def _reads(op: OpSignature) -> Work:
    """The variable's own buffer, or a copy of it, which a CPU makes on one core."""
    if not is_copied(op):
        return host_only(op)
    nbytes = 2 * _nbytes(op.outputs)
    return Work(nbytes=nbytes, cpu_serial_ns=_CORE_NS_PER_BYTE * nbytes)


def on_host(op: OpSignature) -> Work:
    """Small tensors that TensorFlow keeps in host memory also where the op is placed on a GPU."""
    return Work(kernels=0, cpu_serial_ns=0.03 * (_nbytes(op.inputs) + _nbytes(op.outputs)))


def runs_on_host(op: OpSignature) -> bool:
    """Whether a GPU's kernel for this op takes and gives host memory only (int32 arithmetic, Unique of other than integers)."""
    if op.op_type == "Unique":
        return bool(op.inputs) and "int" not in op.inputs[0].dtype
    if op.op_type not in HOST_INT32:
        return False
    specs = [s for s in (*op.inputs, *op.outputs) if s.dtype != "bool"]
    return bool(specs) and all(s.dtype == "int32" for s in specs)


def _elements(specs: tuple[TensorSpec, ...]) -> int:
    return sum(s.elements for s in specs)


def _nbytes(specs: tuple[TensorSpec, ...]) -> int:
    return sum(s.nbytes for s in specs)


def _dims(specs: tuple[TensorSpec, ...], index: int) -> tuple[int, ...]:
    """The shape of one tensor with unknown dimensions as 1; () where there is none."""
    shape = specs[index].shape if index < len(specs) else None
    return () if shape is None else tuple(1 if d is None else d for d in shape)


def _known(specs: tuple[TensorSpec, ...]) -> bool:
    """Whether all sizes are: that an unknown one counts as 1 does not mean that nothing is done along it."""
    return all(s.shape is not None and None not in s.shape for s in specs)


def _counts(op: OpSignature, name: str) -> tuple[int, ...]:
    """An attribute that lists numbers above 0; () where it is anything else."""
    value = op.attr(name)
    listed = value if isinstance(value, tuple) else ()
    counts = tuple(each for each in listed if isinstance(each, int) and each > 0)
    return counts if len(counts) == len(listed) else ()


def _elementwise(flops_each: float) -> Formula:
    def formula(op: OpSignature) -> Work:
        elements = max(_elements(op.inputs[:1]), _elements(op.outputs))
        return Work(flops=flops_each * elements, nbytes=_nbytes(op.inputs) + _nbytes(op.outputs))

    return formula


_STRING_COPY_NS = 10.0
"""Copying a string of at most 22 characters, which are in its header, on one core. A longer one takes ten times that."""


def _copied_strings_ns(op: OpSignature) -> float:
    return _STRING_COPY_NS * sum(s.elements for s in op.outputs if s.dtype == "string")


def _moves(passes: float, kernels: int = 1, cpu_ns_each: float = 0.0, gpu_serial_ns: float = 0.0) -> Formula:
    """Bytes in and out, `passes` times, plus a serial share on a CPU for each element of the largest tensor and each string."""

    def formula(op: OpSignature) -> Work:
        largest = max((s.elements for s in (*op.inputs, *op.outputs)), default=0)
        return Work(
            nbytes=passes * (_nbytes(op.inputs) + _nbytes(op.outputs)),
            kernels=kernels,
            cpu_serial_ns=cpu_ns_each * largest + _copied_strings_ns(op),
            gpu_serial_ns=gpu_serial_ns,
        )

    return formula


def _picks(op: OpSignature) -> Work:
    """Part of a larger tensor is read: the output's bytes twice, and whatever says which part."""
    return Work(nbytes=2 * _nbytes(op.outputs) + _nbytes(op.inputs[1:]), cpu_serial_ns=_copied_strings_ns(op))


def _gathers(op: OpSignature) -> Work:
    """Each row is looked for in memory: some 80 operations' time."""
    return replace(_picks(op), flops=80.0 * _elements(op.inputs[1:2]))


def _slices(op: OpSignature) -> Work:
    """Along the first axis alone the part is the whole's own memory, if each row begins where memory is aligned to 64 bytes."""
    whole, part = op.inputs[:1], op.outputs[:1]
    aligned = _nbytes(whole) // max(1, (_dims(whole, 0) or (1,))[0]) % 64 == 0
    is_all = _known(whole + part) and _elements(whole) == _elements(part)
    is_view = is_all or (aligned and _dims(op.inputs, 1) == (1,))
    return host_only(op) if is_view and not runs_on_host(op) else _picks(op)


def _splits(op: OpSignature) -> Work:
    """A CPU copies each part of each row by itself."""
    rows = sum(s.elements // max(1, (s.shape or (1,))[-1] or 1) for s in op.outputs)
    work = _moves(1)(op)
    return replace(work, cpu_serial_ns=work.cpu_serial_ns + 6.0 * rows)


def _transposes(op: OpSignature) -> Work:
    """Nothing moves where but one axis is longer than one."""
    if _known(op.outputs) and sum(side > 1 for side in _dims(op.outputs, 0)) <= 1:
        return host_only(op)
    work = _moves(2)(op)
    return replace(work, cpu_serial_ns=work.cpu_serial_ns + _LIBRARY_NS)


def _unpacks(op: OpSignature) -> Work:
    """Along the first axis the parts are the whole's own memory, if each begins where memory is aligned to 64 bytes."""
    return host_only(op) if op.attr("axis", 0) == 0 and _nbytes(op.outputs[:1]) % 64 == 0 else _moves(1)(op)


def _fills(op: OpSignature) -> Work:
    return Work(nbytes=_nbytes(op.outputs))


def _random(op: OpSignature) -> Work:
    """Counter-based generators: some 45 operations for each number."""
    return Work(flops=45 * _elements(op.outputs), nbytes=_nbytes(op.outputs))


def _reduces(flops_each: float) -> Formula:
    def formula(op: OpSignature) -> Work:
        elements = _elements(op.inputs[:1])
        return Work(flops=flops_each * elements, nbytes=_nbytes(op.inputs) + _nbytes(op.outputs))

    return formula


def _sums(op: OpSignature) -> Work:
    """Memory is read at half its rate; nothing is done where only axes of one are summed over."""
    if _known(op.inputs[:1] + op.outputs[:1]) and _elements(op.inputs[:1]) == _elements(op.outputs[:1]):
        return host_only(op)
    work = _reduces(4)(op)
    return replace(work, nbytes=2 * work.nbytes)


def _finds_largest(op: OpSignature) -> Work:
    """One thread walks along the axis for each result."""
    walked = _elements(op.inputs[:1]) / max(1, _elements(op.outputs))
    return replace(_reduces(1)(op), cpu_serial_ns=0.5 * walked, gpu_serial_ns=34.0 * walked)


_LIBRARY_NS = 20_000.0
"""What oneDNN's kernels take a CPU at the least, on two cores as on sixteen."""
_LIBRARY_DTYPES = ("float32", "bfloat16", "float16")


def _matrix(flops: float, nbytes: float, outputs: float, depth: float, efficiency: float = 1.0, workspace_bytes: int = 0) -> Work:
    """A product with `outputs` results, each a sum over `depth`."""
    return Work(flops, nbytes, max(1.0, outputs / 4096) * max(1.0, depth / 512), efficiency, workspace_bytes=workspace_bytes)


def _matmul(op: OpSignature) -> Work:
    """2·m·n·k for each matrix of the batch."""
    left = _dims(op.inputs, 0)
    transposed = op.attr("transpose_a") or op.attr("adj_x")
    depth = (left[-2] if transposed else left[-1]) if len(left) >= 2 else 1
    outputs = _elements(op.outputs[:1])
    work = _matrix(2.0 * outputs * depth, _nbytes(op.inputs) + _nbytes(op.outputs), outputs, depth)
    return replace(work, one_core=op.outputs[0].dtype in _LIBRARY_DTYPES) if op.outputs else work


def _einsum(op: OpSignature) -> Work:
    """Two operations for each point of the product of all labels' sizes; an ellipsis stands for the rest of the first output."""
    terms, _, kept = str(op.attr("equation", "")).partition("->")
    size: dict[str, int] = {}
    for i, term in enumerate(terms.split(",")):
        labels, shape = term.replace("...", "."), _dims(op.inputs, i)
        before, _, after = labels.partition(".")
        named = list(zip(before, shape, strict=False))
        named += list(zip(reversed(after), reversed(shape), strict=False)) if "." in labels else []
        for label, dim in named:
            size[label] = max(size.get(label, 1), dim)
    outputs = max(1, _elements(op.outputs[:1]))
    summed = [label for label in size if label not in kept]
    depth = math.prod(size[label] for label in summed)
    moved = _nbytes(op.inputs) + _nbytes(op.outputs)
    transposed = _transposed(str(op.attr("equation", "")))
    work = _matrix(2.0 * outputs * depth, moved, outputs, depth, workspace_bytes=moved)
    return replace(work, kernels=1 + transposed, cpu_serial_ns=transposed * _LIBRARY_NS)


def _transposed(equation: str) -> int:
    """How many of two tensors and their product are not laid out as a batch of matrices."""
    terms, _, kept = equation.replace("...", ".").partition("->")
    left, _, right = terms.partition(",")
    batch = [label for label in kept if label in left and label in right]

    def runs(labels: str) -> list[int]:
        """Which kinds of labels follow each other: 0 for the batch's, 1 and 2 for sides of the product, 3 for what is summed."""
        kinds = (0 if each in batch else 3 if each not in kept else 1 if each in left else 2 for each in labels)
        return [kind for kind, _ in itertools.groupby(kinds)]

    def is_plain(labels: str) -> bool:
        found = runs(labels)
        return len(set(found)) == len(found) and 0 not in found[1:]

    return (not is_plain(left)) + (not is_plain(right)) + (runs(kept) != sorted(set(runs(kept))))


_CONV_EFFICIENCY = 0.45
_GPU_COPY_BYTES_PER_NS = 1_500.0
"""Read or written, of a tensor that is laid out anew for a kernel."""
IN_FOURS = 4
"""A GPU's matrix units take images with the channels last and as many as a multiple of this."""


def convolution_workspace(op: OpSignature, *, channels_first: bool = False) -> int:
    """Bytes that a convolution's kernel takes on a GPU.

    They are the filter in the library's layout; a padded copy of the image; a gradient in another layout; and image, filter and
    result as matrix units take them, where they are not so: their channels are first, as gradients' are, or not in fours.
    """
    images = [s for s in (*op.inputs, *op.outputs) if len(s.shape or ()) >= 4]
    if len(images) != 3:
        return 0
    back = "Backprop" in op.op_type
    weights = images[2 if "BackpropFilter" in op.op_type else 0 if "BackpropInput" in op.op_type else 1]
    image = images[2] if "BackpropInput" in op.op_type else images[0]
    channels = max(1, _dims((weights,), 0)[-2])
    lacking = -channels % IN_FOURS
    workspace = weights.nbytes + _padded_nbytes(op, image, _dims((weights,), 0))
    if back:
        workspace += _nbytes(op.outputs[:1])
    if back or channels_first or lacking:
        workspace += sum(s.nbytes for s in images) + lacking * image.nbytes // channels
    return workspace


def _convolution(image: int, weights: int, result: int, efficiency: float = _CONV_EFFICIENCY) -> Formula:
    """2·(outputs of the forward convolution)·(filter taps and input channels), the same for both gradients.

    The arguments say which tensor is which: an index into the inputs, or -1 for the output.
    """

    def formula(op: OpSignature) -> Work:
        def spec(index: int) -> TensorSpec:
            return next(iter(op.outputs[:1] if index < 0 else op.inputs[index : index + 1]), TensorSpec("float32", None))

        taps = _dims((spec(weights),), 0)
        depthwise = op.op_type.startswith("Depthwise")
        depth = math.prod(taps[:-2] if depthwise else taps[:-1])
        moved = sum(spec(i).nbytes for i in (image, weights, result))
        flops = 2.0 * spec(result).elements * depth
        produced, summed = spec(-1).elements, flops / 2 / max(1, spec(-1).elements)
        work = _matrix(flops, moved, produced, summed, efficiency, workspace_bytes=convolution_workspace(op))
        lacking = -max(1, taps[-2] if len(taps) > 1 else 1) % IN_FOURS
        copied = _padded_nbytes(op, spec(image), taps) + (spec(image).nbytes if lacking else 0)
        return replace(
            work,
            cpu_efficiency=min(1.0, 2 * efficiency),
            cpu_serial_ns=_LIBRARY_NS,
            gpu_serial_ns=2 * copied / _GPU_COPY_BYTES_PER_NS,
        )

    return formula


def _padded_nbytes(op: OpSignature, image: TensorSpec, taps: tuple[int, ...]) -> int:
    """Of the copy that is made of an image whose two sides need unequal padding; 0 where none is."""
    strides, shape = _counts(op, "strides"), image.shape or ()
    if op.attr("padding") != "SAME" or not len(strides) == len(shape) == len(taps) or None in shape:
        return 0
    channels_last = str(op.attr("data_format", "NHWC")).endswith("C")
    first = 1 if channels_last else 2
    padded = [int(side or 0) for side in shape]
    for axis, window in enumerate(taps[:-2], first):
        side, stride = padded[axis], strides[axis]
        padded[axis] += max(0, (-(-side // stride) - 1) * stride + window - side) % 2
    copied = math.prod(padded) * image.nbytes // max(1, image.elements)
    return copied if copied > image.nbytes else 0


def _softmax(op: OpSignature) -> Work:
    """A GPU's kernel has the rows' maxima and sums in tensors of the result's size."""
    one_row = _known(op.outputs) and (_dims(op.outputs, 0) or (1,))[-1] == _elements(op.outputs[:1])
    return replace(_reduces(12)(op), cpu_serial_ns=0.0 if one_row else _LIBRARY_NS, workspace_bytes=2 * _nbytes(op.outputs))


def _pooling(op: OpSignature) -> Work:
    """One operation for each window entry, forward or back."""
    taps = math.prod(_counts(op, "ksize"))
    pooled = min((s.elements for s in (*op.inputs, *op.outputs) if s.dtype != "int32"), default=1)
    return Work(flops=float(taps * pooled), nbytes=_nbytes(op.inputs) + _nbytes(op.outputs))


def _update(passes: int) -> Formula:
    """A dense optimizer step: `passes` reads and writes of something of the gradient's (largest input's) size."""

    def formula(op: OpSignature) -> Work:
        size = max((s.nbytes for s in op.inputs), default=0)
        return Work(flops=passes * size / 4, nbytes=passes * size)

    return formula


def _scatter(op: OpSignature) -> Work:
    """Rows read, combined and written back, by one core of a CPU; a fresh output is filled first."""
    moved = 3 * max((s.nbytes for s in op.inputs[1:]), default=0)
    nbytes = moved + 2 * _nbytes(op.outputs) + _nbytes(op.inputs[1:2])
    return Work(nbytes=nbytes, cpu_serial_ns=20.0 * _elements(op.inputs[1:2]) + _CORE_NS_PER_BYTE * moved)


def _segments(op: OpSignature) -> Work:
    """CPU: one core walks the rows. GPU: the output is cleared, then atomics."""
    nbytes = 2 * _nbytes(op.inputs) + 2 * _nbytes(op.outputs)
    return Work(nbytes=nbytes, kernels=2, cpu_serial_ns=2.0 * _elements(op.inputs[:1]))


def _sort(op: OpSignature) -> Work:
    """CPU: n·log n comparisons on one core for each row. GPU: a radix sort's passes."""
    elements, row = _elements(op.inputs[:1]), (_dims(op.inputs, 0) or (1,))[-1]
    kept = (_dims(op.outputs, 0) or (row,))[-1]
    # Keeping few of many is a scan with a small heap.
    per_element = 4.0 * math.log2(max(2, row)) if 4 * kept >= row else 2.0 + 4.0 * kept / row * math.log2(max(2, row))
    size = _nbytes(op.inputs[:1])
    return Work(nbytes=10.0 * size, kernels=20, cpu_serial_ns=per_element * elements, workspace_bytes=2 * size)


def _unique(op: OpSignature) -> Work:
    """CPU: one hash table filled serially. GPU: a sort, a scan, and the host waits for the count."""
    elements, size = _elements(op.inputs[:1]), _nbytes(op.inputs[:1])
    serial = 25.0 * elements
    if runs_on_host(op):
        return Work(kernels=0, cpu_serial_ns=serial)
    return Work(nbytes=16.0 * size, kernels=10, cpu_serial_ns=serial, gpu_serial_ns=250_000, workspace_bytes=4 * size)


def _where(op: OpSignature) -> Work:
    """CPU: one pass. GPU: a count that the host waits for, then the pass."""
    elements = _elements(op.inputs[:1])
    nbytes = 2 * _nbytes(op.inputs) + max(_nbytes(op.outputs), 2 * elements)
    return Work(nbytes=nbytes, kernels=4, cpu_serial_ns=5.0 * elements, gpu_serial_ns=30_000)


def _suppression(op: OpSignature) -> Work:
    """CPU: a heap of n scores, then few comparisons. GPU: all n² overlaps, a serial sweep over them, the host waits.

    The sweep ends when enough boxes are chosen, so what it takes depends on where they lie. Measured on an H100: 10 suppressions
    of 4,096 boxes took 3.6 ms longer than on its host, of 16,384 boxes 55 ms, and where many lie apart 1.5 and 5.4 ms.
    """
    boxes = _dims(op.inputs, 0)
    count = (
        boxes[-2] if op.op_type == "NonMaxSuppressionWithOverlaps" and len(boxes) > 1 else math.prod(boxes[:-1]) if boxes else 1
    )
    if op.op_type == "CombinedNonMaxSuppression":
        count = _elements(op.inputs[1:2])  # every score of every class is a candidate
    return Work(
        kernels=8, cpu_serial_ns=100_000 + 30.0 * count, gpu_serial_ns=60_000 + 0.0105 * count**2, workspace_bytes=count**2 // 8
    )


def _strings(ns_each: float) -> Formula:
    """Strings are handled one by one, by one core."""

    def formula(op: OpSignature) -> Work:
        count = max((s.elements for s in (*op.inputs[:1], *op.outputs[:1])), default=1)
        return Work(kernels=0, cpu_serial_ns=ns_each * count)

    return formula


def _lookup(op: OpSignature) -> Work:
    return Work(kernels=0, cpu_serial_ns=60.0 * _elements(op.inputs[1:2]))


def _linear_algebra(flops_factor: float, first_steps: int, steps_per_row: float, batched: bool = False) -> Formula:
    """flops_factor·n³ for each n x n matrix (LAPACK working notes); n is the geometric mean of the sides.

    A CPU keeps each matrix on one core, at some 20 GFLOP/s. A GPU solver is a chain of dependent kernels of some 3 us, the
    more the larger the matrix, for one matrix after another unless `batched`: that, not the arithmetic, is why small
    decompositions are hundreds of times slower there.
    """

    def formula(op: OpSignature) -> Work:
        shape = _dims(op.inputs, 0)
        rows, columns = shape[-2:] if len(shape) >= 2 else (1, 1)
        batch = math.prod(shape[:-2])
        flops = flops_factor * batch * math.sqrt(rows * columns) ** 3
        steps = (1 if batched else batch) * (first_steps + steps_per_row * columns)
        return Work(
            flops=flops,
            nbytes=_nbytes(op.inputs) + _nbytes(op.outputs),
            cpu_serial_ns=flops / 20 if batch == 1 else 0.0,
            gpu_serial_ns=3_000.0 * steps,
        )

    return formula


def _fft(op: OpSignature) -> Work:
    """5·n·log2 n for each complex transform of length n."""
    elements = max(_elements(op.inputs[:1]), _elements(op.outputs[:1]))
    length = max((_dims(op.inputs, 0) or (1,))[-1], 2)
    return Work(flops=5.0 * elements * math.log2(length), nbytes=2 * (_nbytes(op.inputs) + _nbytes(op.outputs)))


def _resize(op: OpSignature) -> Work:
    elements = max(_elements(op.inputs[:1]), _elements(op.outputs))
    return Work(flops=8.0 * elements, nbytes=_nbytes(op.inputs[:1]) + _nbytes(op.outputs))


def _crops(op: OpSignature) -> Work:
    """On five hosts 2.8 to 5.2 times what a resize is taken for, 3.4 in the median."""
    work = _resize(op)
    return replace(work, flops=3 * work.flops)


def _adjusts_contrast(op: OpSignature) -> Work:
    """The means are one core's work."""
    return replace(_resize(op), cpu_serial_ns=0.8 * _elements(op.inputs[:1]))


def _decode(op: OpSignature) -> Work:
    """A picture of unknown size: some milliseconds on one core."""
    return Work(kernels=0, cpu_serial_ns=max(2e6, 5.0 * _elements(op.outputs)))


def _names(text: str) -> list[str]:
    return text.split()


HOST_INT32 = frozenset(
    _names(
        """Abs Add AddN AddV2 BroadcastTo ClipByValue Concat ConcatV2 Div Equal Fill FloorDiv FloorMod Greater
    GreaterEqual Less LessEqual Max Maximum Min Minimum Mod Mul Neg NotEqual Pack Pad PadV2 Range Reverse ReverseV2 ScatterNd
    Sign Slice SplitV Square SquaredDifference StridedSlice StridedSliceGrad Sub Sum TensorScatterAdd TensorScatterMax
    TensorScatterMin TensorScatterSub TensorScatterUpdate TruncateMod Unpack Where"""
    )
)
"""Op types whose int32 GPU kernels take and give host memory only, from TensorFlow's kernel registry."""

AWAITED = frozenset(
    _names(
        """CropAndResize Cholesky DynamicPartition GenerateBoundingBoxProposals Lu MatrixDeterminant MatrixInverse MatrixSolve
        MatrixTriangularSolve Qr SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum SelfAdjointEigV2 SparseFillEmptyRows
        SparseSegmentMean SparseSegmentSqrtN SparseSegmentSum Svd Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Where"""
    )
)
"""Op types whose GPU kernels tell the host something, such as a shape, before what follows can go on, and give its thread back
meanwhile: those that are an `AsyncOpKernel` in TensorFlow."""


_STARTS: dict[str, float] = {
    op_type: factor
    for factor, op_types in {
        1.4: """Neg Sqrt Rsqrt Square Exp Expm1 Log Log1p Sigmoid Erf Erfc Sin Cos Relu Relu6 BiasAdd BiasAddGrad Gather GatherV2
             ResourceGather Sum Mean Max Min Prod All Any""",
        1.8: "ConcatV2 Concat Pow SquaredDifference TensorScatterUpdate TensorScatterAdd TensorScatterSub",
        2.1: "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 _FusedMatMul SelectV2 Einsum",
        2.4: "Softmax LogSoftmax",
        3.6: "Conv2D Conv3D _FusedConv2D SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits",
        4.2: "Conv2DBackpropFilter Conv3DBackpropFilterV2",
        7.0: "Conv2DBackpropInput Conv3DBackpropInputV2",
    }.items()
    for op_type in _names(op_types)
}


def start_factor(op_type: str) -> float:
    """How much longer the host takes to start such an op on a GPU than one that adds two tensors: what it asks of libraries,
    and how its arguments are made. Medians over an H100 and three H200 with their hosts.
    """
    return _STARTS.get(op_type, 1.0)


def is_awaited(op: OpSignature) -> bool:
    """Whether what follows this op on a GPU waits for its end, and the host does something else until then."""
    return op.op_type in AWAITED and not runs_on_host(op)


FORMULAS: dict[str, Formula] = {}
"""The table. What is not in it is priced by `fallback`."""


def work_of(op: OpSignature) -> Work:
    """The op's work by its formula, or by the fallback where it has none."""
    return FORMULAS.get(op.op_type, fallback)(op)


def _register(formula: Formula, op_types: str) -> None:
    FORMULAS.update(dict.fromkeys(_names(op_types), formula))


_register(
    host_only,
    """Identity IdentityN StopGradient PreventGradient CheckNumerics EnsureShape Reshape Squeeze ExpandDims Bitcast Placeholder
    PlaceholderWithDefault _Arg _Retval Const NoOp ControlTrigger VarHandleOp AssignVariableOp VarIsInitializedOp
    DestroyResourceOp VariableShape Assert Print PrintV2 Timestamp StringFormat DisableCopyOnRead
    Enter Exit Merge Switch NextIteration LoopCond BranchMerge RefEnter RefExit RefMerge RefSwitch RefNextIteration
    While StatelessWhile If StatelessIf Case StatelessCase PartitionedCall StatefulPartitionedCall
    TensorListReserve EmptyTensorList TensorListLength TensorListElementShape TensorListGetItem TensorListSetItem
    TensorListPushBack TensorListPopBack TensorListResize TensorListSplit
    HashTableV2 MutableHashTableV2 LookupTableSizeV2 GeneratorDataset IteratorGetNext OptionalHasValue OptionalGetValue
    OptionalFromValue OptionalNone RngReadAndSkip RngSkip Shape ShapeN Size Rank BroadcastGradientArgs BroadcastArgs ConcatOffset
    InvertPermutation StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomGetAlg""",
)
_register(_reads, "ReadVariableOp")
_register(_loop_variable, "LoopVariable")
_register(
    _elementwise(1),
    """Add AddV2 Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv TruncateDiv FloorMod TruncateMod Mod Maximum Minimum Neg Abs
    Sign Square SquaredDifference Relu Relu6 LeakyRelu ReluGrad Relu6Grad LeakyReluGrad BiasAdd BiasAddV1 Cast Select SelectV2
    Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot IsNan IsInf IsFinite ApproximateEqual
    BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift PopulationCount ClipByValue Floor Ceil Round Rint Real Imag Conj
    ComplexAbs Complex Xdivy AddN AccumulateNV2 Snapshot QuantizeV2 Dequantize FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxArgs Reciprocal Inv InvGrad ReciprocalGrad Sqrt SqrtGrad Rsqrt RsqrtGrad NextAfter L2Loss""",
)
_register(
    _elementwise(15),
    """Exp Expm1 Log Log1p Pow Tanh TanhGrad Sigmoid SigmoidGrad Softplus SoftplusGrad Softsign SoftsignGrad Elu EluGrad Selu
    SeluGrad Erf Erfc Erfinv Ndtri Lgamma Digamma Polygamma Igamma Igammac Betainc Zeta Xlogy Xlog1py Sin Cos Tan Asin Acos Atan
    Atan2 Sinh Cosh Asinh Acosh Atanh Angle BesselI0e BesselI1e""",
)
_register(_reduces(1), "BiasAddGrad Cumsum Cumprod Bincount DenseBincount InTopKV2")
_register(_sums, "Sum Mean Max Min Prod All Any EuclideanNorm")
_register(_finds_largest, "ArgMax ArgMin")
_register(_softmax, "Softmax LogSoftmax")
_register(_reduces(20), "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits CumulativeLogsumexp")
_register(_reduces(200), "CTCLoss CTCLossV2 CTCGreedyDecoder CTCBeamSearchDecoder")
_register(
    _moves(1),
    """Concat ConcatV2 Pack Pad PadV2 MirrorPad MirrorPadGrad Tile BroadcastTo Reverse ReverseV2
    ReverseSequence Roll StridedSliceGrad SpaceToDepth DepthToSpace SpaceToBatchND BatchToSpaceND SpaceToBatch BatchToSpace
    MatrixDiag MatrixDiagV2 MatrixDiagV3 MatrixDiagPartV3 MatrixSetDiagV3 MatrixBandPart Diag DiagPart OneHot
    TensorListStack TensorListFromTensor TensorListConcatV2 TensorListGather TensorListScatterV2 ExtractImagePatches
    DynamicStitch ParallelDynamicStitch""",
)
_register(_unpacks, "Unpack")
_register(_splits, "Split SplitV")
_register(_transposes, "Transpose ConjugateTranspose")
_register(_moves(2, kernels=6, cpu_ns_each=2, gpu_serial_ns=30_000), "DynamicPartition Bucketize LowerBound UpperBound")
_register(_picks, "Slice TensorStridedSliceUpdate")
_register(_slices, "StridedSlice")
_register(_gathers, "Gather GatherV2 GatherNd ResourceGather ResourceGatherNd")
_register(_fills, "Fill ZerosLike OnesLike Range LinSpace ImmutableConst")
_register(
    _random,
    """RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt RandomShuffle Multinomial RandomGamma
    RandomPoissonV2 StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomUniformInt StatelessRandomUniformIntV2
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomNormal StatelessRandomNormalV2
    StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessMultinomial StatelessRandomBinomial StatelessRandomGammaV3
    StatefulUniform StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniformInt StatefulUniformFullInt""",
)
_register(_matmul, "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 _FusedMatMul SparseMatMul")
_register(_einsum, "Einsum XlaEinsum")
_register(_convolution(0, 1, -1), "Conv Conv2D Conv3D _FusedConv2D")
_register(_convolution(-1, 1, 2), "Conv2DBackpropInput Conv3DBackpropInputV2")
_register(_convolution(0, -1, 2), "Conv2DBackpropFilter Conv3DBackpropFilterV2")
_register(_convolution(0, 1, -1, efficiency=0.03), "DepthwiseConv2dNative")
_register(_convolution(-1, 1, 2, efficiency=0.03), "DepthwiseConv2dNativeBackpropInput")
_register(_convolution(0, -1, 2, efficiency=0.03), "DepthwiseConv2dNativeBackpropFilter")
_register(
    _pooling,
    """MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax AvgPool AvgPool3D MaxPoolGrad MaxPoolGradV2 MaxPoolGradGrad
    MaxPool3DGrad MaxPoolGradWithArgmax AvgPoolGrad AvgPool3DGrad FractionalMaxPool FractionalAvgPool LRN LRNGrad Dilation2D""",
)
_register(_moves(1.5), "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx _MklLayerNorm")
_register(_moves(1.7, kernels=2), "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
_register(_update(3), "AssignAddVariableOp AssignSubVariableOp ResourceApplyGradientDescent ResourceApplyProximalGradientDescent")
_register(
    _update(5),
    "ResourceApplyMomentum ResourceApplyKerasMomentum ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdagradDA",
)
_register(
    _update(7),
    """ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyRMSProp
    ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyPowerSign ResourceApplyAddSign""",
)
_register(
    _scatter,
    """ResourceScatterAdd ResourceScatterSub ResourceScatterMul ResourceScatterDiv ResourceScatterMax ResourceScatterMin
    ResourceScatterUpdate ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate ScatterNd ResourceStridedSliceAssign
    TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin
    ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2 ResourceSparseApplyMomentum ResourceSparseApplyKerasMomentum
    ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2 ResourceSparseApplyRMSProp ResourceSparseApplyAdadelta
    ResourceSparseApplyCenteredRMSProp ResourceSparseApplyProximalAdagrad SparseToDense""",
)
_register(
    _segments,
    """UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd SegmentSum SegmentSumV2 SegmentMean SegmentMax
    SegmentMin SegmentProd SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN SparseSegmentSumGrad SparseSegmentMeanGrad
    SparseSegmentSqrtNGrad SparseTensorDenseMatMul""",
)
_register(_sort, "TopK TopKV2 NthElement")
_register(_unique, "Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2")
_register(_where, "Where ListDiff")
_register(
    _suppression,
    """NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
    NonMaxSuppressionWithOverlaps CombinedNonMaxSuppression""",
)
_register(_strings(15), "StringToHashBucketFast StringLength StringToHashBucket DecodeRaw EncodeBase64 DecodeBase64")
_register(
    _strings(50),
    """StringLower StringUpper StringStrip StringToNumber AsString Substr UnicodeScript StringToHashBucketStrong StringJoin""",
)
_register(
    _strings(120),
    """StringSplit StringSplitV2 RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch StringNGrams UnicodeDecode
    UnicodeDecodeWithOffsets UnicodeEncode UnicodeTranscode ReduceJoin UnsortedSegmentJoin""",
)
_register(_strings(1_000), "ParseExample ParseExampleV2 ParseSingleExample ParseSequenceExampleV2 DecodeCSV DecodeProtoV2")
_register(_lookup, "LookupTableFindV2 LookupTableInsertV2 LookupTableImportV2 LookupTableExportV2 LookupTableRemoveV2")
_register(_linear_algebra(1 / 3, 6, 0.05, batched=True), "Cholesky LogMatrixDeterminant MatrixDeterminant")
_register(_linear_algebra(2, 8, 0.1, batched=True), "MatrixInverse MatrixSolve Lu MatrixTriangularSolve CholeskyGrad")
_register(_linear_algebra(3, 10, 1), "Qr MatrixSolveLs")
_register(_linear_algebra(9, 30, 2), "SelfAdjointEigV2 Eig")
_register(_linear_algebra(20, 60, 4), "Svd MatrixSquareRoot MatrixExponential MatrixLogarithm")
_register(_fft, "FFT FFT2D FFT3D FFTND IFFT IFFT2D IFFT3D IFFTND RFFT RFFT2D RFFT3D RFFTND IRFFT IRFFT2D IRFFT3D IRFFTND")
_register(
    _resize,
    """ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad ResizeBicubic ResizeBicubicGrad
    ResizeArea ScaleAndTranslate ImageProjectiveTransformV2 ImageProjectiveTransformV3 RGBToHSV HSVToRGB AdjustHue
    AdjustSaturation DrawBoundingBoxes""",
)
_register(_crops, "CropAndResize CropAndResizeGradImage CropAndResizeGradBoxes")
_register(_adjusts_contrast, "AdjustContrastv2")
_register(_decode, "DecodeJpeg DecodePng DecodeBmp DecodeGif DecodeImage DecodeAndCropJpeg DecodeWebP EncodeJpeg EncodePng")
