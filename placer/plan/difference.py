"""The differences between two placements: ops that move, and the change of times, transfers and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placer.common.html import Html, folded, html_table, stacked
from placer.common.tables import table
from placer.common.units import format_bytes, format_ns

if TYPE_CHECKING:
    from placer.plan.placement import Placement

MAX_MOVES_SHOWN = 20
_HEAD = ("", "first", "second", "change")
_MOVES_HEAD = ("from", "to", "op")


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes from a first placement to a second. A pair is the value of the first placement and the value of the second."""

    functions: tuple[str, str]
    """Names of the functions."""
    same_graph: bool
    """Whether both placements are of the same graph. Ops are compared by name if they are not."""
    moved: Mapping[str, tuple[str, str]]
    """For each op of both placements whose devices differ: the two devices. The op that takes longest comes first."""
    only_first: tuple[str, ...]
    """Ops that only the first placement has."""
    only_second: tuple[str, ...]
    """Ops that only the second placement has."""
    total_cost_ns: tuple[int, int]
    step_time_ns: tuple[int, int]
    transfers: tuple[int, int]
    """Number of transfers."""
    copied_bytes: tuple[int, int]
    """Bytes that all transfers of a step copy."""
    transfer_ns: tuple[int, int]
    """Sum of the times of all transfers of a step, as if none overlapped."""
    peak_bytes: Mapping[str, tuple[int, int]]
    """By device of either placement; 0 if the placement does not have the device."""
    used: tuple[str, str]
    """The candidate that each verdict uses; "" for a placement without a verdict."""
    measured_ns: tuple[int, int]
    """The measured time of that candidate; 0 if it was not timed."""

    @property
    def _rows(self) -> list[list[str]]:
        """A row for each figure: its name, both values, and the change."""
        figures: dict[str, tuple[tuple[int, int], Callable[[int], str]]] = {
            "step time": (self.step_time_ns, format_ns),
            "total cost": (self.total_cost_ns, format_ns),
            "transfers": (self.transfers, str),
            "copied per step": (self.copied_bytes, format_bytes),
            "transfer time": (self.transfer_ns, format_ns),
            **{f"peak memory {device}": (pair, format_bytes) for device, pair in self.peak_bytes.items()},
        }
        rows = [
            [name, formatted(first), formatted(second), _change(first, second)]
            for name, ((first, second), formatted) in figures.items()
        ]
        if any(self.used):
            rows[:0] = [["used", *(used or "the plan, predicted" for used in self.used), ""], self._measured()]
        return rows

    @property
    def _counts(self) -> str:
        """How many ops differ, in words."""
        moved, only_first, only_second = len(self.moved), len(self.only_first), len(self.only_second)
        moves, are = "op moves" if moved == 1 else "ops move", "is" if only_first == 1 else "are"
        counts = f"{moved} {moves}, {only_first} {are} only in the first, {only_second} only in the second"
        first, second = map(repr, self.functions)
        different = f"different functions, {first} and {second}" if first != second else f"different graphs of {first}"
        return counts if self.same_graph else f"the plans are of {different}, and ops are compared by name: {counts}"

    @property
    def _moves(self) -> list[list[str]]:
        """The first moves: from, to, op."""
        return [[*devices, name] for name, devices in list(self.moved.items())[:MAX_MOVES_SHOWN]]

    def __str__(self) -> str:
        lines = [self._counts, "", table(_HEAD, self._rows)]
        if self.moved:
            lines += ["", table(_MOVES_HEAD, self._moves, ["to", "op"])]
        more = len(self.moved) - MAX_MOVES_SHOWN
        return "\n".join([*lines, *([f"… and {more} more"] if more > 0 else [])])

    def _repr_html_(self) -> Html:
        parts = [html_table(_HEAD, self._rows)]
        if self.moved:
            more = len(self.moved) - MAX_MOVES_SHOWN
            moves = html_table(_MOVES_HEAD, self._moves, ["to", "op"])
            parts.append(folded("ops that move", moves, *([f"… and {more} more"] if more > 0 else [])))
        return stacked(self._counts, *parts)

    def _measured(self) -> list[str]:
        """The row of measured times. Only two measured times have a change."""
        first, second = self.measured_ns
        texts = [format_ns(ns) if ns else "not measured" for ns in self.measured_ns]
        return ["measured", *texts, _change(first, second) if all(self.measured_ns) else ""]


def difference(first: Placement, second: Placement) -> Difference:
    """Compares two placements, which may be of different graphs: ops are matched by name."""
    both = {name: (first.ops[name], second.ops[name]) for name in first.ops if name in second.ops}
    moved = {name: (one.device, two.device) for name, (one, two) in both.items() if one.device != two.device}
    longest_ns = {name: max(plan.time_ns.get(plan.device, 0) for plan in both[name]) for name in moved}
    return Difference(
        functions=(first.graph.name, second.graph.name),
        same_graph=first.fingerprint == second.fingerprint,
        moved={name: moved[name] for name in sorted(moved, key=lambda name: -longest_ns[name])},
        only_first=tuple(name for name in first.ops if name not in second.ops),
        only_second=tuple(name for name in second.ops if name not in first.ops),
        total_cost_ns=(first.total_cost_ns, second.total_cost_ns),
        step_time_ns=(first.step_time_ns, second.step_time_ns),
        transfers=(len(first.transfers), len(second.transfers)),
        copied_bytes=(first.copied_bytes, second.copied_bytes),
        transfer_ns=(first.transfer_ns, second.transfer_ns),
        peak_bytes={
            device: (_peak_bytes(first, device), _peak_bytes(second, device))
            for device in dict.fromkeys(first.devices + second.devices)
        },
        used=(_used(first), _used(second)),
        measured_ns=(_measured_ns(first), _measured_ns(second)),
    )


def _used(placement: Placement) -> str:
    return placement.verdict.used if placement.verdict is not None else ""


def _measured_ns(placement: Placement) -> int:
    used = placement.verdict.of(placement.verdict.used) if placement.verdict is not None else None
    return used.median_ns if used is not None else 0


def _peak_bytes(placement: Placement, device: str) -> int:
    return placement.totals[device].peak_bytes if device in placement.totals else 0


def _change(first: int, second: int) -> str:
    """The relative change in words: "+12.3%", "20 times", "new" from 0, "" for none."""
    if not first or abs(second - first) < 0.0005 * first:
        return "" if first or not second else "new"
    return f"{second / first - 1:+.1%}" if second < 10 * first else f"{second / first:,.0f} times"
