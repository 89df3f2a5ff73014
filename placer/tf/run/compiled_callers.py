"""The functions of this process that XLA compiles as a whole and that call a placed function."""

from __future__ import annotations

from collections.abc import Iterable

from placer.plan.call_plan import CallPlan
from placer.tf._private.copied_graphs import CopiedGraph
from placer.tf._private.functions import AtomicFunction, known_graph, must_compile
from placer.tf._private.live_objects import live_objects


def compiled_callers(plans: Iterable[CallPlan]) -> list[str]:
    """The compiled functions that call, directly or through others, a function that runs by one of these plans.

    A call that is traced inside such a function runs unplaced. But a function that calls the placed one may have been traced
    before, and then be called by a compiled one: the call of the placed function is not traced again.

    Returns:
        Names in quotes, sorted. Functions that no longer exist are absent.
    """
    ids = {id(plan) for plan in plans}

    def is_placed(function: AtomicFunction) -> bool:
        graph = known_graph(function)
        return isinstance(graph, CopiedGraph) and id(graph.plan) in ids

    callers = [function for function in live_objects(AtomicFunction) if any(map(is_placed, function.children))]
    return sorted({repr(function.graph.name) for function in callers if must_compile(function)})
