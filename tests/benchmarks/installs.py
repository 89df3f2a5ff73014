"""Installs the wheel in new environments, with the oldest and with the newest dependencies that it allows, and uses it there.

    python -m tests.benchmarks.installs [3.11 3.13]

For each version of Python that is named, this installs the wheel in two environments: one with the oldest dependencies that its
metadata allows (`--resolution lowest-direct` of uv), one with the newest. In each, dependencies are checked, a function is
planned and run, and an example and the demo run. `make installs` installs uv and runs this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
USE = """
import importlib.metadata as metadata
import tensorflow as tf
import placer

@placer.optimized_placement
def step(x, w):
    return tf.reduce_sum(tf.nn.relu(x @ w), axis=1)

assert float(step(tf.ones([64, 256]), tf.ones([256, 256]))[0]) == 65536.0
graph = placer.build_graph(step, tf.ones([64, 256]), tf.ones([256, 256]), devices="h100")
placer.solve(graph, "h100", solver="cp_sat", objective="total_cost")
names = ("fastjsonschema", "networkx", "numpy", "ortools", "tensorflow")
print("installed:", ", ".join(f"{name} {metadata.version(name)}" for name in names))
"""


def main() -> None:
    pythons = sys.argv[1:] or ["3.11", "3.13"]
    with tempfile.TemporaryDirectory() as folder:
        dist = Path(folder) / "dist"
        run([str(UV), "build", "--quiet", "--out-dir", str(dist), str(ROOT)], Path(folder))
        for file in sorted(dist.glob("placer-*")):
            print(f"{file.name}: {file.stat().st_size} bytes", flush=True)
        wheel = next(dist.glob("*.whl"))
        for python in pythons:
            for dependencies, resolution in (("oldest", "lowest-direct"), ("newest", "highest")):
                started = time.monotonic()
                installed = checked_install(wheel, python, resolution, Path(folder) / f"{python}-{dependencies}")
                seconds = time.monotonic() - started
                print(f"Python {python}, {dependencies}: passed in {seconds:.0f} s; {installed}", flush=True)


def checked_install(wheel: Path, python: str, resolution: str, folder: Path) -> str:
    """Installs the wheel in a new environment in `folder` and uses it; returns what is installed, in words."""
    run([str(UV), "venv", "--quiet", "--python", python, str(folder)], wheel.parent)
    bin_folder = folder / "bin"
    install = [str(UV), "pip", "install", "--quiet", "--python", str(bin_folder / "python"), "--resolution", resolution]
    run([*install, "--requirements", str(ROOT / "pyproject.toml"), str(wheel)], folder)
    run([str(UV), "pip", "check", "--quiet", "--python", str(bin_folder / "python")], folder)
    printed = run([str(bin_folder / "python"), "-c", USE], folder)
    run([str(bin_folder / "placer"), "examples", "--out", "."], folder)
    run([str(bin_folder / "python"), "-m", "examples.training_step"], folder)
    run([str(bin_folder / "placer"), "demo"], folder)
    return next(line for line in printed.splitlines() if line.startswith("installed:"))


def run(command: list[str], folder: Path) -> str:
    """Runs a command outside the repository and returns what it prints. Ends the script if the command fails."""
    environment = {**os.environ, "PLACER_CACHE": os.devnull, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
