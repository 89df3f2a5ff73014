"""A call of a function that also reports its sizes, rounds, branches and elements of datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placer.graph.seen import Seen
from placer.plan.call_plan import CallPlan
from placer.tf.rewrite.reporting import Reports
from placer.tf.rewrite.rewriting import rewrite, rewrite_by_plan
from placer.tf.run.exhausted import report
from placer.tf.trace.bodies import BRANCHES, LOOPS
from placer.tf.trace.dataset_bodies import READS_ALL
from placer.tf.trace.known_sizes import KnownSizes
from placer.tf.trace.op_types import is_stateful
from placer.tf.trace.tracing import Trace


class ReportingCall:
    """A call that reports. It runs a private copy of the function.

    Args:
        trace: of the function.
        sizes: what is known of its sizes.
        plan: what it runs by; None for a call that runs unplaced.

    Raises:
        RewriteError: the function cannot be copied.
    """

    def __init__(self, trace: Trace, sizes: KnownSizes | None = None, plan: CallPlan | None = None) -> None:
        self._reports = reports = Reports(trace, (sizes or KnownSizes(trace)).open_outputs())
        self._concrete = rewrite(trace, None, reports) if plan is None else rewrite_by_plan(trace, plan, report, reports)

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Seen]:
        """The function's results and what the run had."""
        with self._reports.collecting():
            results = self._concrete(*args, **kwargs)
            return results, self._reports.seen()


def may_be_undecided(trace: Trace, sizes: KnownSizes) -> bool:
    """Whether sizes, rounds or branches can be undecided: a quick test, before the graph is read."""
    ops = {node.op for body in trace.root.walk() for node in body.nodes.values()}
    return bool(sizes.open_outputs()) or not ops.isdisjoint((*LOOPS, *BRANCHES, READS_ALL))


def starts_anew(trace: Trace) -> bool:
    """Whether a copy of a function starts anew where the function itself would go on.

    Ops that draw random numbers by a seed, and ops that make a resource, keep state that belongs to one copy of the graph.
    """
    for body in trace.root.walk():
        for name, node in body.nodes.items():
            seeds = [node.attr[key].i for key in ("seed", "seed2") if key in node.attr]
            if is_stateful(node.op) and any(seeds):
                return True
            op = body.operations[name]
            makes_handle = name not in body.inputs and not any(t.dtype.name == "resource" for t in op.inputs)
            makes_handle &= any(t.dtype.name == "resource" for t in op.outputs) and name not in body.children
            shared = node.op.startswith("Anonymous") or ("shared_name" in node.attr and bool(node.attr["shared_name"].s))
            if makes_handle and not shared:
                return True
    return False
