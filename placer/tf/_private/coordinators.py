"""Coordinators of ParameterServerStrategy: which functions they schedule, and the workers that run them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def scheduling_strategy() -> Any:
    """The strategy whose coordinator schedules the function that is asked for now; None outside of `schedule`."""
    strategy = tf.distribute.get_strategy()
    is_of_servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    return strategy if is_of_servers and strategy.extended._being_scheduled else None


def first_worker(strategy: Any) -> str:
    """Host and port of the first worker of a ParameterServerStrategy, whose workers all have the same devices."""
    return str(strategy._cluster_resolver.cluster_spec().task_address("worker", 0))
