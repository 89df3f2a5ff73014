"""Measuring this machine once, so that every later plan for it knows it."""

from __future__ import annotations

import datetime
import itertools
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
    """Measures the devices of this process and the links between them, and keeps the result in the user's cache folder.

    Later plans for the devices that are here use it without being told. Beside the constants of the machine, ops of common
    types are measured and stored, for costs between and around them; see `placer.verbs.profile.profile` for those of a function.

    Args:
        budget_s: how long it may take, about. The constants are measured however short it is, as each is what the others
            leave out: that takes some 10 s at least, longer on a busy machine or with GPUs. Common ops have the rest; the
            provenance says where there is none.

    Returns:
        The machine.

    Raises:
        OptionError: a budget that is no positive number.
        PlacerError: the cache folder cannot be written, or a device has no memory free.
    """
    check_seconds("budget_s", budget_s)
    from cost_models.measuring.calibration import Calibration
    from cost_models.measuring.chains import refusals_as_unmeasurable
    from placer.tf.devices import local_machine

    version = installed_tensorflow()
    try:
        Store().put([])  # what cannot be kept is told before the work
        with progress("calibrating") as stage, refusals_as_unmeasurable():
            calibration = Calibration(local_machine(), budget_s, stage.at)
            found = calibration.machine()
            today = datetime.datetime.now(datetime.UTC)
            told = f"measured here by placer calibrate, TensorFlow {version}, {today:%Y-%m-%d}"
            told += (
                f", but for {', '.join(calibration.unmeasured)}, which could not be measured" if calibration.unmeasured else ""
            )
            if calibration.spent_s > budget_s:
                told += f"; no common ops: the constants took {calibration.spent_s:.0f} s, the budget was {budget_s:g} s"
            machine = replace(found, provenance=told)
            save_calibration(machine)  # what is stopped from here on keeps what it has
            for device, op, figures in itertools.chain(calibration.op_measurements, calibration.common_ops(machine)):
                Store().put([Row(device.model, version, op, figures)])
    except UnmeasurableError as error:
        raise PlacerError(f"this machine cannot be measured: {error}") from error
    except (StoreError, OSError) as error:
        raise PlacerError(f"what is measured cannot be kept: {error}") from error
    return machine
