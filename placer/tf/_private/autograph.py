"""AutoGraph inside of code that it does not convert."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tensorflow.python.autograph.core import ag_ctx


def autograph_enabled() -> AbstractContextManager[Any]:
    """Within it, code that asks whether AutoGraph is on, as layers of tf_keras do, finds that it is."""
    context: AbstractContextManager[Any] = ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED)
    return context
