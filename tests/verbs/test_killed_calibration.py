"""A calibration that is killed: what was stored before is whole, and the next calibration ends."""

from __future__ import annotations

import os
import signal
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import placer
from cost_models.base import OpSignature, TensorSpec
from cost_models.calibrations import calibration_file, save_calibration
from cost_models.machine_files import load_machine
from cost_models.machines import Machine
from cost_models.measurements import Measurement, Row
from cost_models.measuring.calibration import Calibration
from cost_models.store import Store
from placer.tf.devices import local_machine
from tests.helpers import forked

OPS = [OpSignature("Relu", (TensorSpec("float32", (n,)),), (TensorSpec("float32", (n,)),)) for n in range(1, 21)]
MEASURED = Measurement(9_000, 3_000, 6_000, 0.1)


def measured(calibration: Calibration) -> Machine:
    """In the place of `Calibration.machine`, which takes at least 10 s."""
    calibration.op_measurements += ((calibration.uncalibrated.devices[0], op, MEASURED) for op in OPS)
    return replace(calibration.uncalibrated, call_overhead_ns=4_321)


KILLED = """
import os, signal, sys
from pathlib import Path
import placer
from cost_models.measuring.calibration import Calibration
from cost_models.store import Store
from tests.verbs import test_killed_calibration as test

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

Calibration.machine = test.measured
if sys.argv[1] == "constants":
    Calibration.machine = killed
elif sys.argv[1] == "file":
    Path.replace = killed
elif sys.argv[1] == "ops":
    Store.put = lambda store, rows: killed() if list(rows) else None
placer.calibrate(1)
"""


@pytest.mark.parametrize("where", ["constants", "file", "ops"])
def test_what_was_stored_is_whole_and_the_next_calibration_ends(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    before = replace(local_machine(), call_overhead_ns=1_234)
    save_calibration(before)
    Store().put([Row("another device", "2.21.0", OPS[0], MEASURED)])
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ended = forked.run("-c", KILLED, where, environment=environment)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert local_machine().call_overhead_ns == load_machine(calibration_file(before)).call_overhead_ns
        assert local_machine().call_overhead_ns == (4_321 if where == "ops" else 1_234)
        assert sum(Store().counts().values()) == 1
        monkeypatch.setattr(Calibration, "machine", measured)
        placer.calibrate(1)
        assert local_machine().call_overhead_ns == 4_321
    assert sum(Store().counts().values()) == 1 + len(OPS)
