"""Errors a user can act on. Each says what was asked, what there is, and the way out."""

from __future__ import annotations


class PlacerError(Exception):
    """Base of every error placer raises on purpose."""


class TraceError(PlacerError):
    """The function could not be traced."""


class OptionError(PlacerError, ValueError):
    """An option's value cannot be used."""


class DeviceError(PlacerError):
    """A device that was asked for is not there."""


class ConstraintError(PlacerError):
    """Demands on one unit of ops contradict each other."""


class InfeasibleError(PlacerError):
    """No placement meets the limits."""


class OutOfMemoryError(PlacerError):
    """A placed call ran out of memory; TensorFlow's `ResourceExhaustedError` too."""


class PlanError(PlacerError):
    """A saved plan or graph is broken, or belongs to something else."""


class MoveError(PlacerError):
    """A variable could not be moved, or what it was moved from is still used."""


class RewriteError(PlacerError):
    """A plan could not be applied to its function."""


class PlacementWarning(UserWarning):
    """Something the user asked for was relaxed, or a function was left as it is."""
