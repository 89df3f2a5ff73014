"""Coordinators of ParameterServerStrategy: which functions they schedule, and the workers that run them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def scheduling_strategy() -> Any:
    """The strategy whose coordinator schedules the function that is asked for now; None outside of `schedule`."""
    strategy = tf.distribute.get_strategy()
    is_of_servers = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    return strategy if is_of_servers and strategy.extended._being_scheduled else None


def addresses_of_workers(strategy: Any) -> list[str]:
    """Host and port of each worker of a ParameterServerStrategy. All of them have the same devices."""
    return list(strategy._cluster_resolver.cluster_spec().job_tasks("worker"))
