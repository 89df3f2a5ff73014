"""Prices of memory that give the highest lower bound on the total cost under memory limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from placer.common.clock import TimeUpError, limit, now, remaining_s
from placer.problem.arrays import Floats, Ints
from placer.problem.memory import usage
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.graph_cut import Cut, expansion, minimum_cut
from placer.solvers.primitives.one_kind import all_on
from placer.solvers.primitives.or_tools import linear_optimum

HELD = (
    "M. Held, R. M. Karp, The traveling-salesman problem and minimum spanning trees: part II, Mathematical Programming 1, 1971, "
    "doi:10.1007/BF01584070"
)
FISHER = (
    "M. L. Fisher, The Lagrangian relaxation method for solving integer programming problems, Management Science 27(1), 1981, "
    "doi:10.1287/mnsc.27.1.1"
)
MARSTEN = (
    "R. E. Marsten, W. W. Hogan, J. W. Blankenship, The boxstep method for large-scale optimization, Operations Research 23(3), "
    "1975, doi:10.1287/opre.23.3.389"
)

MAX_CUTS = 60
"""Limit of the number of cuts in one ascent of the prices."""
PARTS_OF_STEP = 8
"""The step is divided into so many parts; in each, the worst moment over a limit gets a price."""
REL_GAP_TOL = 1e-4
"""The ascent ends when the bound can rise by no more than this part of it."""
FORBIDDEN_NS = 2**50
"""Cost of a forbidden device: more than any assignment costs, and thousands of it fit in 64 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class CuttingPlane:
    """Cost and memory of a cut's assignment: a linear function of the prices that is nowhere below the bound."""

    assignment: Assignment
    cost_ns: int
    held: Ints
    """[D, N]: bytes in use, see `placer.problem.memory.usage`."""


@dataclass
class MemoryPrices:
    """Prices of memory on two devices at moments of the step, and the ascent to those with the highest bound.

    A memory limit holds at each moment of the step. Bytes in use at some moments have a price (Held, Karp 1971; Fisher 1981). A
    minimum cut at any prices, minus what full use of the limits would pay, is a lower bound on the total cost.

    The bound is a concave function of the prices, and each cut gives a plane above it. The next prices maximise the lowest of
    these planes in a box around the best prices; the box grows after a success and shrinks after a failure (Marsten, Hogan,
    Blankenship 1975). The dual values of the planes are weights of a mixture of cuts. It costs as much as the bound, and meets
    the limits wherever memory has a price. A moment where it exceeds a limit gets a price too.
    """

    problem: PlacementProblem
    fixed: Mapping[int, int] = field(default_factory=dict)
    """The device of each unit that is fixed to one."""
    bound_ns: int = 0
    """The highest bound so far; with more than two devices it is not valid."""
    moments: list[tuple[int, int]] = field(default_factory=list)
    """The moments that have a price: pairs of a device and a moment."""
    best: Floats = field(default_factory=lambda: np.zeros(0))
    """[moments]: the best prices, in ns for the use of the whole limit."""
    planes: list[CuttingPlane] = field(default_factory=list)
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    """The weights of the first planes in the mixture; their sum is 1."""

    def per_byte(self, full_ns: Floats | None = None) -> Floats:
        """[D, N]: prices in ns per byte; those of `full_ns`, in ns for the whole limit, or the best."""
        price_per_byte = np.zeros((self.problem.num_devices, self.problem.num_ops))
        for (device, moment), price in zip(self.moments, self.best if full_ns is None else full_ns, strict=False):
            price_per_byte[device, moment] = price / max(1, int(self.problem.devices.memory_limit_bytes[device]))
        return price_per_byte

    def ascend(self, max_cuts: int, ends: float, enough_ns: float = math.inf) -> None:
        """Raises the bound.

        Args:
            max_cuts: limit of the number of cuts.
            ends: on `placer.common.clock.now`; the last cut may end later.
            enough_ns: a bound of this height is high enough.
        """
        with limit(ends - now()), suppress(TimeUpError):
            self._ascend(max_cuts, enough_ns)

    def _ascend(self, max_cuts: int, enough_ns: float) -> None:
        problem, limits = self.problem, self.problem.devices.memory_limit_bytes
        work = problem.unit_time_ns.copy()
        for unit, device in self.fixed.items():
            work[unit, np.arange(problem.num_devices) != device] += FORBIDDEN_NS
        prices, box, predicted = self.best, 1.0, math.inf
        for k in range(max_cuts):
            per_byte = self.per_byte(prices)
            cut = cheapest_cut(problem, per_byte, None, work)
            value = cut.bound_ns - float((per_byte * limits[:, None]).sum())
            gained = value - self.bound_ns
            if k == 0 or gained > 0:
                box *= 1.5 if k and gained > (predicted - self.bound_ns) / 2 else 1.0
                self.bound_ns, self.best = max(0, math.floor(value)), prices
            else:
                box *= 0.7
            self.planes.append(
                CuttingPlane(cut.assignment, total_cost_ns(problem, cut.assignment), usage(problem, cut.assignment))
            )
            self._add_moments(self.planes[-1].held)
            if not self.moments or self.bound_ns >= enough_ns or remaining_s() <= 0:
                break
            model = self._maximise_planes(box)
            if model is not None and model[1] - self.bound_ns <= REL_GAP_TOL * model[1]:
                if not self._add_moments(self._mixture_bytes()):
                    break
                model = self._maximise_planes(box)
            if model is None:
                break
            prices, predicted = model

    def mixture(self) -> Floats:
        """[U, D]: the share of each unit that the mixture has on each device."""
        parts = np.zeros((self.problem.num_units, self.problem.num_devices))
        for weight, plane in zip(self.weights, self.planes, strict=False):
            parts[np.arange(self.problem.num_units), plane.assignment.device] += weight
        return parts

    def _mixture_bytes(self) -> Floats:
        """[D, N]: bytes in use by the mixture at moments without a price, minus a tolerance for rounding."""
        held: Floats = sum(weight * plane.held for weight, plane in zip(self.weights, self.planes, strict=False)) * (
            1 - REL_GAP_TOL
        )
        held[tuple(np.array(self.moments).T)] = 0
        return held

    def _add_moments(self, held: Ints | Floats) -> bool:
        """Gives a price of 0 to the worst moment over a limit in each part of the step; returns whether there was a new one."""
        known = len(self.moments)
        for device, limit_bytes in enumerate(self.problem.devices.memory_limit_bytes.tolist()):
            for part in np.array_split(np.arange(self.problem.num_ops), PARTS_OF_STEP):
                if limit_bytes >= 0 and len(part):
                    worst = (device, int(part[np.argmax(held[device, part])]))
                    if held[worst] > limit_bytes and worst not in self.moments:
                        self.moments.append(worst)
        self.best = np.append(self.best, np.zeros(len(self.moments) - len(self.best)))
        return len(self.moments) > known

    def _maximise_planes(self, box: float) -> tuple[Floats, float] | None:
        """The prices in the box that maximise the lowest plane, and its height there, in ns; None if the linear program fails."""
        from placer.solvers.primitives.loaded_ortools import model_builder

        device, moment = np.array(self.moments).T
        limit = self.problem.devices.memory_limit_bytes[device]
        over = (np.stack([plane.held[device, moment] for plane in self.planes]) - limit) / np.maximum(1, limit)
        unit = float(max(1, min(plane.cost_ns for plane in self.planes)))
        program = model_builder.Model()  # type: ignore[no-untyped-call]
        height = program.new_num_var(-math.inf, math.inf, "")
        price = [program.new_num_var(max(0.0, at - box), at + box, "") for at in (self.best / unit).tolist()]
        below = [
            program.add(height - model_builder.LinearExpr.weighted_sum(price, row.tolist()) <= plane.cost_ns / unit)
            for plane, row in zip(self.planes, over, strict=True)
        ]
        program.maximize(height)
        simplex = linear_optimum(program)
        if simplex is None:
            return None
        self.weights = np.array([simplex.dual_value(plane) for plane in below])
        return np.maximum(0.0, [unit * simplex.value(p) for p in price]), unit * simplex.objective_value


def cheapest_cut(problem: PlacementProblem, memory_price: Floats, price_scale: Floats | None, work_ns: Ints | None = None) -> Cut:
    """The cheapest assignment at these prices of memory.

    With more than two devices, the result of one alpha-expansion to each; its 'bound' is then its cost, and not valid as one.
    """
    if problem.num_devices == 2:
        return minimum_cut(problem, memory_price=memory_price, price_scale=price_scale, work_ns=work_ns)

    def value(assignment: Assignment) -> int:
        return total_cost_ns(problem, assignment) + math.floor(float((memory_price * usage(problem, assignment)).sum()))

    best = all_on(problem, "CPU")
    for device in range(problem.num_devices):
        moved = expansion(problem, best, device, memory_price=memory_price, price_scale=price_scale).assignment
        if price_scale is not None or value(moved) < value(best):
            best = moved
    return Cut(best, value(best))
