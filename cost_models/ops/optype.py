"""The entry of an op type in the table of ops: everything that is known of it, apart from TensorFlow's own registries.

TensorFlow's registries say which arguments an op has, which devices have kernels for it and which arguments those kernels keep
in host memory. What they do not say is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

from cost_models.base import OpSignature
from cost_models.ops.work import Formula, by_bytes, host_only


class View(Enum):
    """Whose memory an op's results are in."""

    NONE = "their own"
    INPUT = "output k is all of input k's memory"
    ANY_INPUT = "the output is the memory of whichever input there is"
    PARTS = "the outputs are parts of the first input's memory"


class Difference(Enum):
    """Why the same op may give other results, or raise an error on one device only."""

    BOUNDS = "bounds"
    """An index, label, bin or length out of range raises on a CPU. A GPU skips it, or gives zeros or NaN."""
    DIVISION = "division"
    """An integer divided by zero raises on a CPU. A GPU gives some value."""
    POWER = "power"
    """An integer to a negative power raises on a CPU. A GPU gives some value."""
    RANDOM = "random"
    """The kernel of each device holds a random generator of its own."""
    SAVED = "saved"
    """Outputs from the fourth on are for the gradient's op and differ between devices, or are empty on one."""
    SIGN = "sign"
    """Vectors of a decomposition are unique up to their sign, or phase, which libraries choose differently."""
    PRECISION = "precision"
    """A GPU rounds float32 factors to TensorFloat-32 unless the user turns that off."""
    SUM_ORDER = "sum order"
    """Floating-point numbers are added in another order."""


@dataclass(frozen=True, slots=True)
class ScratchVariable:
    """A variable to make for a measurement."""

    dtype: str
    shape: tuple[int, ...]


ViewRule: TypeAlias = Callable[[OpSignature], View]
HostRule: TypeAlias = Callable[[OpSignature], bool]
Recipe: TypeAlias = Callable[[OpSignature], Mapping[int, Any]]
"""The values of those inputs whose values matter, by position."""
Bound: TypeAlias = tuple[int | None, ...] | None
"""A shape that no result exceeds; None for a dimension, or a rank, without a bound."""
BoundRule: TypeAlias = Callable[[OpSignature, Mapping[int, Any]], tuple[Bound, ...]]
"""A bound on each output's shape, from the input sizes and the values of those inputs that are constants, by position. Sizes
of the inputs may be bounds themselves."""


def no_values(op: OpSignature) -> Mapping[int, Any]:
    """No input's values matter."""
    return {}


def never_a_view(op: OpSignature) -> View:
    """Every result has memory of its own."""
    return View.NONE


def is_input(op: OpSignature) -> View:
    """Every result is the memory of an input, read with another shape or passed on."""
    return View.INPUT


def is_any_input(op: OpSignature) -> View:
    """The result is the memory of the input that arrives, of several that may."""
    return View.ANY_INPUT


def all_int32(op: OpSignature) -> bool:
    """Whether all inputs and outputs are int32, apart from booleans."""
    specs = [spec for spec in (*op.inputs, *op.outputs) if spec.dtype != "bool"]
    return bool(specs) and all(spec.dtype == "int32" for spec in specs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpType:
    """What is known of an op type. The defaults are those of an op type that is not in the table."""

    # -- time

    work: Formula | None = None
    """The formula for its work. None: it has no formula, and its price follows from the bytes of its inputs and outputs."""
    view_work: Formula = host_only
    """The formula for its work if its results are a view (see `view`)."""
    start_factor: float = 1.0
    """Host time to start the op on a GPU, as a multiple of the time to start an addition. It depends on how much the op asks of
    libraries and on its arguments. The factors are medians over an H100 and three H200 with their hosts."""
    host_kernel: HostRule | None = None
    """Whether a GPU's kernel has all inputs and outputs in host memory, so that the host does the work. From TensorFlow's kernel
    registry."""
    awaited: bool = False
    """Whether the ops after it wait until its GPU kernel has told the host something, such as a shape; the host's thread does
    other things meanwhile. True for TensorFlow's `AsyncOpKernel` ops with GPU kernels."""
    cpu_serial: bool = False
    """Whether its CPU kernel uses one thread."""

    # -- memory

    view: ViewRule = never_a_view
    """Whose memory the results are in. Both the price and the memory of an op follow this rule."""
    in_place: bool = False
    """Whether the first result may be written over an input of its type and size that no other op needs any more: the kernel
    calls `forward_input_or_allocate_output`."""
    memory_by_dtype: bool = False
    """Whether its arguments are in host memory by their dtype, whatever its kernels say: int32 is, unless XLA compiles the op."""
    lazy_outputs: bool = False
    """Whether it computes only those outputs that another op takes."""
    output_bounds: BoundRule | None = None
    """Bounds on output sizes that depend on values."""
    data_sized: tuple[int, ...] | Literal["all"] = ()
    """The outputs whose length along the first axis depends on the data. Measurements of the op leave those lengths open."""

    # -- state

    reads: Literal["", "value", "rows", "metadata"] = ""
    """What it reads of the variable whose handle is its first input."""
    updates: Literal["", "value", "rows", "slice"] = ""
    """What it changes of the variable whose handle is its first input."""
    variable: Callable[[OpSignature], ScratchVariable] | None = None
    """The variable to make if the op is measured; None for an op that is not measured with variables."""
    makes_list: bool = False
    """Whether it makes a list of tensors."""
    list_element: int | None = None
    """The input that it adds to a list of tensors."""
    unseen_code: Literal["", "python", "dataset"] = ""
    """Code that it runs, that no graph shows, and that may write any variable: the user's Python, or a dataset's functions."""
    side_effects: bool = False
    """Whether it has effects that TensorFlow's registry does not state: it calls Python, ends the process, waits for other calls,
    or writes to a place that an attribute names."""
    own_state_only: bool = False
    """Whether its only state is a random generator of its own. TensorFlow's registry calls it stateful, and yet it can be run by
    itself."""
    draws: bool = False
    """Whether it makes random numbers."""
    names_partners: bool = False
    """Whether it exchanges values with ops of a group that it names, so that the group decides the devices."""

    # -- structure

    control: Literal["", "call", "loop", "branch", "gradient"] = ""
    """How it runs functions: it calls one, repeats one, chooses one, or computes the gradient of one."""
    passes_on: bool = False
    """Whether it may stand between an op and its gradient's op and only passes the value on, between two functions or out of a
    loop or branch."""
    follows_input: bool = False
    """Whether TensorFlow's placer leaves it on the device of its input."""
    multiplies: bool = False
    """Whether Grappler moves constant factors inwards through it (`ConstantPushDown`)."""
    wants_channels_first: bool = False
    """Whether Grappler lets a graph's convolutions work with channels first if it has a float32 op of this type
    (`GetSrcAndDstDataFormats` in generic_layout_optimizer.cc)."""

    # -- results and measuring

    differs: frozenset[Difference] = frozenset()
    """Why results may depend on the device."""
    recipe: Recipe = no_values
    """How to make inputs with which a run does what its signature says."""

    @property
    def formula(self) -> Formula:
        """The formula of a run that is no view."""
        return self.work or by_bytes

    @property
    def uses_rows(self) -> bool:
        """Whether it reads or changes a variable by rows. Every `ReadVariableOp` of such a variable copies it
        (`EnsureSparseVariableAccess` in resource_variable_ops.cc).
        """
        return "rows" in (self.reads, self.updates)
