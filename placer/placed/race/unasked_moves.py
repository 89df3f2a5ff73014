"""Moves of variables that no option asks for: what one placed function has to know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from placer.placed.race.gate import Gate

if TYPE_CHECKING:
    from placer.placed.race.calls import Runner
    from placer.placed.race.move_trial import MoveTrial


class UnaskedMoves:
    """The state of a placed function whose variables may move unasked.

    Args:
        may_move: whether they may.
    """

    def __init__(self, may_move: bool) -> None:
        self.gate: Gate | None = Gate() if may_move else None
        """Passed by all calls as long as variables may move. None: they do not, or no longer."""
        self.trial: MoveTrial | None = None
        """Gives calls to placements with variables in other places, as long as that goes on."""
        self.give_back: Callable[[], None] | None = None
        """Moves variables back that have moved and were to stay. None while there are none."""
        self.other_use = ""
        """What else uses the variables, so that they do not move, in words; "" if nothing is known of."""

    def end_trial(self) -> bool:
        """Moves variables back that have moved for a trial. Returns False if they cannot be moved yet, since other calls run."""
        return self.trial is None or self.trial.end()

    def stop(self, other_use: str) -> None:
        """Lets no variables move from now on; those that were to stay in their new places do so."""
        self.other_use = other_use
        if self.gate is not None and self.give_back is None and self.end_trial():
            self.gate = None

    def undo(self, other_use: str) -> None:
        """Moves all variables back, and lets none move from now on."""
        self.stop(other_use)
        if self.give_back is not None:
            self.give_back()

    def forget(self, alone: Runner) -> None:
        """Ends a trial whose calls are planned again; `alone` is what runs them."""
        if self.trial is not None and self.trial is alone:
            self.trial.end()
            self.abandon()

    def abandon(self) -> None:
        """Ends a trial whose variables were moved for another function, or whose calls are planned again."""
        if self.trial is not None:
            self.trial.abandon()
            self.trial = None
