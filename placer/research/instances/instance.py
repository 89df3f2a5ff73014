"""Instance: a split or pairwise problem with its objective, described and priced for comparisons."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from placer.common.units import format_bytes
from placer.errors import OptionError
from placer.problem.arrays import Ints
from placer.research.pairwise.problem import PairwiseProblem
from placer.research.pairwise.validate import validate_pairwise
from placer.research.splits.problem import SplitProblem, excess_bytes, latency_ns, max_load_ns

InstanceObjective: TypeAlias = Literal["max_load", "latency", "cost"]
"""`cost` is that of a pairwise problem, which has no unit."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem that is no `PlacementProblem`."""

    problem: SplitProblem | PairwiseProblem
    objective: InstanceObjective

    def __post_init__(self) -> None:
        if isinstance(self.problem, PairwiseProblem) != (self.objective == "cost"):
            raise OptionError(f"a {type(self.problem).__name__} has no objective {self.objective!r}.")

    @property
    def size(self) -> int:
        """The number of decisions: units or nodes."""
        return self.problem.nodes if isinstance(self.problem, PairwiseProblem) else self.problem.units

    def fingerprint(self) -> str:
        """A SHA-256 of the objective and all fields."""
        digest = hashlib.sha256(self.objective.encode())
        for f in fields(self.problem):
            value = getattr(self.problem, f.name)
            digest.update(f.name.encode())
            digest.update(np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return digest.hexdigest()

    def described(self) -> dict[str, Any]:
        """The fields of a record that describe the problem, see `docs/arena.md`."""
        p = self.problem
        if isinstance(p, PairwiseProblem):
            place, limit, ops = "memory", p.usage_limit, p.nodes
        else:
            place, limit, ops = f"accelerator*{p.accelerators}", p.memory_limit_bytes, p.ops
        devices = place if isinstance(p, PairwiseProblem) else f"{place} CPU*{p.cpus}"
        return {
            "problem_hash": self.fingerprint(),
            "ops": ops,
            "units": self.size,
            "devices": devices,
            f"limit_bytes.{place}": limit,
            "objective": self.objective,
        }

    def checked(self, answer: Sequence[int] | Ints) -> Ints:
        """The answer as an array: a device for each unit, or a choice for each node.

        Raises OptionError if it has another length, or a device or choice that is not there or not allowed.
        """
        chosen, p = np.asarray(answer), self.problem
        if chosen.shape != (self.size,) or chosen.dtype.kind not in "iu":
            raise OptionError(f"the answer has shape {chosen.shape} of {chosen.dtype}; it must be {self.size} integers.")
        if isinstance(p, PairwiseProblem):
            wrong = (chosen < 0) | (chosen >= p.choices)
        else:
            wrong = (chosen < 0) | (chosen >= p.devices) | ((chosen < p.accelerators) & ~p.unit_supported)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise OptionError(f"the answer has {chosen[at]} for number {at}, which is not allowed there.")
        return chosen.astype(np.int64)

    def priced(self, answer: Ints) -> tuple[dict[str, Any], str]:
        """The fields of a record that say what an answer is worth, and the limit that it exceeds as text, empty if it fits."""
        p = self.problem
        if isinstance(p, PairwiseProblem):
            report = validate_pairwise(p, answer)
            figures: dict[str, Any] = {"objective_ns": report.cost, "peak_bytes.memory": report.peak_usage}
            violated = next(iter(report.violations), "")
        else:
            held = np.bincount(answer, weights=p.unit_bytes, minlength=p.devices)[: p.accelerators]
            over = excess_bytes(p, answer)
            figures = {"max_load_ns": max_load_ns(p, answer), f"peak_bytes.accelerator*{p.accelerators}": int(held.max())}
            latency = latency_ns(p, answer)
            figures |= {} if latency is None else {"latency_ns": latency}
            violated = f"an accelerator would hold {format_bytes(over)} over its limit" if over else ""
            if latency is None and self.objective == "latency":
                violated = "accelerators wait for each other in a circle"
            figures["objective_ns"] = figures.get(f"{self.objective}_ns", 0)
        return {"feasible": not violated, **figures}, violated
