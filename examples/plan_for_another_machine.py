"""Plans an object detector for a machine with an NVIDIA H100, on any computer.

Run it with `python -m examples.plan_for_another_machine`.
"""

import tempfile
from pathlib import Path

import placer
from examples.workloads import detector

work = detector()
graph = placer.build_graph(work.fn, *work.args, devices="h100")  # the function is traced and does not run
placement = placer.solve(graph, "h100")
print(placement.summary())

suppression = next(name for name in placement.ops if name.endswith("NonMaxSuppressionV3"))
print(placement.explain(suppression))

plan = Path(tempfile.mkdtemp()) / "detector_h100.json"
placement.save(plan)
print(f"On that machine: placer.apply(detector().fn, placer.Placement.load({str(plan)!r}))")
