"""What random programs are made of: calls of TensorFlow as rows of text, each with the values it takes and the one it gives.

Rows keep floats small, and cut no float where a rounding could fall on either side, so that programs made of them can be compared
value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Type(NamedTuple):
    """A tensor's element type and shape."""

    dtype: str
    shape: tuple[int | None, ...]


SCALAR, VECTOR, MATRIX, ANY_LENGTH = (), (3,), (3, 3), (None,)
STATIC = (SCALAR, VECTOR, MATRIX)
SHAPES = (*STATIC, ANY_LENGTH)

WIDE = ("float32", "float64")
FLOATS = (*WIDE, "float16")
INTS = ("int32", "int64")
NUMBERS = (*FLOATS, *INTS)
DTYPES = (*NUMBERS, "bool", "string")

Fits: TypeAlias = Callable[..., bool]
"""Whether a type can be an operand, given those of the operands before it. Some type of a static shape always can."""


@dataclass(frozen=True)
class Row:
    """One line of a program."""

    text: str
    """With {0}, {1}, … for operands."""
    operands: tuple[Fits, ...]
    result: Callable[..., Type] | None
    """From the operands' types; None for a row that is run for what it does to a variable."""
    variable: bool = False
    """Whether its first operand is a variable."""


# -- operands ----------------------------------------------------------------------------------------------------------


def of(dtypes: tuple[str, ...], *shapes: tuple[int | None, ...]) -> Fits:
    return lambda own, *_: own.dtype in dtypes and own.shape in (shapes or SHAPES)


def like(own: Type, first: Type, *_: Type) -> bool:
    return own == first and None not in own.shape


def beside(own: Type, *before: Type) -> bool:
    """Of the dtype of the operand before it, and of a shape that broadcasts with all before it for certain."""
    return own.dtype == before[-1].dtype and all(broadcasts(own, other) for other in before)


def broadcasts(a: Type, b: Type) -> bool:
    return SCALAR in (a.shape, b.shape) or None not in a.shape + b.shape


def element(own: Type, first: Type, *_: Type) -> bool:
    """What one index into the first operand stands for."""
    return own == Type(first.dtype, first.shape[1:])


def also(shape: tuple[int | None, ...]) -> Fits:
    return lambda own, *before: own == Type(before[-1].dtype, shape)


# -- results -----------------------------------------------------------------------------------------------------------


def same(first: Type, *_: Type) -> Type:
    return first


def last(*operands: Type) -> Type:
    return operands[-1]


def widest(*operands: Type) -> Type:
    return Type(operands[-1].dtype, max((t.shape for t in operands), key=len))


def cast(dtype: str) -> Callable[..., Type]:
    return lambda *operands: Type(dtype, widest(*operands).shape)


def shaped(shape: tuple[int | None, ...]) -> Callable[..., Type]:
    return lambda first, *_: Type(first.dtype, shape)


def typed(dtype: str, shape: tuple[int | None, ...]) -> Callable[..., Type]:
    return lambda *_: Type(dtype, shape)


def less_one(first: Type, *_: Type) -> Type:
    """One dimension less."""
    return Type(first.dtype, first.shape[1:])


def one_more(first: Type, *_: Type) -> Type:
    return Type(first.dtype, (3, *first.shape))


# -- rows --------------------------------------------------------------------------------------------------------------

ANY, LONG, SQUARE = of(DTYPES, *STATIC), of(DTYPES, VECTOR, MATRIX), of(FLOATS, MATRIX)

ELEMENTWISE = [
    *(Row(text, (of(FLOATS),), same) for text in (
        "tf.tanh({0})", "tf.sigmoid({0})", "tf.nn.relu({0})", "tf.nn.elu({0})", "tf.nn.softplus({0}) * 0.5", "tf.sin({0})",
        "tf.cos({0})", "tf.exp(-tf.abs({0}))", "tf.square({0}) * 0.5", "tf.sqrt(tf.abs({0}) + 0.1)", "tf.math.log1p(tf.abs({0}))",
        "tf.math.erf({0})", "tf.sign({0} - 0.013)", "tf.floor({0} + 0.013)", "tf.clip_by_value({0}, -0.5, 0.5)",
        "tf.stop_gradient({0})", "0.3 - {0}", "1.0 / (1.5 + tf.abs({0}))",
    )),
    *(Row(text, (of(FLOATS), beside), widest) for text in (
        "({0} + {1}) * 0.5", "({0} - {1}) * 0.5", "{0} * {1} * 0.5", "{0} / (1.0 + tf.abs({1}))", "tf.maximum({0}, {1})",
        "tf.minimum({0}, {1})", "tf.math.squared_difference({0}, {1}) * 0.1",
    )),
    *(Row(text, (of(INTS),), same) for text in ("-{0}", "tf.abs({0})", "{0} % 7", "tf.bitwise.invert({0})")),
    *(Row(text, (of(INTS), beside), widest) for text in (
        "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} // (tf.abs({1}) + 1)", "tf.maximum({0}, {1})",
        "tf.bitwise.bitwise_and({0}, {1})", "tf.bitwise.bitwise_xor({0}, {1})",
    )),
    Row("~{0}", (of(("bool",)),), same),
    *(Row(text, (of(("bool",)), beside), widest) for text in ("{0} & {1}", "{0} | {1}", "tf.math.logical_xor({0}, {1})")),
    Row("{0} > 0.313", (of(FLOATS),), cast("bool")),
    Row("{0} < {1} + 0.0137", (of(FLOATS), beside), cast("bool")),
    *(Row(text, (of(INTS), beside), cast("bool")) for text in ("{0} < {1}", "{0} >= {1}")),
    *(Row(text, (of((*INTS, "bool", "string")), beside), cast("bool")) for text in (
        "tf.equal({0}, {1})", "tf.not_equal({0}, {1})",
    )),
    Row("tf.where({0}, {1}, {2})", (of(("bool",)), broadcasts, beside), widest),
    *(Row(f"tf.{text}({{0}})", (of(DTYPES),), same) for text in ("identity", "zeros_like")),
    Row("tf.ones_like({0})", (of(NUMBERS),), same),
]  # fmt: skip

CASTS = [
    *(Row(f"tf.cast({{0}}, tf.{dtype})", (of(INTS),), cast(dtype)) for dtype in INTS),
    *(Row(f"tf.cast({{0}} % 5, tf.{dtype}) * 0.25", (of(INTS),), cast(dtype)) for dtype in FLOATS),
    *(Row(f"tf.cast({{0}}, tf.{dtype})", (of(FLOATS),), cast(dtype)) for dtype in FLOATS),
    *(Row(f"tf.cast({{0}} * 3.7 + 0.0137, tf.{dtype})", (of(WIDE),), cast(dtype)) for dtype in INTS),
    *(Row(f"tf.cast({{0}}, tf.{dtype})", (of(("bool",)),), cast(dtype)) for dtype in ("float32", "float64", "int32")),
    Row("{0} % 2 > 0", (of(INTS),), cast("bool")),
]

ALGEBRA = [
    Row("{0} @ {1} * 0.2", (SQUARE, like), same),
    Row("tf.matmul({0}, {1}, transpose_b=True) * 0.2", (SQUARE, like), same),
    Row("tf.einsum('ij,ik->jk', {0}, {1}) * 0.2", (SQUARE, like), same),
    Row("tf.linalg.matvec({0}, {1}) * 0.2", (of(FLOATS, MATRIX), also(VECTOR)), last),
    Row("tf.linalg.inv({0} * 0.2 + 2.0 * tf.eye(3, dtype={0}.dtype))", (of(WIDE, MATRIX),), same),
    Row("tf.nn.bias_add({0}, {1}) * 0.5", (SQUARE, also(VECTOR)), same),
    Row("tf.linalg.diag({0})", (of(FLOATS, VECTOR),), one_more),
    Row("tf.linalg.diag_part({0})", (SQUARE,), less_one),
    Row("tf.linalg.band_part({0}, 1, 0)", (SQUARE,), same),
    Row("tf.nn.softmax({0})", (of(FLOATS, VECTOR, MATRIX, ANY_LENGTH),), same),
    Row("tf.reshape(tf.nn.conv2d(tf.reshape({0}, [1, 3, 3, 1]), tf.reshape({1}[:2, :2], [2, 2, 1, 1]), 1, 'SAME'), [3, 3]) * 0.3",
        (of(("float32",), MATRIX), like), same),
    Row("tf.reshape(tf.nn.max_pool2d(tf.reshape({0}, [1, 3, 3, 1]), 2, 1, 'SAME'), [3, 3])", (of(("float32",), MATRIX),), same),
    Row("tf.reshape(tf.nn.avg_pool2d(tf.reshape({0}, [1, 3, 3, 1]), 2, 1, 'SAME'), [3, 3])", (of(WIDE, MATRIX),), same),
    Row("tf.reshape(tf.compat.v1.nn.fused_batch_norm(tf.reshape({0}, [1, 3, 1, 3]), {1}, {1}, epsilon=0.1)[0], [3, 3]) * 0.3",
        (of(("float32",), MATRIX), also(VECTOR)), same),
]  # fmt: skip

REDUCTIONS = [
    Row("tf.tanh(tf.reduce_sum({0}))", (of(FLOATS),), shaped(SCALAR)),
    Row("tf.reduce_sum({0}, axis=0) * 0.3", (of(FLOATS, VECTOR, MATRIX),), less_one),
    Row("tf.reduce_mean({0}, axis=-1)", (of(FLOATS, VECTOR, MATRIX),), less_one),
    Row("tf.reduce_mean({0})", (of(FLOATS, *STATIC),), shaped(SCALAR)),
    Row("tf.reduce_max({0}, axis=0)", (of(NUMBERS, VECTOR, MATRIX),), less_one),
    Row("tf.reduce_min({0})", (of(NUMBERS, *STATIC),), shaped(SCALAR)),
    Row("tf.reduce_sum({0})", (of(INTS),), shaped(SCALAR)),
    Row("tf.reduce_prod({0}, axis=-1)", (of(INTS, VECTOR, MATRIX),), less_one),
    Row("tf.reduce_any({0})", (of(("bool",)),), shaped(SCALAR)),
    Row("tf.reduce_all({0}, axis=0)", (of(("bool",), VECTOR, MATRIX),), less_one),
    Row("tf.argmax({0}, axis=-1)", (of(INTS, VECTOR, MATRIX),), lambda first: Type("int64", first.shape[1:])),
    Row("tf.tanh(tf.cumsum({0}))", (of(FLOATS, VECTOR, MATRIX, ANY_LENGTH),), same),
    Row("tf.cumsum({0}, exclusive=True, reverse=True)", (of(INTS, VECTOR, MATRIX, ANY_LENGTH),), same),
]

SHAPING = [
    Row("tf.broadcast_to({0}, [3, 3])", (of(DTYPES, SCALAR, VECTOR),), shaped(MATRIX)),
    Row("tf.fill([3], {0})", (of(DTYPES, SCALAR),), one_more),
    Row("tf.reshape({0}, [9])[3:6]", (of(DTYPES, MATRIX),), shaped(VECTOR)),
    Row("{0}[1]", (LONG,), less_one),
    Row("{0}[:, 2]", (of(DTYPES, MATRIX),), less_one),
    Row("tf.squeeze({0}[:1], 0)", (LONG,), less_one),
    Row("tf.expand_dims({0}, 0) + {1}", (of(NUMBERS, VECTOR), also(MATRIX)), last),
    Row("tf.tile({0}[:1], [3])", (of(DTYPES, VECTOR),), same),
    Row("tf.pad({0}[1:], [[0, 1]])", (of((*NUMBERS, "bool"), VECTOR),), same),
    Row("tf.transpose({0})", (of(DTYPES, MATRIX),), same),
    Row("tf.reverse({0}, [0])", (of(DTYPES, VECTOR, MATRIX),), same),
    Row("tf.roll({0}, 1, 0)", (of(NUMBERS, VECTOR, MATRIX),), same),
    Row("tf.sort({0})", (of(NUMBERS, VECTOR, MATRIX, ANY_LENGTH),), same),
    Row("tf.math.top_k({0}, 3).values", (of(("float32", "int32"), VECTOR, MATRIX),), same),
    Row("tf.stack([{0}, {1}, {0}])", (of(DTYPES, SCALAR, VECTOR), like), one_more),
    Row("tf.unstack({0})[2]", (LONG,), less_one),
    Row("tf.split({0}, 3, axis=-1)[1][..., 0]", (LONG,), less_one),
    Row("tf.concat([{0}, {1}], 0)[2:5]", (of(DTYPES, VECTOR), like), same),
    Row("tf.concat([{0}, {1}], 0)[:4]", (of(DTYPES, ANY_LENGTH, VECTOR), also(VECTOR)), shaped(ANY_LENGTH)),
    Row("tf.shape({0})[0]", (of(DTYPES, VECTOR, MATRIX, ANY_LENGTH),), typed("int32", SCALAR)),
    Row("tf.size({0}, tf.int64)", (of(DTYPES),), typed("int64", SCALAR)),
    Row("tf.range({0} % 5)", (of(INTS, SCALAR),), shaped(ANY_LENGTH)),
    Row("tf.random.stateless_uniform([3], tf.stack([{0}, 7]))", (of(INTS, SCALAR),), typed("float32", VECTOR)),
]

INDEXING = [
    Row("tf.gather({0}, {1} % 3)", (LONG, of(INTS, SCALAR)), less_one),
    Row("tf.gather({0}, {1} % 3)", (LONG, of(INTS, VECTOR)), same),
    Row("tf.gather_nd({0}, [[{1} % 3]])[0]", (LONG, of(INTS, SCALAR)), less_one),
    Row("tf.one_hot({0} % 4, 3)", (of(INTS, SCALAR, VECTOR),), lambda first: Type("float32", (*first.shape, 3))),
    Row("tf.scatter_nd(tf.cast({1} % 3, tf.int32)[:, None], {0}, {0}.shape) * 0.3",
        (of(FLOATS, VECTOR, MATRIX), of(INTS, VECTOR)), same),
    Row("tf.tensor_scatter_nd_update({0}, [[{2} % 3]], [{1}])", (LONG, element, of(INTS, SCALAR)), same),
    Row("tf.maximum(tf.math.unsorted_segment_max({0}, {1} % 3, 3), {0})", (of(NUMBERS, VECTOR, MATRIX), of(INTS, VECTOR)), same),
    Row("tf.math.unsorted_segment_sum({0}, {1} % 3, 3)", (of(INTS, VECTOR, MATRIX), of(INTS, VECTOR)), same),
    Row("tf.boolean_mask({0}, {1})",
        (LONG, lambda own, first: own == Type("bool", first.shape)), shaped(ANY_LENGTH)),
    Row("tf.where({0})[:, 0]", (of(("bool",), VECTOR, MATRIX, ANY_LENGTH),), typed("int64", ANY_LENGTH)),
    Row("tf.unique({0}).y", (of((*INTS, "string"), VECTOR, ANY_LENGTH),), shaped(ANY_LENGTH)),
    Row("tf.unique({0}).idx", (of((*INTS, "string"), VECTOR),), typed("int32", VECTOR)),
    Row("tf.searchsorted(tf.sort({0}), {1})", (of(INTS, VECTOR), like), typed("int32", VECTOR)),
    Row("tf.sequence_mask({0} % 4, 3)", (of(INTS, SCALAR, VECTOR),), lambda first: Type("bool", (*first.shape, 3))),
]  # fmt: skip

STRINGS = [
    Row("tf.strings.as_string({0})", (of((*INTS, "bool")),), cast("string")),
    Row("tf.strings.substr(tf.strings.join([{0}, {1}]), 0, 8)", (of(("string",), *STATIC), like), same),
    Row("tf.strings.reduce_join({0})", (of(("string",), ANY_LENGTH, VECTOR, MATRIX),), shaped(SCALAR)),
    Row("tf.strings.substr({0}, 0, 2)", (of(("string",)),), same),
    Row("tf.strings.upper({0})", (of(("string",)),), same),
    Row("tf.strings.regex_replace({0}, '[1b]', 'x')", (of(("string",)),), same),
    Row("tf.strings.length({0})", (of(("string",)),), cast("int32")),
    Row("tf.strings.to_hash_bucket_fast({0}, 11)", (of(("string",)),), cast("int64")),
]

VARIABLES = [
    *(Row(text, (of((*NUMBERS, "bool")),), same, variable=True) for text in ("{0}.read_value()", "tf.identity({0})")),
    *(Row(text, (of(dtypes, *STATIC), like), None, variable=True) for text, dtypes in (
        ("{0}.assign({1})", DTYPES),
        ("{0}.assign_add({1} * 0.1)", FLOATS),
        ("{0}.assign_sub({1} * 0.1)", FLOATS),
        ("{0}.assign_add({1})", INTS),
        ("{0}.assign_sub({1})", INTS),
    )),
    Row("{0}.assign(({0} + {1}) * 0.5).read_value()", (of(FLOATS), like), same, variable=True),
    Row("{0}.sparse_read({1} % 3)", (of(NUMBERS, VECTOR, MATRIX), of(INTS, SCALAR)), less_one, variable=True),
    Row("tf.gather({0}, {1} % 3)", (of(NUMBERS, VECTOR, MATRIX), of(INTS, VECTOR)), same, variable=True),
    *(Row(text, (of(dtypes, VECTOR, MATRIX), element, of(INTS, SCALAR)), None, variable=True) for text, dtypes in (
        ("{0}.scatter_add(tf.IndexedSlices([{1} * 0.1], [{2} % 3]))", FLOATS),
        ("{0}.scatter_sub(tf.IndexedSlices([{1}], [{2} % 3]))", INTS),
        ("{0}.scatter_update(tf.IndexedSlices([{1}], [{2} % 3]))", (*NUMBERS, "bool")),
        ("{0}.scatter_nd_update([[{2} % 3]], [{1}])", NUMBERS),
    )),
]  # fmt: skip

ROWS = (*ELEMENTWISE, *CASTS, *ALGEBRA, *REDUCTIONS, *SHAPING, *INDEXING, *STRINGS, *VARIABLES)
"""The simplest first, those with variables last."""
