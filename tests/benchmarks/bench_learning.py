"""Makes the table and the picture of docs/learning.md: policies that were trained on some problems of a family place others.

Run: python -m tests.benchmarks.bench_learning [--episodes 600] [--problems 10] [--write]

Policies are trained on problems of 60 ops with seeds 0 to 99, and place problems with other seeds, of 60 and of 120 ops. Step
times are relative to the mean of random devices. With --write the table and the picture replace those of the page.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import placer
from cost_models.files import write_whole
from placer.problem.problem import Assignment, PlacementProblem
from placer.research.arena.plots import styles
from placer.research.env import PlacementEnv
from placer.research.instances.families import SHAPES, synthetic
from placer.research.learning.policy import Policy, play
from placer.research.learning.solver import TRAINERS, Learner
from placer.research.learning.training import Training, train
from placer.solvers.registry import solver

DOCS = Path(__file__).parents[2] / "docs"
MACHINES = (("one GPU", {"gpus": 1}), ("two GPUs, half of the memory", {"gpus": 2, "memory": 0.5}))
TRAINED, LARGER, POOL, FIRST_HELD_OUT = 60, 120, 100, 1000
DRAWN = ("layered", 1)
"""The family and the machine whose curves are drawn."""
RANDOM_EPISODES = 10
SMOOTHED = 40
"""Episodes that a point of a curve is the mean of."""


def held_out(shape: str, ops: int, count: int, **machine: float) -> list[PlacementProblem]:
    """Problems that no policy was trained on."""
    return [synthetic(shape, ops=ops, seed=FIRST_HELD_OUT + k, **machine) for k in range(count)]  # type: ignore[arg-type]


@cache
def random_log_ns(problem: PlacementProblem) -> float:
    """The mean logarithm of the step time with random devices."""
    rng = np.random.default_rng(0)
    return -float(np.mean([play(PlacementEnv(problem), Policy(), rng).score for _ in range(RANDOM_EPISODES)]))


def relative(problems: list[PlacementProblem], assign: Callable[[PlacementProblem], Assignment | None]) -> float:
    """The geometric mean of step times over those of random devices; NaN if an assignment misses a limit."""
    logs = []
    for problem in problems:
        assignment = assign(problem)
        if assignment is None or not (found := placer.evaluate(problem, assignment)).feasible:
            return math.nan
        logs.append(math.log(found.step_time_ns) - random_log_ns(problem))
    return math.exp(float(np.mean(logs)))


def trained_on(shape: str, name: str, episodes: int, **machine: float) -> Training:
    """A policy that was trained on problems of a family."""
    pool = [synthetic(shape, ops=TRAINED, seed=seed, **machine) for seed in range(POOL)]  # type: ignore[arg-type]
    return train(TRAINERS[name][0], PlacementEnv(lambda rng: pool[int(rng.integers(POOL))]), episodes=episodes)


def by_name(name: str) -> Callable[[PlacementProblem], Assignment | None]:
    """What a registered solver assigns within half a second."""
    return lambda problem: solver(name).solve(problem, "step_time", time_limit_s=0.5).assignment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=600)
    parser.add_argument("--problems", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    heads = ["family", *(f"`{name}`{size}" for size in ("", f", {LARGER} ops") for name in TRAINERS)]
    heads += [f"`{name}` on the problem itself" for name in TRAINERS] + ["`earliest_finish`", "`heft`", "`step_time`"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    curves: dict[str, Training] = {}
    for machine_name, machine in MACHINES:
        for shape in SHAPES:
            policies = {name: trained_on(shape, name, asked.episodes, **machine) for name in TRAINERS}
            if (shape, machine["gpus"]) == DRAWN:
                curves = policies
            others, larger = (held_out(shape, ops, asked.problems, **machine) for ops in (TRAINED, LARGER))
            cells = [relative(problems, policies[name].policy.assign) for problems in (others, larger) for name in TRAINERS]
            for name in TRAINERS:
                learner = Learner(name)  # type: ignore[arg-type]
                cells.append(relative(others, lambda p, learner=learner: learner.solve(p, "step_time").assignment))  # type: ignore[misc]
            cells += [relative(others, by_name(name)) for name in ("earliest_finish", "heft", "step_time")]
            row = [f"{shape}, {machine_name}", *("–" if math.isnan(cell) else f"{cell:.2f}" for cell in cells)]
            lines.append(f"| {' | '.join(row)} |")
            print(lines[-1], flush=True)
    if asked.write:
        page = (DOCS / "learning.md").read_text()
        page, count = re.subn(r"(<!-- learned -->\n).*?(?=\n\n|\Z)", lambda m: m[1] + "\n".join(lines), page, flags=re.DOTALL)
        assert count == 1
        write_whole(DOCS / "learning.md", page.encode())
        draw(curves, DOCS / "images" / "learning.svg")


def draw(curves: dict[str, Training], path: Path) -> None:
    """The step time over episodes, each point a mean of `SMOOTHED`; that of the first points is 1."""
    import matplotlib

    figure = Figure(figsize=(6.0, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for name, style in styles(curves).items():
        blocks = curves[name].scores[: len(curves[name].scores) // SMOOTHED * SMOOTHED].reshape(-1, SMOOTHED).mean(axis=1)
        axes.plot(np.arange(1, len(blocks) + 1) * SMOOTHED, np.exp(blocks[0] - blocks), label=name, **style)
    axes.set(xlabel="episodes", ylabel=f"step time / first {SMOOTHED} episodes")
    axes.grid(alpha=0.3)
    axes.legend()
    with matplotlib.rc_context({"svg.hashsalt": "placer", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
