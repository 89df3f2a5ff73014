"""Comparison: the records of runs as data, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placer.errors import PlanError
from placer.research.arena import plots
from placer.research.arena.records import FORMAT, VERSION, Record, read_lines
from placer.research.arena.scores import ProblemScores, scored
from placer.research.arena.tables import over_problems, per_problem


@dataclass(frozen=True)
class Comparison:
    """The runs of solvers on problems.

    ``records`` has a flat dict for each run, ready for ``pandas.DataFrame``. `docs/arena.md` lists the fields.
    """

    records: Sequence[Record]
    others: Sequence[Record] = field(default=(), repr=False)
    """Further runs of the same problems. Their bounds and answers count in gaps and ratios, but they have no line."""

    def scores(self) -> list[ProblemScores]:
        """For each problem, in the order of the records, the scores of all solvers."""
        return scored(self.records, self.others)

    def table(self, *, markdown: bool = False) -> str:
        """A table for each problem: the answers of each solver over its seeds, with gaps to the bound and ratios to the best."""
        return per_problem(self.records, self.others, markdown=markdown)

    def summary(self, *, markdown: bool = False) -> str:
        """A table over all problems: how many each solver answered, how often it was best, and its gaps and ratios."""
        return over_problems(self.records, self.others, markdown=markdown)

    def profiles(self) -> str:
        """An SVG picture of performance profiles (Dolan, Moré 2002): the share of problems within a factor of the best answer.

        Raises OptionError if matplotlib is not installed.
        """
        return plots.profiles(self.records, self.others)

    def gaps(self) -> str:
        """An SVG picture for each problem of the gap to its best bound over the seconds spent, a point for each time limit.

        Raises OptionError if matplotlib is not installed.
        """
        return plots.gaps(self.records, self.others)

    def to_json(self) -> dict[str, Any]:
        """Format, version and records as plain JSON types."""
        return {"format": FORMAT, "version": VERSION, "records": list(self.records)}

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """The records in a file of results.

        Raises PlanError if it is missing or broken, or has another format or version.
        """
        if not Path(path).exists():
            raise PlanError(f"there is no file {path}.")
        return cls(read_lines(path))
