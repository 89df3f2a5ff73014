"""SIGINT and SIGTERM during and after searches of CP-SAT: each test is a child process that gets the signal."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import placer
from placer.solvers.primitives import or_tools
from tests.helpers import forked

START = """
import os, signal, threading, time
from placer.problem.validate import validate
from placer.research.instances.families import synthetic
from placer.solvers.exact.cp_sat import CpSat
from placer.solvers.heuristics.greedy import greedy_assignment
from placer.solvers.primitives.cp_model import Model

started = threading.Event()

def long_search():
    '''A search of ten minutes.'''
    problem = synthetic("layered", ops=600, gpus=2, memory=0.3)
    model = Model(problem)
    started.set()
    model.minimise(greedy_assignment(problem), 600.0, 0, proving=PROVING)

def short_search():
    problem = synthetic("layered", ops=20, gpus=2, memory=0.6)
    solution = CpSat().solve(problem, "total_cost")
    assert solution.assignment is not None and validate(problem, solution.assignment, solution.objective_ns).ok
    return solution.assignment.device.tolist()

def send(number):
    '''Sends this process a signal a second after the long search started.'''
    def wait_and_send():
        started.wait()
        time.sleep(1)
        os.kill(os.getpid(), number)
    threading.Thread(target=wait_and_send).start()
"""

AFTER = """
def on_signal(number, frame):
    seen.append(number)

seen, default = [], signal.getsignal(signal.SIGINT)
threads = [threading.Thread(target=short_search)] if THREAD else []
for thread in threads:
    thread.start()
    thread.join()
if not THREAD:
    short_search()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
    raise SystemExit("no interrupt came")
except KeyboardInterrupt:
    pass
finally:
    print("finally")
signal.signal(signal.SIGINT, on_signal)
short_search()
os.kill(os.getpid(), signal.SIGINT)
while not seen:
    time.sleep(0.01)
assert signal.getsignal(signal.SIGINT) is on_signal
print("alive")
"""

DURING = """
before = short_search()
send(signal.SIGINT)
try:
    long_search()
    raise SystemExit("no interrupt came")
except KeyboardInterrupt:
    print("interrupted")
assert short_search() == before
print("alive", threading.active_count())
"""

HANDLER_GOES_ON = """
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
signal.signal(signal.SIGTERM, lambda number, frame: exit("terminated" if seen else "no interrupt came"))
def interrupt_then_terminate():
    started.wait()
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
    while not seen:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=interrupt_then_terminate).start()
long_search()
"""

OTHER_THREAD = """
found = []
thread = threading.Thread(target=lambda: found.append(short_search()))
thread.start()
try:
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    thread.join()
assert found == [short_search()]
print("alive")
"""

FIRST_CALL = """
import tensorflow as tf
import placer

class InterruptedOnce:
    name = "interrupted_once"
    unsupported, cite = CpSat().unsupported, CpSat().cite

    def solve(self, problem, objective, **given):
        if not started.is_set():
            send(signal.SIGINT)
            long_search()
        return CpSat().solve(problem, objective)

def plain(x):
    return tf.reduce_sum(tf.matmul(x, x))

placed = placer.place(tf.function(plain), solver=InterruptedOnce(), objective="total_cost")
x = tf.eye(4)
try:
    placed(x)
    raise SystemExit("no interrupt came")
except KeyboardInterrupt:
    print("interrupted")
assert float(placed(x)) == float(plain(x)) and placed.placement is not None
print("alive")
"""

TERMINATED = """
send(signal.SIGTERM)
long_search()
"""


def child(script: str, *, proving: bool = False, thread: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs the script. The long search takes ten minutes if no signal stops it, and the child a few seconds if one does."""
    script = f"PROVING, THREAD = {proving}, {thread}\n{START}{script}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("thread", [False, True], ids=["main-thread", "other-thread"])
def test_handlers_work_after_a_search(thread: bool) -> None:
    ended = child(AFTER, thread=thread)
    assert (ended.returncode, ended.stdout.split()) == (0, ["finally", "alive"]), ended.stderr


@pytest.mark.parametrize("proving", [False, True], ids=["one-search", "two-searches"])
def test_an_interrupt_stops_the_search(proving: bool) -> None:
    """The next search gives the answer of the one before, and no thread is left."""
    ended = child(DURING, proving=proving)
    assert (ended.returncode, ended.stdout.split()) == (0, ["interrupted", "alive", "1"]), ended.stderr


def test_after_an_interrupted_first_call_the_next_one_plans() -> None:
    ended = forked.run("-c", f"PROVING = False\n{START}{FIRST_CALL}", timeout_s=120)
    assert (ended.returncode, ended.stdout.split()) == (0, ["interrupted", "alive"]), ended.stderr


def test_a_handler_that_does_not_raise_lets_the_search_go_on() -> None:
    """Until another handler ends the program."""
    ended = child(HANDLER_GOES_ON, proving=True)
    assert (ended.returncode, ended.stderr) == (1, "terminated\n")


def test_a_search_in_another_thread_does_not_keep_the_interrupt_from_the_main_thread() -> None:
    ended = child(OTHER_THREAD)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


def test_termination_ends_the_process() -> None:
    assert child(TERMINATED).returncode == -signal.SIGTERM


def test_one_module_runs_the_solvers_of_or_tools() -> None:
    """A solver that is run elsewhere could take over the signals."""
    door, made = Path(or_tools.__file__), set()
    for file in Path(placer.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"CpSolver", "SimpleMaxFlow", "SimpleMinCostFlow", "Solver"}:
                made.add(file)
    assert made == {door}
