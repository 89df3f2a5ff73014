"""Comparison: the records of runs as data, tables and pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cost_models.files import write_whole
from placer.errors import OptionError, PlanError
from placer.research.arena import plots, tables
from placer.research.arena.plots import Picture
from placer.research.arena.records import FORMAT, VERSION, Record, read_lines
from placer.research.arena.scores import ProblemScores, scored
from placer.research.arena.statistics import Blocks, Over, PairedTest, paired_tests
from placer.research.arena.table_styles import TableStyle


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

    def table(self, style: TableStyle = "text") -> str:
        """A table for each problem: the answers of each solver over its seeds, with gaps to the bound and ratios to the best."""
        return tables.per_problem(self.records, self.others, style)

    def summary(self, style: TableStyle = "text") -> str:
        """A table over all problems: how many each solver answered, how often it was best, and its gaps and ratios."""
        return tables.over_problems(self.records, self.others, style)

    def tests(self, over: Over = "problems", reference: str | None = None, style: TableStyle = "text") -> str:
        """Two tables: mean ranks with Friedman's and Nemenyi's tests, and `pairs`.

        Raises OptionError as `pairs` does.
        """
        return tables.of_tests(Blocks.of(self.records, over), reference, style)

    def pairs(self, over: Over = "problems", reference: str | None = None) -> list[PairedTest]:
        """Wilcoxon's signed-rank test of each two solvers with Holm's correction, and an interval of the ratio of their values.

        Args:
            over: what the solvers are compared on: "problems", with the median over seeds of each; or "seeds", each problem with
                each seed.
            reference: a solver that is compared with each other one; None for all pairs.

        Raises OptionError if SciPy is not installed, or if there is no such solver.
        """
        return paired_tests(Blocks.of(self.records, over), reference)

    def profiles(self, picture: Picture = "svg") -> bytes:
        """A picture of performance profiles (Dolan, Moré 2002): the share of problems within a factor of the best answer.

        Raises OptionError if matplotlib is not installed.
        """
        return plots.profiles(self.records, self.others, picture)

    def gaps(self, picture: Picture = "svg") -> bytes:
        """A picture for each problem of the gap to its best bound over the seconds spent, a point for each time limit.

        Raises OptionError if matplotlib is not installed.
        """
        return plots.gaps(self.records, self.others, picture)

    def ranks(self, over: Over = "problems", picture: Picture = "svg") -> bytes:
        """A critical-difference diagram (Demšar 2006): mean ranks, with bars over solvers that do not differ significantly.

        Raises OptionError if matplotlib or SciPy is not installed.
        """
        return plots.ranks(Blocks.of(self.records, over), picture)

    def write(self, folder: str | Path, over: Over = "problems", reference: str | None = None) -> None:
        """Writes what a paper needs to a folder, which is created if it is missing.

        - ``records.csv``: all records; ``pairs.csv``: the paired tests, unrounded.
        - ``problems.tex``, ``summary.tex``, ``tests.tex``: tables in LaTeX, for the package booktabs.
        - ``profiles``, ``gaps``, ``ranks``: pictures, each as ``.pdf`` and ``.svg``.

        Args:
            folder: the folder.
            over: see `pairs`.
            reference: see `pairs`.

        Raises:
            OptionError: matplotlib or SciPy is not installed, there is no such solver, or the folder cannot be written.
        """
        columns = list(dict.fromkeys(name for record in self.records for name in record))
        files = {
            "records.csv": _csv(columns, self.records),
            "pairs.csv": _csv(list(PairedTest.__annotations__), [asdict(pair) for pair in self.pairs(over, reference)]),
            "problems.tex": self.table("latex"),
            "summary.tex": self.summary("latex"),
            "tests.tex": self.tests(over, reference, "latex"),
        }
        content = {name: f"{text.rstrip()}\n".encode() for name, text in files.items()}
        for kind in plots.PICTURES:
            content[f"profiles.{kind}"] = self.profiles(kind)
            content[f"gaps.{kind}"] = self.gaps(kind)
            content[f"ranks.{kind}"] = self.ranks(over, kind)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name, written in content.items():
                write_whole(Path(folder) / name, written)
        except OSError as error:
            raise OptionError(f"{folder} cannot be written: {error.strerror}.") from error

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


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as comma-separated values with a line of names; a missing value is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
