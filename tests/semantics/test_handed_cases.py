"""The whole harness over small functions behind public reports, where a checkout has them beside it."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from tests.helpers.harness import Program, check, left_alone, plan

FOLDER = os.environ.get("PLACER_CASES", Path(__file__).parents[3] / "shared" / "cases")
CASES = sorted(Path(FOLDER).glob("[0-9]*.py"))
LEFT_ALONE = {"56_dtensor_inputs": "DTensor"}


@pytest.mark.skipif(not CASES, reason="no cases beside this checkout")
@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_handed_case_holds(path: Path) -> None:
    names = runpy.run_path(str(path))

    def build() -> Program:
        keras.utils.set_random_seed(0)
        fn, args = names["build"]()
        kept = tf.nest.flatten(getattr(fn, "keep_alive", ()))
        state = [v for v in kept if isinstance(v, tf.Variable)]
        return Program(fn=fn, args=args, state=state)

    if path.stem in LEFT_ALONE:
        left_alone(build, LEFT_ALONE[path.stem])
    elif names.get("RUNS_ON_CPU", True):
        check(build)
    else:
        plan(build())
