"""Measures ops of which few figures are known, in several sizes, on every kind of device of this process.

    python -m tests.benchmarks.bench_ops --out ops.json
    python -m tests.benchmarks.bench_ops --out ops.json --budget-s 40 transposes

The file has the measurements in the form of `placer measurements --export`. It also has the times of runs that no signature
describes: the time of an op on text depends on the lengths of the texts, and the gradient of a recurrent layer needs what the
layer saved. Small sizes come first, so that a small budget leaves out large sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("PLACER_CACHE", tempfile.mkdtemp())  # the user's own measurements stay as they are

import tensorflow as tf

import placer
from cost_models.auto import installed_tensorflow
from cost_models.base import OpSignature
from cost_models.exports import export_json
from cost_models.machines import Device
from cost_models.measurements import Row
from cost_models.measuring.chains import plain_graphs, refusals_as_unmeasurable, traced_call
from cost_models.measuring.timing import difference_ns, measure, repeat_count
from cost_models.ops import UnmeasurableError
from placer.tf.devices import local_machine

raw = tf.raw_ops
LEVELS = 5
"""Sizes of each family."""
EFFORT_S = 0.03
MAX_RUN_S = 0.06
"""No op is measured whose run takes longer."""
AUXILIARY = frozenset({"Const", "Fill", "ReadVariableOp", "VarHandleOp", "Placeholder", "NoOp", "Identity", "Arg"})
"""Ops that only make the inputs of those that are measured."""


# -- families: each makes its ops in one size, from 0 to LEVELS - 1 ------------------------------------------------------


def linear_algebra(level: int) -> None:
    shape = ((4, 4), (32, 32), (128, 128), (256, 256), (64, 8, 8))[level]
    matrix = tf.zeros(shape)
    raw.Cholesky(input=matrix)
    raw.MatrixTriangularSolve(matrix=matrix, rhs=matrix)
    raw.MatrixInverse(input=matrix)
    raw.MatrixSolve(matrix=matrix, rhs=matrix)
    raw.Svd(input=matrix, full_matrices=False)
    raw.SelfAdjointEigV2(input=matrix)
    raw.Qr(input=matrix)
    raw.LogMatrixDeterminant(input=matrix)
    raw.MatMul(a=tf.zeros([shape[-1]] * 2), b=tf.zeros([shape[-1], 1]))


def large_linear_algebra(level: int) -> None:
    if level == LEVELS - 1:
        matrix = tf.zeros([1024, 1024])
        raw.Cholesky(input=matrix)
        raw.MatrixTriangularSolve(matrix=matrix, rhs=tf.zeros([1024, 16]))
        raw.MatrixInverse(input=matrix)
        raw.Svd(input=tf.zeros([512, 64]), full_matrices=False)
        raw.SelfAdjointEigV2(input=tf.zeros([512, 512]))


def transposes(level: int) -> None:
    shapes = (
        ((2, 2), (4, 4), (5, 7), (1, 5, 1)),
        ((8, 8), (16, 16), (8, 63), (13, 21)),
        ((63, 8), (32, 32), (64, 10), (31, 33)),
        ((64, 64), (63, 63), (100, 256), (16, 60, 20)),
        ((256, 256), (8, 128, 8, 32), (1024, 1024)),
    )[level]
    orders = {2: (1, 0), 3: (1, 0, 2), 4: (0, 2, 1, 3)}
    for shape in shapes:
        raw.Transpose(x=tf.zeros(shape), perm=tf.constant(orders[len(shape)]))


def recurrent_layers(level: int) -> None:
    steps, batch, features, units = RECURRENT_SIZES[level]
    for mode, gates in (("lstm", 4), ("gru", 3)) if level < 2 else (("lstm", 4),):
        state = tf.zeros([1, batch, units])
        raw.CudnnRNNV3(
            input=tf.zeros([steps, batch, features]),
            input_h=state,
            input_c=state,
            params=tf.zeros([gates * units * (features + units + 2)]),
            sequence_lengths=tf.fill([batch], steps),
            rnn_mode=mode,
        )


RECURRENT_SIZES = ((10, 1, 32, 32), (60, 16, 128, 128), (200, 8, 256, 256), (20, 32, 64, 64), (100, 64, 512, 512))
"""Steps, batch, features, units."""


def label_sequences(level: int) -> None:
    steps, batch, classes, labels = ((20, 1, 10, 5), (50, 4, 30, 10), (200, 8, 40, 30), (100, 32, 100, 20), (60, 4, 2000, 15))[
        level
    ]
    logits, lengths = tf.zeros([steps, batch, classes]), tf.fill([batch], steps)
    shape = tf.zeros([labels * batch, 2], tf.int64), tf.zeros([labels * batch], tf.int32)
    for loss in (raw.CTCLoss, raw.CTCLossV2):
        loss(inputs=logits, labels_indices=shape[0], labels_values=shape[1], sequence_length=lengths)
    raw.CTCGreedyDecoder(inputs=logits, sequence_length=lengths)
    raw.CTCBeamSearchDecoder(inputs=logits, sequence_length=lengths, beam_width=10, top_paths=1)


def samplers(level: int) -> None:
    classes, sampled, batch = (
        (100, 8, 32),
        (10_000, 64, 256),
        (200_000, 64, 1024),
        (200_000, 1024, 1024),
        (1_000_000, 8192, 128),
    )[level]
    true = tf.zeros([batch, 1], tf.int64)
    for sampler in (raw.LogUniformCandidateSampler, raw.UniformCandidateSampler, raw.LearnedUnigramCandidateSampler):
        sampler(true_classes=true, num_true=1, num_sampled=sampled, unique=True, range_max=classes)


def segments(level: int) -> None:
    rows, row = ((64, 8), (1024, 64), (16_384, 16), (16_384, 128), (262_144, 32))[level]
    data, ids = tf.zeros([rows, row]), tf.zeros([rows], tf.int32)
    raw.UnsortedSegmentSum(data=data, segment_ids=ids, num_segments=rows // 8)
    raw.UnsortedSegmentMax(data=data, segment_ids=ids, num_segments=rows // 8)
    raw.SegmentSum(data=data, segment_ids=ids)
    raw.GatherV2(params=tf.zeros([rows // 8, row]), indices=ids, axis=0)


def transposed_convolutions(level: int) -> None:
    batch, side, wide, narrow = ((1, 8, 16, 8), (8, 16, 64, 32), (16, 14, 256, 128), (4, 64, 64, 32), (8, 128, 32, 16))[level]
    raw.Conv2DBackpropInput(
        input_sizes=tf.constant([batch, 2 * side, 2 * side, narrow]),
        filter=tf.zeros([4, 4, narrow, wide]),
        out_backprop=tf.zeros([batch, side, side, wide]),
        strides=[1, 2, 2, 1],
        padding="SAME",
    )


def fourier(level: int) -> None:
    rows, length = ((1, 64), (1, 4096), (64, 512), (256, 1024), (32, 16_384))[level]
    lengths, spectrum = tf.constant([length]), tf.zeros([rows, length // 2 + 1], tf.complex64)
    raw.FFT(input=tf.zeros([rows, length], tf.complex64))
    raw.RFFT(input=tf.zeros([rows, length]), fft_length=lengths)
    raw.IRFFT(input=spectrum, fft_length=lengths)
    if level > 1:
        raw.FFT2D(input=tf.zeros([4, 32 << level, 32 << level], tf.complex64))


def sorting(level: int) -> None:
    sizes = ((1, 100, 5), (64, 1000, 10), (1, 128_000, 4), (256, 4096, 4096), (1, 1_000_000, 100))[level]
    rows, row, kept = sizes
    raw.TopKV2(input=tf.zeros([rows, row]), k=kept)
    raw.TopKV2(input=tf.zeros([1, row]), k=min(row, 100_000))


def random_numbers(level: int) -> None:
    count = (20, 1024, 32_768, 262_144, 2_097_152)[level]
    shape = tf.constant([count])
    key, counter, alg = tf.zeros([1], tf.uint64), tf.zeros([2], tf.uint64), 1
    for stateless in (raw.StatelessRandomUniformV2, raw.StatelessRandomNormalV2, raw.StatelessTruncatedNormalV2):
        stateless(shape=shape, key=key, counter=counter, alg=alg)
    for stateful in (raw.RandomUniform, raw.RandomStandardNormal):
        stateful(shape=shape, dtype=tf.float32)
    raw.RandomShuffle(value=tf.zeros([count]))
    raw.Multinomial(logits=tf.zeros([max(1, count // 32_768), min(count, 32_768)]), num_samples=4)


def optimizers(level: int) -> None:
    rows, row = ((8, 16), (64, 128), (1024, 128), (16_384, 64), (65_536, 32))[level]
    table = raw.VarHandleOp(dtype=tf.float32, shape=[None, row])
    grad, indices, rate = tf.zeros([rows, row]), tf.zeros([rows], tf.int32), tf.constant(0.1)
    raw.ResourceSparseApplyAdagradV2(var=table, accum=table, lr=rate, epsilon=rate, grad=grad, indices=indices)
    raw.ResourceSparseApplyMomentum(var=table, accum=table, lr=rate, grad=grad, indices=indices, momentum=rate)
    raw.ResourceScatterAdd(resource=table, indices=indices, updates=grad)
    raw.ResourceGather(resource=table, indices=indices, dtype=tf.float32)


def counting(level: int) -> None:
    rows, row = ((16, 16), (64, 256), (1024, 256), (1024, 4096), (8, 1_000_000))[level]
    values, ids = tf.zeros([rows, row]), tf.zeros([rows * 16], tf.int32)
    raw.Cumsum(x=values, axis=1)
    raw.ArgMax(input=values, dimension=1)
    raw.Where(condition=tf.zeros([rows, row], tf.bool))
    raw.OneHot(indices=ids, depth=row, on_value=1.0, off_value=0.0) if rows * 16 * row < 2**25 else None
    raw.TensorScatterAdd(tensor=values, indices=ids[:, None], updates=tf.zeros([rows * 16, row])) if level < 3 else None


def scatters(level: int) -> None:
    """Rows of several lengths, of which one or many go to the same place."""
    rows, row, places = ((256, 64, 4096), (1024, 256, 4096), (1024, 64, 64), (4096, 256, 16), (65_536, 16, 4096))[level]
    tensor, points, updates = tf.zeros([places, row]), tf.zeros([rows, 1], tf.int32), tf.zeros([rows, row])
    raw.TensorScatterAdd(tensor=tensor, indices=points, updates=updates)
    raw.TensorScatterUpdate(tensor=tensor, indices=points, updates=updates)
    raw.ScatterNd(indices=points, updates=updates, shape=tf.constant([places, row]))
    if level > 2:
        raw.TensorScatterAdd(tensor=tf.zeros([places]), indices=points, updates=tf.zeros([rows]))


def segment_sums(level: int) -> None:
    """Many rows for each segment, and few."""
    rows, row, sums = ((1024, 16, 8), (4096, 64, 4096), (16_384, 64, 16), (100_000, 1, 64), (100_000, 16, 50_000))[level]
    data, ids = tf.zeros([rows, row] if row > 1 else [rows]), tf.zeros([rows], tf.int32)
    raw.UnsortedSegmentSum(data=data, segment_ids=ids, num_segments=sums)


def draws(level: int) -> None:
    rows, row, samples = ((16, 64, 1), (1024, 10, 1), (64, 1024, 1), (1, 1024, 1000), (256, 8192, 1))[level]
    raw.Multinomial(logits=tf.zeros([rows, row]), num_samples=samples)
    key = tf.constant([1, 2])
    raw.StatelessMultinomial(logits=tf.zeros([rows, row]), num_samples=samples, seed=key)


def losses(level: int) -> None:
    rows, classes = ((32, 10), (256, 100), (1024, 65), (512, 1000), (1024, 8192))[level]
    logits = tf.zeros([rows, classes])
    raw.SoftmaxCrossEntropyWithLogits(features=logits, labels=logits)
    raw.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=tf.zeros([rows], tf.int32))
    raw.LogSoftmax(logits=logits)


def thin_products(level: int) -> None:
    """Products with a side of less than a vector of a core or a tile of a GPU."""
    products = (
        ((3, 3, 3), (64, 3, 3), (64, 3, 64), (3, 64, 3)),
        ((1024, 3, 3), (1024, 3, 64), (1024, 64, 3), (1024, 2, 1), (3, 1024, 3)),
        ((65_536, 3, 1), (65_536, 3, 3), (65_536, 3, 16), (65_536, 16, 3), (65_536, 8, 1)),
        ((1_048_576, 3, 3), (1_048_576, 8, 8), (1_048_576, 3, 1), (1_048_576, 5, 1)),
        ((1_048_576, 16, 1), (1_048_576, 32, 1), (1_048_576, 1, 3), (262_144, 3, 64)),
    )[level]
    for m, k, n in products:
        raw.MatMul(a=tf.zeros([m, k]), b=tf.zeros([k, n]))
    batch = (4, 64, 1024, 16_384, 65_536)[level]
    raw.BatchMatMulV2(x=tf.zeros([batch, 3, 3]), y=tf.zeros([batch, 3, 3]))
    raw.BatchMatMulV2(x=tf.zeros([batch, 4, 4]), y=tf.zeros([batch, 4, 1]))


def small(level: int) -> None:
    """Ops that one core computes, on tensors that its caches hold."""
    shape = ((), (16,), (32, 64), (64, 256), (256, 256))[level]
    x = tf.zeros(shape)
    for unary in (raw.Neg, raw.Square, raw.Sqrt, raw.Rsqrt, raw.Exp, raw.Log, raw.Tanh, raw.Sigmoid, raw.Floor, raw.Abs):
        unary(x=x)
    for binary in (raw.AddV2, raw.Sub, raw.Mul, raw.RealDiv, raw.Maximum, raw.Greater, raw.SquaredDifference):
        binary(x=x, y=x)
    raw.Relu(features=x)
    raw.ReluGrad(gradients=x, features=x)
    raw.SelectV2(condition=tf.zeros(shape, tf.bool), t=x, e=x)
    raw.Cast(x=x, DstT=tf.int32)
    raw.ZerosLike(x=x)
    if level > 1:
        axis = tf.constant([1])
        raw.Sum(input=x, axis=axis)
        raw.Mean(input=x, axis=axis)
        raw.Max(input=x, axis=axis)
        raw.Softmax(logits=x)
        raw.ConcatV2(values=[x, x], axis=tf.constant(1))
        raw.Pack(values=[x, x])
        raw.Split(axis=tf.constant(1), value=x, num_split=2)
        raw.StridedSlice(input=x, begin=tf.constant([0, 0]), end=tf.constant([8, 8]), strides=tf.constant([1, 1]))
        raw.Tile(input=x, multiples=tf.constant([1, 2]))
        raw.BiasAdd(value=x, bias=tf.zeros(shape[1:]))
        raw.Transpose(x=x, perm=tf.constant([1, 0]))


FAMILIES: tuple[Callable[[int], None], ...] = (
    linear_algebra,
    transposes,
    recurrent_layers,
    label_sequences,
    samplers,
    segments,
    random_numbers,
    optimizers,
    sorting,
    fourier,
    transposed_convolutions,
    counting,
    scatters,
    segment_sums,
    draws,
    losses,
    thin_products,
    small,
    large_linear_algebra,
)


# -- runs that no signature describes ------------------------------------------------------------------------------------


def on_texts(texts: int, words: int) -> dict[str, Callable[[], Any]]:
    """Ops on so many texts of so many words, each of five letters and a comma, as lines of a log have."""
    strings = tf.constant([" ".join(f"W{(7 * k + i) % 10_000:04}," for i in range(words)) for k in range(texts)])
    ids = tf.constant([f"w{(7 * k) % 10_000:04}" for k in range(texts * words)])
    keys = [f"w{k:04}" for k in range(5000)]
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(5000)), 0)
    unknown = tf.constant(0)
    return {
        "StringLower": lambda: raw.StringLower(input=strings),
        "StaticRegexReplace": lambda: raw.StaticRegexReplace(input=strings, pattern="[^a-z0-9 ]", rewrite=" "),
        "StringSplitV2": lambda: raw.StringSplitV2(input=strings, sep=""),
        "StringToHashBucketFast": lambda: raw.StringToHashBucketFast(input=ids, num_buckets=1000),
        "StringLength": lambda: raw.StringLength(input=strings),
        "StringJoin": lambda: raw.StringJoin(inputs=[strings, strings]),
        "LookupTableFindV2": lambda: raw.LookupTableFindV2(table_handle=table.resource_handle, keys=ids, default_value=unknown),
    }


def recurrent_gradient(level: int) -> Callable[[], Any]:
    """A recurrent layer in training, and its gradient."""
    steps, batch, features, units = RECURRENT_SIZES[level]
    x, state = tf.ones([steps, batch, features]), tf.ones([1, batch, units])
    params, lengths = tf.fill([4 * units * (features + units + 2)], 0.01), tf.fill([batch], steps)
    attrs = {"rnn_mode": "lstm"}

    def run() -> Any:
        inputs = {"input": x, "input_h": state, "input_c": state, "params": params, "sequence_lengths": lengths}
        made = raw.CudnnRNNV3(**inputs, **attrs)
        outputs = {"output": made.output, "output_h": made.output_h, "output_c": made.output_c}
        return raw.CudnnRNNBackpropV3(
            **inputs,
            **outputs,
            **{f"{name}_backprop": value for name, value in outputs.items()},
            reserve_space=made.reserve_space,
            host_reserved=made.host_reserved,
            **attrs,
        )

    return run


def run_ns(body: Callable[[], Any], device: str) -> int:
    """Time of one run of what `body` makes, from a call with one run and a call with many."""

    def chain(length: int, token: Any) -> Any:
        last: list[Any] = []
        with tf.device(device):
            for _ in range(length):
                with tf.control_dependencies(last):
                    last = tf.nest.flatten(body())
            with tf.control_dependencies(last):
                return tf.identity(token)

    with plain_graphs(), refusals_as_unmeasurable(), tf.device(device):
        single = traced_call(partial(chain, 1), tf.constant(0.0))
        more = repeat_count(single, 64)
        return difference_ns(single, traced_call(partial(chain, 1 + more), tf.constant(0.0)), more, EFFORT_S)[0]


def on_texts_ns(host: Device) -> Iterator[dict[str, Any]]:
    """Times of ops on texts of several lengths."""
    for texts, words in ((1, 1), (64, 1), (1, 128), (64, 16), (64, 128), (1024, 8), (8192, 1)):
        for name, body in on_texts(texts, words).items():
            yield {"op": name, "device": host.model, "texts": texts, "words": words, "ns": run_ns(body, host.name)}


def recurrent_gradients_ns(gpu: Device) -> Iterator[dict[str, Any]]:
    """Times of recurrent layers with their gradients."""
    for level, sizes in enumerate(RECURRENT_SIZES):
        ns = run_ns(recurrent_gradient(level), gpu.name)
        yield {"op": "CudnnRNNV3 and its gradient", "device": gpu.model, "sizes": sizes, "ns": ns}


# -- all of it -----------------------------------------------------------------------------------------------------------


def signatures(families: Sequence[Callable[[int], None]]) -> Iterator[tuple[OpSignature, frozenset[str]]]:
    """The distinct ops of the families, by size, with the kinds of device that have a kernel for each."""
    for level in range(LEVELS):
        for family in families:

            @tf.function(autograph=False)
            def made(family: Callable[[int], None] = family, level: int = level) -> None:
                family(level)

            for op in placer.build_graph(made):
                if op.signature.op_type not in AUXILIARY:
                    yield op.signature, frozenset(op.kernels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {family.__name__: family for family in FAMILIES}
    parser.add_argument("families", nargs="*", default=[*names], help=f"of {', '.join(names)}; all if none is named")
    parser.add_argument("--out", type=Path, default=Path("ops.json"), help="file of the measurements (default: %(default)s)")
    parser.add_argument("--budget-s", type=float, default=190.0, help="seconds from start to end (default: %(default)s)")
    args = parser.parse_args()
    started = time.monotonic()
    machine = local_machine()
    devices = {device.model: device for device in reversed(machine.devices)}.values()
    rows: list[Row] = []
    others: list[dict[str, Any]] = []
    if args.families == [*names]:
        for measured in (
            on_texts_ns(machine.devices[0]),
            *(recurrent_gradients_ns(device) for device in devices if device.kind == "GPU"),
        ):
            try:
                others += measured
            except UnmeasurableError as error:
                print(error, file=sys.stderr)
    known: set[tuple[str, OpSignature]] = set()
    for signature, kinds in signatures([names[name] for name in args.families]):
        for device in devices:
            if device.kind not in kinds or (device.model, signature) in known or time.monotonic() - started > args.budget_s:
                continue
            known.add((device.model, signature))
            try:
                measurement = measure(signature, device, EFFORT_S, within_s=25 * MAX_RUN_S)
            except UnmeasurableError as error:
                print(f"{device.name} {signature}: {error}", file=sys.stderr)
                continue
            rows.append(Row(device.model, installed_tensorflow(), signature, measurement))
            print(f"{device.name} {signature}: {measurement.dispatch_ns:,} + {measurement.compute_ns:,} ns", flush=True)
        export_json(rows, args.out)
        args.out.write_text(json.dumps({**json.loads(args.out.read_text()), "unsigned": others}))
    print(f"{len(rows)} ops, {len(others)} other runs, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
