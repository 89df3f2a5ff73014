"""Traces functions as on the machine that they are planned for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cost_models.machines import task_of
from placer.options import Options
from placer.verbs.solve import machine_named


@contextmanager
def traced_for(options: Options) -> Iterator[None]:
    """While the block runs, code that is traced and asks TensorFlow for GPUs gets the GPUs of the machine that options name.

    Without a machine, or with ``trace_for="here"``, it gets those of this process.

    Raises:
        OptionError: there is no such machine.
    """
    from placer.tf._private.reported_devices import reported_gpus
    from placer.tf.devices import process_devices

    machine = machine_named(options.devices) if options.trace_for == "target" else None
    here = sum(name.startswith("GPU") for name in process_devices())
    gpus = here if machine is None else sum(device.kind == "GPU" and not task_of(device.name) for device in machine.devices)
    with reported_gpus(None if gpus == here else gpus):
        yield
