"""TensorFlow and OR-Tools in one process, imported in either order: solvers must not take the process down."""

from __future__ import annotations

import subprocess
import sys

import pytest

TENSORFLOW = """
import tensorflow as tf
"""
ORTOOLS = """
from placer.solvers.primitives.loaded_ortools import cp_model, max_flow, model_builder
"""
USE = """
def solve():
    model = cp_model.CpModel()
    x = [model.new_bool_var(f"x{i}") for i in range(20)]
    model.add(sum(i * v for i, v in enumerate(x)) <= 50)
    model.maximize(sum((3 * i % 7) * v for i, v in enumerate(x)))
    solver = cp_model.CpSolver()
    assert solver.solve(model) == cp_model.OPTIMAL
    flow = max_flow.SimpleMaxFlow()
    for tail, head, capacity in ((0, 1, 5), (0, 2, 4), (1, 3, 3), (2, 3, 6), (1, 2, 2)):
        flow.add_arc_with_capacity(tail, head, capacity)
    assert flow.solve(0, 3) == flow.OPTIMAL
    program = model_builder.Model()
    y = [program.new_num_var(0, 1, f"y{i}") for i in range(20)]
    program.add(sum(i * v for i, v in enumerate(y)) <= 50)
    program.maximize(sum((3 * i % 7) * v for i, v in enumerate(y)))
    simplex = model_builder.Solver("GLOP")
    assert simplex.solve(program) == model_builder.SolveStatus.OPTIMAL and simplex.objective_value >= solver.objective_value
    return round(solver.objective_value), flow.optimal_flow()

def step():
    return float(tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))(tf.ones([8, 8])))

answers = [solve(), step(), solve(), step()]
assert answers[:2] == answers[2:] and answers[1] == 512.0, answers
assert answers[0][1] == 9, answers
print("alive")
"""


@pytest.mark.parametrize("imports", [TENSORFLOW + ORTOOLS, ORTOOLS + TENSORFLOW], ids=["tensorflow-first", "ortools-first"])
def test_both_live_in_one_process(imports: str) -> None:
    child = subprocess.run([sys.executable, "-c", imports + USE], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout) == (0, "alive\n"), child.stderr
