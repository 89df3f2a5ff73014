"""Plan for a machine that is not here: a detector on one NVIDIA H100, worked out on a laptop.

Run it with `python -m examples.plan_for_another_machine`.
"""

import tempfile
from pathlib import Path

import placer
from examples.workloads import detector

work = detector()
graph = placer.build_graph(placer.trace(work.fn, *work.args))  # traced, never run
placement = placer.solve(graph, "h100")
print(placement.summary())

suppression = next(name for name in placement.ops if name.endswith("NonMaxSuppressionV3"))
print(placement.explain(suppression))

plan = Path(tempfile.mkdtemp()) / "detector_h100.json"
placement.save(plan)
print(f"there: placer.apply(detector().fn, placer.Placement.load({str(plan)!r}))")
