"""Measuring the constants of this machine, which later plans for it use."""

from __future__ import annotations

import datetime
from dataclasses import replace

from cost_models.auto import installed_tensorflow
from cost_models.calibrations import save_calibration
from cost_models.machines import Machine
from cost_models.measurements import Row
from cost_models.ops import UnmeasurableError
from cost_models.store import Store, StoreError
from placer.common.progress import progress
from placer.common.units import check_seconds
from placer.errors import PlacerError


def calibrate(budget_s: float = 60.0) -> Machine:
    """Measures the devices of this process and the links between them, and saves the machine in the user's cache folder.

    Later plans for these devices use it automatically. The single ops from which constants follow are stored, too.
    `placer.verbs.profile.profile` measures the ops of a function.

    Args:
        budget_s: about how long to measure, in seconds. Each constant is measured net of the others, so all of them are
            measured whatever the budget. A smaller budget samples each for less time; that takes at least 10 s, and longer on a
            busy machine or with GPUs.

    Returns:
        The machine.

    Raises:
        OptionError: `budget_s` is no positive number.
        PlacerError: the cache folder cannot be written, or a device has no memory free.
    """
    check_seconds("budget_s", budget_s)
    from cost_models.measuring.calibration import Calibration
    from cost_models.measuring.chains import refusals_as_unmeasurable
    from placer.tf.devices import local_machine

    version = installed_tensorflow()
    try:
        Store().put([])  # fails before the measurements rather than after them
        with progress("calibrating") as stage, refusals_as_unmeasurable():
            calibration = Calibration(local_machine(), budget_s, stage.at)
            measured = calibration.machine()
            today = datetime.datetime.now(datetime.UTC)
            provenance = f"measured here by placer calibrate, TensorFlow {version}, {today:%Y-%m-%d}"
            provenance += (
                f", but for {', '.join(calibration.unmeasured)}, which could not be measured" if calibration.unmeasured else ""
            )
            machine = replace(measured, provenance=provenance)
            save_calibration(machine)  # an interruption from here on loses nothing
            Store().put(Row(device.model, version, op, figures) for device, op, figures in calibration.op_measurements)
    except UnmeasurableError as error:
        raise PlacerError(f"this machine cannot be measured: {error}") from error
    except (StoreError, OSError) as error:
        raise PlacerError(f"what is measured cannot be kept: {error}") from error
    return machine
