"""Arithmetic on each element."""

from __future__ import annotations

from dataclasses import replace

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType, all_int32
from cost_models.ops.table import register
from cost_models.ops.work import GPU_INDEX_NS, Work, elements, elementwise, reduces

_plain = elementwise(1)
"""One operation for each element."""
_short_function, _function = elementwise(7), elementwise(15)
"""A function of each element: about 7 operations, as for an exponential, or 15, as for a hyperbolic tangent."""


def _adds_row(op: OpSignature) -> Work:
    """The same row is added everywhere. A CPU keeps it in its cache."""
    return replace(reduces(1)(op), gpu_serial_ns=GPU_INDEX_NS * elements(op.outputs))


_DIVIDES, _RAISES = frozenset({Difference.DIVISION}), frozenset({Difference.POWER})
_ADDS = frozenset({Difference.SUM_ORDER})

register("Add AddV2", OpType(work=_plain, in_place=True, host_kernel=all_int32))
register("AddN", OpType(work=_plain, in_place=True, host_kernel=all_int32, differs=_ADDS))
register("Mul", OpType(work=_plain, in_place=True, host_kernel=all_int32, multiplies=True))
register("RealDiv", OpType(work=_plain, in_place=True, multiplies=True))
register("Sub Maximum Minimum Abs Sign ClipByValue", OpType(work=_plain, in_place=True, host_kernel=all_int32))
register("Div FloorDiv FloorMod TruncateMod Mod", OpType(work=_plain, in_place=True, host_kernel=all_int32, differs=_DIVIDES))
register("TruncateDiv", OpType(work=_plain, in_place=True, differs=_DIVIDES))
register("Neg Square", OpType(work=_plain, in_place=True, host_kernel=all_int32, start_factor=1.4))
register("SquaredDifference", OpType(work=_plain, in_place=True, host_kernel=all_int32, start_factor=1.8))
register("BiasAdd", OpType(work=_adds_row, in_place=True, start_factor=1.4))
register("Relu Relu6 Sqrt Rsqrt", OpType(work=_plain, in_place=True, start_factor=1.4))
register("SelectV2", OpType(work=elementwise(3), in_place=True, start_factor=2.1))
register(
    """MulNoNan DivNoNan LeakyRelu ReluGrad Relu6Grad LeakyReluGrad BiasAddV1 Select LogicalAnd LogicalOr LogicalNot BitwiseAnd
    BitwiseOr BitwiseXor Invert Floor Ceil Round Rint Conj Xdivy Snapshot Reciprocal Inv InvGrad ReciprocalGrad SqrtGrad
    RsqrtGrad NextAfter""",
    OpType(work=_plain, in_place=True),
)
register("Equal NotEqual Less LessEqual Greater GreaterEqual", OpType(work=_plain, host_kernel=all_int32))
register(
    """Cast IsNan IsInf IsFinite ApproximateEqual LeftShift RightShift PopulationCount Real Imag ComplexAbs Complex QuantizeV2
    Dequantize FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs""",
    OpType(work=_plain),
)
register("L2Loss", OpType(work=_plain, differs=_ADDS))
register("AccumulateNV2", OpType(work=_plain))

register("Exp Expm1 Log Log1p Erf Erfc Sin Cos", OpType(work=_short_function, in_place=True, start_factor=1.4))
register("Sigmoid", OpType(work=_function, in_place=True, start_factor=1.4))
register("Pow", OpType(work=_function, in_place=True, start_factor=1.8, differs=_RAISES))
register(
    """Tanh TanhGrad SigmoidGrad Softplus SoftplusGrad Softsign SoftsignGrad Elu EluGrad Selu SeluGrad Erfinv Ndtri Lgamma Digamma
    Igamma Igammac Xlogy Xlog1py Tan Asin Acos Atan Atan2 Sinh Cosh Asinh Acosh Atanh""",
    OpType(work=_function, in_place=True),
)
register("Polygamma Betainc Zeta Angle BesselI0e BesselI1e", OpType(work=_function))
