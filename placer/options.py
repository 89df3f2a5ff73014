"""The options of a placement, declared once; the command line's flags are derived from these fields."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from placer.errors import OptionError

if TYPE_CHECKING:
    from cost_models.base import CostModel
    from cost_models.machines import Machine
    from placer.solvers.base import Objective, Solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to place a function. Every field has a default."""

    devices: Machine | str | None = field(
        default=None,
        metadata={"help": "what to place on: nothing for what TensorFlow sees, a shipped machine's name, or a TOML file"},
    )
    memory_limits: Mapping[str, str | int] = field(
        default_factory=dict, metadata={"help": 'bytes a device may hold, such as {"GPU:0": "8GiB"}'}
    )
    pins: Mapping[str, str] = field(
        default_factory=dict, metadata={"help": "device specs by name glob, op type or variable name; always hard"}
    )
    objective: Objective = field(default="step_time", metadata={"help": "what to minimise: step_time or total_cost"})
    solver: Solver | str = field(default="auto", metadata={"help": "a registered solver's name, or a solver"})
    cost_model: CostModel | str = field(default="auto", metadata={"help": "a registered cost model's name, or a cost model"})
    variables: Literal["fixed", "move"] = field(
        default="fixed", metadata={"help": "leave variables where they are, or move them"}
    )
    on_missing_device: Literal["relax", "error"] = field(
        default="relax", metadata={"help": "a tf.device scope whose device is not there: relax it with a warning, or refuse"}
    )
    time_limit_s: float | None = field(
        default=None, metadata={"help": "seconds the solver may search; chosen by size if not given"}
    )
    seed: int = field(default=0, metadata={"help": "makes searches repeatable"})

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Options from keywords.

        Raises:
            OptionError: a name that is no option, or a word that is none of an option's choices.
        """
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise OptionError(f"unknown option {name!r}{hint}. The options are {', '.join(known)}")
        options = cls(**given)
        for name, choices in _CHOICES.items():
            if getattr(options, name) not in choices:
                raise OptionError(f"{name}={getattr(options, name)!r} is none of {', '.join(map(repr, choices))}")
        if options.variables == "move":
            raise OptionError(
                'variables="move" is not there yet: variables stay where they are; make them under tf.device(...) instead'
            )
        return options


_CHOICES = {"objective": ("step_time", "total_cost"), "variables": ("fixed", "move"), "on_missing_device": ("relax", "error")}
