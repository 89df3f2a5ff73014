"""The options of a placement, declared once; the command line's flags are derived from these fields."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from placer.common.device_spec import DeviceSpec, parse
from placer.common.suggestions import did_you_mean
from placer.common.units import check_seconds, parse_bytes
from placer.errors import OptionError

if TYPE_CHECKING:
    from cost_models.base import CostModel
    from cost_models.machines import Machine
    from placer.solvers.base import Objective, Solver
    from placer.solvers.heuristic import Rule

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to place a function. Every field has a default.

    Raises:
        OptionError: a value that no machine and no function could make valid.
    """

    devices: Machine | str | None = field(
        default=None,
        metadata={"help": "the machine to place on: a shipped one's name or a TOML file; by default the devices of this process"},
    )
    memory_limits: Mapping[str, str | int] = field(
        default_factory=dict,
        metadata={"help": "the most memory that a plan may take on each device of a spec, such as GPU:0=8GiB or GPU=8GiB"},
    )
    share: float = field(
        default=1.0,
        metadata={"help": "the part of each GPU's time and memory to plan for, such as 0.5 if another program uses the GPU, too"},
    )
    pins: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"help": "devices by name glob, op type, variable name or layer, such as embed=CPU:0; every plan obeys them"},
    )
    objective: Objective = field(default="step_time", metadata={"help": "the value to minimise: step_time or total_cost"})
    solver: Solver | Rule | str = field(
        default="auto", metadata={"help": "a registered solver's name, a solver, or a function from a problem to an assignment"}
    )
    cost_model: CostModel | str = field(default="auto", metadata={"help": "a registered cost model's name, or a cost model"})
    variables: Literal["auto", "fixed", "move"] = field(
        default="auto",
        metadata={
            "help": "auto: variables move if nothing else uses them and calls are measured to be faster then; fixed: they stay "
            "on their devices; move: each goes to the device that the plan gives it"
        },
    )
    stale: Literal["repoint", "invalidate"] = field(
        default="repoint",
        metadata={"help": "what functions traced before a variable moved do then: repoint, use its new place; invalidate, fail"},
    )
    on_out_of_memory: Literal["report", "replan"] = field(
        default="report",
        metadata={
            "help": "report: an error that explains a call that ran out of memory; replan: also one more plan, with a lower "
            "limit, unless a tf.function made the call"
        },
    )
    on_missing_device: Literal["relax", "error"] = field(
        default="relax",
        metadata={"help": "what happens to a tf.device scope whose device is missing: relax, a warning; error, an error"},
    )
    trace_for: Literal["target", "here"] = field(
        default="target",
        metadata={
            "help": "the GPUs that TensorFlow reports to code that is traced: target, those of the machine that is planned for; "
            "here, those of this process"
        },
    )
    time_limit_s: float | None = field(
        default=None, metadata={"help": "how long the solver may search, in seconds; by default it depends on the problem's size"}
    )
    effort: int | None = field(
        default=None,
        metadata={
            "help": "how much the solver may search, in evaluations of a step, instead of seconds: the same effort and seed give "
            "the same plan on every machine"
        },
    )
    sizes: Mapping[str, Sequence[int] | int | str] = field(
        default_factory=dict,
        metadata={"help": "sizes that the graph leaves open, by name glob, such as ids=64,128: the whole shape or the open part"},
    )
    rounds: Mapping[str, int | str] = field(
        default_factory=dict, metadata={"help": "how often loops run, by name glob, such as while*=300"}
    )
    learn_sizes: bool = field(
        default=True,
        metadata={"help": "whether a first call whose sizes, rounds or branches the graph leaves open learns them for the plan"},
    )
    race: Literal["auto", "off", "force"] = field(
        default="auto",
        metadata={
            "help": "whether the first calls run the plan, TensorFlow's default and other placements in turn, and the fastest is "
            "kept: auto, where one is predicted to be faster than the default; off; force, wherever that is possible"
        },
    )
    planning: Literal["wait", "background"] = field(
        default="wait",
        metadata={
            "help": "wait: the first call of a signature waits for its plan; background: calls run as the plain function while a "
            "thread makes the plan"
        },
    )
    seed: int = field(default=0, metadata={"help": "of random choices: the same seed gives the same plan"})

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if not isinstance(self.learn_sizes, bool):
            raise OptionError(f"learn_sizes={self.learn_sizes!r} is neither True nor False.")
        if not (isinstance(self.share, float | int) and 0 < self.share <= 1) or isinstance(self.share, bool):
            raise OptionError(f"share={self.share!r} is no part of a GPU: give a number above 0 and up to 1, such as 0.5.")
        _check("memory_limits", self.memory_limits, {"GPU:0": "8GiB"}, _limit)
        limited: dict[DeviceSpec, str] = {}
        for device in self.memory_limits:
            if (other := limited.setdefault(parse(device), device)) != device:
                raise OptionError(f"memory_limits has {other!r} and {device!r}, which are the same: keep one.")
        _check("pins", self.pins, {"embed/*": "CPU:0"}, lambda _, device: _device(device))
        _check("sizes", self.sizes, {"ids": [64, 128]}, lambda _, given: _sizes(given))
        _check("rounds", self.rounds, {"while*": 300}, lambda _, given: _count(given))
        # Copies of mappings, which the caller can then change, and Python numbers instead of numpy's.
        own: dict[str, Any] = {"memory_limits": dict(self.memory_limits), "pins": dict(self.pins), "seed": _seed(self.seed)}
        own["sizes"] = {name: _sizes(given) for name, given in self.sizes.items()}
        own["rounds"] = {name: _count(given) for name, given in self.rounds.items()}
        if self.time_limit_s is not None:
            own["time_limit_s"] = check_seconds("time_limit_s", self.time_limit_s)
        if self.effort is not None:
            own["effort"] = check_effort("effort", self.effort)
            if self.time_limit_s is not None:
                raise OptionError("time_limit_s and effort both limit the search: give one of them.")
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def may_try_moves(self) -> bool:
        """Whether calls may be tried with variables in other places. Not if the plain function runs meanwhile."""
        return self.variables == "auto" and self.race != "off" and self.planning == "wait"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Options from keywords.

        Raises:
            OptionError: a name that is no option, or a value that cannot be used.
        """
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise OptionError(f"unknown option {name!r}{did_you_mean(name, known)} The options are {', '.join(known)}.")
        return cls(**given)


def _listed(indent: str) -> str:
    """A line for each option: its name, type, default and meaning."""
    lines = []
    for option in fields(Options):
        default = repr({} if option.default is MISSING else option.default)
        lines.append(f"{indent}{option.name} ({option.type}): {option.metadata['help']}. Default: {default}.")
    return "\n".join(lines)


def with_options_listed(function: F) -> F:
    """Adds the list of options to a function's docstring, after the line of its ``**options``."""
    lines = (function.__doc__ or "**options:").splitlines()  # Python has no docstrings with -OO
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("**options:"))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "    - "
    function.__doc__ = "\n".join([*lines[: at + 1], "", *_listed(indent).splitlines(), "", *lines[at + 1 :]])
    return function


Options.__doc__ = f"{Options.__doc__}\n    Attributes:\n{_listed('        ')}\n"

OF_A_RUN = ("solver", "time_limit_s", "effort", "seed")
"""Options of one search. A comparison of solvers takes several values of each."""
MAX_SEED = 2**31 - 1
"""The largest seed that every solver accepts."""
MAX_GIVEN = 10**12
"""The largest size or number of rounds that can be given: with larger ones, times and bytes would exceed 64 bits."""

_CHOICES = {
    "objective": ("step_time", "total_cost"),
    "variables": ("auto", "fixed", "move"),
    "stale": ("repoint", "invalidate"),
    "on_out_of_memory": ("report", "replan"),
    "on_missing_device": ("relax", "error"),
    "trace_for": ("target", "here"),
    "race": ("auto", "off", "force"),
    "planning": ("wait", "background"),
}


def _device(text: Any) -> None:
    """Raises OptionError unless `text` is a device string with a device type, without which a pin or limit has no meaning."""
    if parse(text).type is None:
        raise OptionError(f"{text!r} names no device: give one, such as 'GPU:0', or a type, such as 'GPU'.")


def _limit(device: str, size: Any) -> None:
    _device(device)
    parse_bytes(size)


def _count(given: Any) -> int:
    """A whole number from 0 to MAX_GIVEN, from a number or text; OptionError for anything else."""
    try:
        number = int(given) if isinstance(given, str) else -1 if isinstance(given, bool) else operator.index(given)
    except (AttributeError, TypeError, ValueError):  # a tensor of floats has an __index__ that raises AttributeError
        number = -1
    if not 0 <= number <= MAX_GIVEN:
        raise OptionError(f"{given!r} is no whole number from 0 to {MAX_GIVEN}.")
    return number


def _sizes(given: Any) -> tuple[int, ...]:
    """One or more numbers, from a number, numbers or text with commas; OptionError for anything else."""
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, Sequence) else [given]
    return tuple(map(_count, parts))


def _seed(given: Any) -> int:
    try:
        number = -1 if isinstance(given, bool) else operator.index(given)
    except (AttributeError, TypeError):
        number = -1
    if not 0 <= number <= MAX_SEED:
        raise OptionError(f"seed={given!r} is not a whole number from 0 to {MAX_SEED}.")
    return number


def check_effort(name: str, given: Any) -> int:
    """The effort as a number of evaluations. Raises OptionError unless it is a whole number of at least 1."""
    try:
        number = 0 if isinstance(given, bool) else operator.index(given)
    except (AttributeError, TypeError):
        number = 0
    if not 1 <= number <= MAX_GIVEN:
        raise OptionError(f"{name}={given!r} is no whole number of evaluations from 1 to {MAX_GIVEN}.")
    return number


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raises OptionError for a value that is none of the choices of an option."""
    if not isinstance(value, str) or value not in choices:
        raise OptionError(f"{name}={value!r} is none of {', '.join(map(repr, choices))}.")


def _check(option: str, given: Any, example: Mapping[str, Any], read: Callable[[str, Any], object]) -> None:
    """Raises OptionError unless `given` maps text to values and `read` accepts each pair."""
    if not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
        raise OptionError(f"{option}={given!r} is not a mapping from text; write {option}={example!r}.")
    for key, value in given.items():
        try:
            read(key, value)
        except OptionError as error:
            raise OptionError(f"{option}, {key!r}: {error}") from error
