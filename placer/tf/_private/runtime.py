"""TensorFlow's runtime: the context of a call, and the graphs that really ran."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import structured_function
from tensorflow.python.eager import context
from tensorflow.python.framework import config
from tensorflow.python.saved_model import save_context


def device_scope() -> str:
    """The device scope around a call, eager or inside a function. A tf.function is traced once per eager device scope."""
    return str(context.context().device_name or "")


def own_task() -> str:
    """The task that this process is: "/job:localhost/replica:0/task:0" if it is none of a cluster. Starts the runtime."""
    return str(context.context().host_address_space())


def is_op_determinism_enabled() -> bool:
    """Whether `tf.config.experimental.enable_op_determinism` was called."""
    return bool(config.is_op_determinism_enabled())


def eager_scopes() -> int:
    """How many eager scopes this thread has entered, each inside a function that was being traced in the scope before."""
    return sum(not entry.is_building_function for entry in context.context().context_switches.stack)


def in_dataset_function() -> bool:
    """Whether a function that a dataset will call is being traced."""
    tracer = structured_function.StructuredFunctionWrapper.__init__.__code__
    return not tf.executing_eagerly() and any(frame.f_code is tracer for frame, _ in traceback.walk_stack(None))


def is_saving() -> bool:
    """Whether a SavedModel is being written. Functions are traced again for it."""
    return bool(save_context.in_save_context())


@contextmanager
def recorded_partitions() -> Iterator[list[Any]]:
    """Yields a list that gets, when the block ends, the partition graphs of every function that first ran inside the block."""
    recorded: list[Any] = []
    context.context().enable_run_metadata()
    context.context().export_run_metadata()  # after an earlier use TensorFlow went on collecting: drop those graphs
    try:
        yield recorded
        recorded.extend(context.context().export_run_metadata().function_graphs)
    finally:
        context.context().disable_run_metadata()


def connect_again() -> None:
    """Joins workers that were started again. Those that were not keep their tensors and variables."""
    tf_context = context.context()
    tf_context.update_server_def(tf_context.get_server_def())


def wait_for_workers_by(wait: Callable[[Callable[[], None]], None]) -> None:
    """Lets TensorFlow wait for the ops of all workers, as `tf.train.Checkpoint` and `sync_devices` do, by this function.

    Args:
        wait: gets TensorFlow's own function, which fails if a worker has died.
    """
    own = context.async_wait
    context.async_wait = lambda: wait(own)


@contextmanager
def errors_of_workers_at_once() -> Iterator[None]:
    """While the block connects to workers, TensorFlow raises an error if one dies.

    Otherwise it would wait for the worker without limit, holding Python's lock. From then on, as under a ParameterServerStrategy,
    this process sends each eager op by itself, and waits until the worker has run it. With TensorFlow's stream of ops, a function
    can read a variable before the value that was assigned to it last. A write to a variable of a worker that died seems to
    succeed, and a read waits for the next op.
    """
    os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "false"  # read at each op
    # Threads of TensorFlow read the environment meanwhile. A variable that is never removed can be changed safely.
    fail_fast = os.environ.get("GRPC_FAIL_FAST", "use_caller")
    os.environ["GRPC_FAIL_FAST"] = "true"
    try:
        yield
    finally:
        os.environ["GRPC_FAIL_FAST"] = fail_fast
