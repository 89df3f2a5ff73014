"""Measuring the network of a cluster, which later plans for it use."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cost_models.machine_files import load_cluster
from cost_models.machines import Machine, host_of, task_of
from cost_models.network import save_network
from cost_models.ops import UnmeasurableError
from placer.common.progress import progress
from placer.common.units import check_seconds
from placer.errors import PlacerError, WorkerError
from placer.verbs.cluster import cluster


def calibrate_network(
    description: str | os.PathLike[str] | None = None, *, workers: Sequence[str] = (), budget_s: float = 20.0
) -> Machine:
    """Connects to the workers of a cluster, and measures the links between hosts and the time of a call with an op on a worker.

    What is measured is kept in the user's cache folder, for clusters with the same addresses. Keys of [network] in the cluster's
    file win over it. `placer calibrate` on each host measures the devices of the host.

    Args:
        description, workers: as for `placer.cluster`.
        budget_s: about how long to measure, in seconds.

    Returns:
        The cluster, with what was measured.

    Raises:
        WorkerError: a worker fails.
        PlacerError: the cache folder cannot be written; also as for `placer.cluster`.
    """
    check_seconds("budget_s", budget_s)
    machine = cluster(description, workers=workers)
    addresses = load_cluster(description).addresses if description is not None else tuple(workers)
    from cost_models.measuring.chains import refusals_as_unmeasurable
    from cost_models.measuring.network import measured_network
    from placer.tf import connecting
    from placer.tf.devices import full_name

    hosts = [full_name(device.name) for device in machine.devices if device.name == host_of(device.name)]
    try:
        with progress("measuring the network"), refusals_as_unmeasurable():
            network = measured_network(hosts, budget_s)
        save_network(addresses, network)
    except UnmeasurableError as error:
        tasks = {task_of(device.name) for device in machine.devices} - {""}
        if failures := connecting.failures(tasks):
            raise WorkerError(
                f"the network cannot be measured: {'; '.join(failures.values())}. Way out: start the worker again, then measure."
            ) from error
        raise PlacerError(f"the network cannot be measured: {error}") from error
    except OSError as error:
        raise PlacerError(f"what is measured cannot be kept: {error}") from error
    return cluster(description, workers=workers)
