"""Makes the shipped op graphs from real functions at full size; or prints the sources of their costs.

Run: python -m tests.benchmarks.ship_graphs [name ...]
     python -m tests.benchmarks.ship_graphs --costs
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import keras

import placer
from cost_models.auto import shipped_model
from cost_models.machine_files import load_machine
from examples.workloads import Size, Workload, detector, encoder_training, lstm_then_wide, recommender_training, resnet50_training
from placer.graph import shipped
from placer.options import Options
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from tests.benchmarks.more_workloads import attention_training, augmented_convolutions, decoding

SHIPPED: dict[str, Callable[[Size], Workload]] = {
    "resnet50_training": resnet50_training,
    "encoder_training": encoder_training,
    "lstm_then_wide": lstm_then_wide,
    "detector": detector,
    "recommender_training": recommender_training,
    "decoding": decoding,
    "attention_training": attention_training,
    "augmented_convolutions": augmented_convolutions,
}
FOLDER = Path(shipped.__file__).parent / shipped.FOLDER


def main(names: list[str]) -> None:
    for name in names:
        keras.utils.clear_session()  # or layers would be numbered on from the graph before
        work = SHIPPED[name]("full")
        graph = replace(placer.build_graph(work.fn, *work.args), name=name)
        data = shipped.packed(graph)
        (FOLDER / (name + shipped.ENDING)).write_bytes(data)
        print(f"{name:24s} {len(graph):6d} ops {len(data):7d} bytes", flush=True)


def costs() -> None:
    """Rows of a table: for each graph the share of all ops' time on the GPU by where it comes from."""
    machine = load_machine("h100")
    for name in SHIPPED:
        graph = shipped.shipped_graph(name)
        priced = formulate(graph, constrain(graph, machine, Options()), shipped_model(), machine)
        time_ns: Counter[str] = Counter()
        for op, row in enumerate(priced.costs.signature.tolist()):
            if row >= 0:
                time_ns[priced.costs.sources[row][1]] += int(priced.problem.ops.time_ns[op, 1])
        shares = [f"{time_ns[source] / time_ns.total():.0%}" for source in ("measured", "analytic")]
        print(f"| `{name}` | {len(graph)} | {' | '.join(shares)} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--costs"]:
        costs()
    else:
        main(sys.argv[1:] or list(SHIPPED))
