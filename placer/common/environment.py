"""Environment variables that change what placed functions do."""

from __future__ import annotations

import os

DISABLE_VARIABLE = "PLACER_DISABLE"


def is_disabled() -> bool:
    """Whether placed functions are to run as if they were not placed."""
    return os.environ.get(DISABLE_VARIABLE, "0") not in ("", "0")
