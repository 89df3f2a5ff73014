"""Errors a user can act on. Each message says what was asked for, what exists, and the way out."""

from __future__ import annotations


class PlacerError(Exception):
    """Base of every error placer raises on purpose."""


class TraceError(PlacerError):
    """The function could not be traced."""


class OptionError(PlacerError, ValueError):
    """An option's value cannot be used."""


class DeviceError(PlacerError):
    """A device that was asked for does not exist."""


class ConstraintError(PlacerError):
    """Demands on one unit of ops contradict each other."""


class InfeasibleError(PlacerError):
    """No placement meets the memory limits, or none was found in time."""


class OutOfMemoryError(PlacerError):
    """A placed call ran out of memory. It is also a `tf.errors.ResourceExhaustedError`."""


class WorkerError(PlacerError):
    """A worker of a cluster died, hangs or was started again, so that a call could not end."""


class PlanError(PlacerError):
    """A file is broken, such as a saved plan, or was made for something else; or a function has no plan."""


class WorsePlanError(PlacerError):
    """A new plan's step is predicted to take longer than that of a saved plan."""


class MoveError(PlacerError):
    """A variable could not be moved, or its old storage is still used."""


class RewriteError(PlacerError):
    """A plan could not be applied to its function."""


class PlacementWarning(UserWarning):
    """A demand of the user was relaxed, a function was left as it is, or TensorFlow's version was not checked."""
