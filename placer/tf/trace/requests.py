"""The device that an op's code requests, and the plan or the distribution strategy by which it does."""

from __future__ import annotations

from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.tf._private.copied_graphs import CopiedGraph
from placer.tf._private.func_graphs import made_by_strategy
from placer.tf.trace.bodies import Body, merged_device


def requested_device(body: Body, node: NodeDef) -> str:
    """The device string of an op, completed by the scopes of the calls around it; "" where there is none."""
    return merged_device(node.device, body.scope)


def planned_by(body: Body, name: str) -> tuple[str, str]:
    """The placed function by whose plan an op has its device, and the plan's reason; twice "" for an op in no such function."""
    around: Body | None = body
    while around is not None:
        plan = around.graph.plan if isinstance(around.graph, CopiedGraph) else None
        if plan is not None:
            return plan.placement.graph.name, plan.placement.why(name).text if name in plan.placement.graph.graph else ""
        around = around.parent
    return "", ""


def is_of_strategy(body: Body, name: str) -> bool:
    """Whether a distribution strategy has put an op on a device: one of a replica, or one that joins what replicas computed.

    The ops of a function that a replica calls count, too.
    """
    if not requested_device(body, body.nodes[name]):
        return False
    operation = body.operations[name]
    return body.is_of_strategy or (bool(operation.device) and made_by_strategy(operation))
