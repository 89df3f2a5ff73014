"""Placement as an environment for reinforcement learning: an action is the device of the next unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from placer.errors import OptionError
from placer.problem.arrays import Bools, Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.step_edges import step_edges_of
from placer.research.choices import Choices

Observation: TypeAlias = dict[str, Any]
Draw: TypeAlias = Callable[[np.random.Generator], PlacementProblem]


class PlacementEnv:
    """Gives the units of a problem their devices one by one, in the order of their first ops.

    `reset` and `step` have the arguments and the results of gymnasium's ``Env``. Units that may use one device only have it from
    the start; the others are decided. With D devices, U units and F features, an observation is a dict of

    - ``unit``: the number of the unit that the next action decides, int; -1 after the last one;
    - ``mask``: [D] bool, the devices that the action may be: those that the unit may use and whose memory limits hold with it;
    - ``features``: [D, F] float64, what is known of each device: `placer.research.choices.FEATURES`, without units;
    - ``device``: [U] int64, the device of each unit; -1 for units without one.

    An action is the number of a device, int. The reward of the last action is minus the step time of the assignment in ns, as
    `placer.evaluate` gives it; that of any other action is 0. If no device has memory for the next unit, the episode ends with a
    reward of minus `dead_end_ns`, which is worse than that of any assignment.
    """

    def __init__(self, problem: PlacementProblem | Draw) -> None:
        """An environment of one problem, or of problems that a function draws, one for each episode.

        Args:
            problem: the problem; or a function from a `numpy.random.Generator` to a problem.

        Raises:
            OptionError: it is neither.
        """
        if not isinstance(problem, PlacementProblem) and not callable(problem):
            raise OptionError(f"{problem!r} is no PlacementProblem, and no function from a numpy.random.Generator to one.")
        self._draw: Draw = problem if not isinstance(problem, PlacementProblem) else lambda rng: problem
        self._rng = np.random.default_rng()
        self._choices: Choices | None = None
        self._mask: Bools
        self._device: Ints
        self.problem: PlacementProblem
        """The problem of the episode, from `reset` on."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: of the generator that draws problems. Episodes after the same seed have the same problem. None goes on with the
                generator.
            options: ignored; gymnasium's wrappers pass it.

        Returns:
            The first observation, and an info without content.

        Raises:
            OptionError: the seed is none, or the function drew no problem; or there is nothing to decide, because each unit may
                use one device only, or no device has memory for the first unit.
        """
        if seed is not None:
            try:
                self._rng = np.random.default_rng(seed)
            except (TypeError, ValueError) as error:
                raise OptionError(f"seed={seed!r} is not a whole number of at least 0.") from error
        drawn = self._draw(self._rng)
        if not isinstance(drawn, PlacementProblem):
            raise OptionError(f"the function that draws problems returned {drawn!r}, which is no PlacementProblem.")
        self.problem = drawn
        choices = self._choices = Choices(self.problem)
        self._mask, self._device = choices.mask(), np.array(choices.device, np.int64)
        if not self._mask.any():
            self._choices = None
            raise OptionError(
                "no unit has a choice of devices." if choices.unit < 0 else f"no device has memory for unit {choices.unit}."
            )
        return self._observe(choices), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Puts the next unit on a device.

        Returns:
            Observation; reward in ns; whether the episode has ended; False, as no episode is cut off; and an info. At the end the
            info has the ``assignment``, or None if no device had memory for a unit.

        Raises:
            OptionError: the action is no number of a device, the mask excludes the device, or no episode is running.
        """
        choices = self._choices
        if choices is None:
            raise OptionError("no episode is running: call reset first.")
        unit, number = choices.unit, np.asarray(action)
        if number.shape != () or number.dtype.kind not in "iu":
            raise OptionError(f"action {action!r} is no device's number: the mask has {np.flatnonzero(self._mask).tolist()}.")
        action = int(number)
        if not (0 <= action < len(self._mask) and self._mask[action]):
            raise OptionError(f"unit {unit} cannot be on device {action}: the mask has {np.flatnonzero(self._mask).tolist()}.")
        choices.place(action)
        self._mask, self._device[unit] = choices.mask(), action
        observation = self._observe(choices)
        if self._mask.any():
            return observation, 0.0, False, False, {}
        self._choices = None
        if choices.unit >= 0:
            return observation, -float(dead_end_ns(self.problem)), True, False, {"assignment": None}
        assignment = Assignment(self._device.copy())
        return observation, -float(Simulator(self.problem).step_ns(assignment)), True, False, {"assignment": assignment}

    def _observe(self, choices: Choices) -> Observation:
        features, device = choices.features(), self._device.copy()
        return {"unit": choices.unit, "mask": self._mask.copy(), "features": features, "device": device}


def dead_end_ns(problem: PlacementProblem) -> int:
    """Twice the sum of the longest times of all ops, on devices that they may use, of all copies, and of the call beside them."""
    devices = problem.devices
    ops = np.where(problem.units.allowed[problem.ops.unit], problem.ops.time_ns, 0).max(axis=1).sum()
    wakes = problem.num_ops * devices.wake_ns.max()
    _, copies = step_edges_of(problem).pairs(problem)
    call = devices.call_overhead_ns + devices.call_ns.max() + devices.split_ns * problem.num_devices + devices.waiting_ns
    return 2 * int(ops + wakes + copies.max(axis=(1, 2), initial=0).sum() + call)
