"""Handles of variables on workers that this process left. TensorFlow ends the process if one is read."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cost_models.machines import task_of
from placer.common.device_spec import parse
from placer.tf._private.live_objects import live_objects

unreadable: dict[int, Any] = {}
"""By id: the handles. They are kept, so that no other object gets the id of one."""


def leave_handles() -> None:
    """Adds the resources and variants on all workers. Called before this process leaves the workers."""
    tensors = [tensor for tensor in live_objects(tf.__internal__.EagerTensor) if id(tensor) not in unreadable]
    handles = (tensor for tensor in tensors if tensor.dtype in (tf.resource, tf.variant))
    unreadable.update({id(handle): handle for handle in handles if task_of(parse(handle.device).short)})
