"""The work of one run of an op, whatever device does it, and the formulas that several families of ops share.

Unknown dimensions count as 1 (see `TensorSpec`). Resources have no bytes here, so an op on a variable is sized by its other
inputs and its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from cost_models.base import OpSignature, TensorSpec


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one run of an op.

    Work that spreads over a device is stated as ``flops`` and ``nbytes``. Work that does not is stated as time:
    ``cpu_serial_ns`` on one host core and ``gpu_serial_ns`` on an H100-class GPU.
    """

    flops: float = 0.0
    nbytes: float = 0.0
    """Memory traffic."""
    is_product: bool = False
    """Whether matrix units speed it up."""
    efficiency: float = 1.0
    """Share of a GPU's matrix rate that a large instance reaches."""
    cpu_efficiency: float = 1.0
    """The same share of a CPU's matrix rate."""
    one_core: bool = False
    """Whether a CPU uses one core if the data fits that core's cache."""
    kernels: int = 1
    """Kernels that a GPU launches; 0 if only the host works."""
    nodes: int = 1
    """Ops that TensorFlow makes of this one, if only the host works."""
    cpu_serial_ns: float = 0.0
    gpu_serial_ns: float = 0.0
    """Includes the time in which the GPU waits for the host."""
    workspace_bytes: int = 0
    """Memory that the kernel allocates beside its results while it runs, as TensorFlow's GPU allocator reported it."""


Formula: TypeAlias = Callable[[OpSignature], Work]
Count: TypeAlias = Callable[[OpSignature], float]
"""How many of something an op has, such as elements. It does not fall as the op's sizes grow."""
Times: TypeAlias = tuple[tuple[Count, float], ...]
"""Counts, each with the time of one of what it counts, in ns."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A formula of measured times: on each kind of device, the sum of some counts of an op times constants.

    `python -m tests.benchmarks.fit_ops` fits the constants.
    """

    cpu: Times = ()
    """On one core. Without any, the op has no kernel for CPUs."""
    gpu: Times = ()
    """On an H100-class GPU, less the time to start one kernel. Without any, a GPU leaves the op to the host."""
    starts_kernels: bool = False
    """Whether the host starts one kernel after another during the time on a GPU."""

    def __call__(self, op: OpSignature) -> Work:
        cpu_ns, gpu_ns = (sum(count(op) * ns for count, ns in times) for times in (self.cpu, self.gpu))
        kernels = 1 + round(gpu_ns / _NEXT_KERNEL_NS) if self.starts_kernels else min(1, len(self.gpu))
        return Work(kernels=kernels, cpu_serial_ns=cpu_ns, gpu_serial_ns=gpu_ns)


_NEXT_KERNEL_NS = 2_800.0
"""Host time to start one more kernel of an op, on an H200's host."""

CORE_NS_PER_BYTE = 1 / 15
"""Memory traffic of one core: 15 GB/s."""
CORE_FLOPS_PER_NS = 5.0
"""Operations of one core that are no products, for work that is known by its time and spreads over cores."""
LIBRARY_DTYPES = ("float32", "bfloat16", "float16")
"""Types that oneDNN multiplies and transposes on a CPU."""
LIBRARY_NS, TRANSPOSE_NS = 20_000.0, 40_000.0
"""Least time of oneDNN's kernels on a CPU, measured on two cores and on sixteen: of a softmax, and of a transpose."""
GPU_COPY_BYTES_PER_NS = 1_500.0
"""Rate at which a GPU reads a tensor, and writes it again, in a kernel beside the main one."""
GPU_INDEX_NS = 0.0014
"""Time in which a GPU computes the position of an element, where elements are not read one after another."""
STRING_COPY_NS = 12.0
"""Copying a string of at most 22 characters, which its header holds, on one core: the geometric mean of three hosts. A longer one
takes ten times as long."""


def elements(specs: tuple[TensorSpec, ...]) -> int:
    """Elements of all these tensors."""
    return sum(spec.elements for spec in specs)


def nbytes(specs: tuple[TensorSpec, ...]) -> int:
    """Bytes of all these tensors."""
    return sum(spec.nbytes for spec in specs)


def sides(specs: tuple[TensorSpec, ...], index: int) -> tuple[int, ...]:
    """The shape of one tensor, unknown dimensions counted as 1; () for an unknown rank or an index out of range."""
    shape = specs[index].shape if index < len(specs) else None
    return () if shape is None else tuple(1 if side is None else side for side in shape)


def is_known(specs: tuple[TensorSpec, ...]) -> bool:
    """Whether every dimension is known. An unknown one counts as 1, which does not make its axis trivial."""
    return all(spec.shape is not None and None not in spec.shape for spec in specs)


def positive_integers(op: OpSignature, name: str) -> tuple[int, ...]:
    """An attribute that lists integers above 0; () for any other value."""
    value = op.attr(name)
    listed = value if isinstance(value, tuple) else ()
    integers = tuple(each for each in listed if isinstance(each, int) and each > 0)
    return integers if len(integers) == len(listed) else ()


def once(op: OpSignature) -> float:
    """One, for a time that does not depend on sizes."""
    return 1.0


def elements_in(op: OpSignature) -> float:
    """Elements of the first input."""
    return op.inputs[0].elements if op.inputs else 0.0


def elements_out(op: OpSignature) -> float:
    """Elements of the first output."""
    return op.outputs[0].elements if op.outputs else 0.0


def first_side(op: OpSignature) -> float:
    """Length of the first axis of the first input."""
    return (sides(op.inputs, 0) or (1,))[0]


# -- formulas ------------------------------------------------------------------------------------------------------------


def by_bytes(op: OpSignature) -> Work:
    """For op types without a formula: reads every input and writes every output once, with four operations per output."""
    return Work(flops=4 * elements(op.outputs), nbytes=nbytes(op.inputs) + nbytes(op.outputs))


def host_only(op: OpSignature) -> Work:
    """For metadata, handles, control flow and views: the host is done after dispatch, and nothing is read or written."""
    return Work(kernels=0)


def elementwise(flops_each: float) -> Formula:
    """So many operations for each element. A broadcast operand that is no scalar takes as long as one of full size, and a GPU
    works out the position of each of its elements.
    """

    def formula(op: OpSignature) -> Work:
        count = max(elements(op.inputs[:1]), elements(op.outputs))
        read = sum(spec.nbytes * (count if spec.elements > 1 else 1) / max(1, spec.elements) for spec in op.inputs)
        broadcast = any(1 < spec.elements < count for spec in op.inputs)
        return Work(flops=flops_each * count, nbytes=read + nbytes(op.outputs), gpu_serial_ns=GPU_INDEX_NS * count * broadcast)

    return formula


def moves(passes: float, kernels: int = 1, cpu_ns_each: float = 0.0, gpu_serial_ns: float = 0.0) -> Formula:
    """Moves its inputs' and outputs' bytes `passes` times.

    A CPU also takes a serial time for each element of the largest tensor and for each string copied.
    """

    def formula(op: OpSignature) -> Work:
        largest = max((spec.elements for spec in (*op.inputs, *op.outputs)), default=0)
        return Work(
            nbytes=passes * (nbytes(op.inputs) + nbytes(op.outputs)),
            kernels=kernels,
            cpu_serial_ns=cpu_ns_each * largest + copied_strings_ns(op),
            gpu_serial_ns=gpu_serial_ns,
        )

    return formula


def copied_strings_ns(op: OpSignature) -> float:
    """Time of one core to copy the output strings."""
    return STRING_COPY_NS * sum(spec.elements for spec in op.outputs if spec.dtype == "string")


def copies_part(op: OpSignature) -> Work:
    """Copies part of a larger tensor: reads and writes the output's bytes, and reads the inputs that say which part."""
    return Work(nbytes=2 * nbytes(op.outputs) + nbytes(op.inputs[1:]), cpu_serial_ns=copied_strings_ns(op))


def reduces(flops_each: float) -> Formula:
    """So many operations for each element of the first input."""

    def formula(op: OpSignature) -> Work:
        return Work(flops=flops_each * elements(op.inputs[:1]), nbytes=nbytes(op.inputs) + nbytes(op.outputs))

    return formula
