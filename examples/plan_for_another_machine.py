"""Plan for a machine that is not here: a detector on one NVIDIA H100, worked out on a laptop.

Run it with `python -m examples.plan_for_another_machine`.
"""

import placer
from examples.workloads import detector

work = detector()
graph = placer.build_graph(placer.trace(work.fn, *work.args))  # traced, never run
placement = placer.solve(graph, "h100")
print(placement.summary())

suppression = next(name for name in placement.ops if name.endswith("NonMaxSuppressionV3"))
print(placement.explain(suppression))

placement.save("detector_h100.json")  # there: placer.apply(detector().fn, placer.Placement.load("detector_h100.json"))
