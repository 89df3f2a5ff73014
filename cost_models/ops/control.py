"""Constants, arguments, control flow, calls, and what a function says or runs besides computing."""

from __future__ import annotations

from cost_models.base import OpSignature
from cost_models.ops.optype import OpType, is_any_input, is_input
from cost_models.ops.table import register
from cost_models.ops.work import Work, host_only

_ON_HOST = OpType(work=host_only)


def _merge_and_switch(op: OpSignature) -> Work:
    """TensorFlow makes a Merge and a Switch of it."""
    return Work(kernels=0, nodes=2)


register("Placeholder PlaceholderWithDefault _Arg _Retval Const NoOp ControlTrigger DisableCopyOnRead", _ON_HOST)
register("Assert Print PrintV2 Timestamp", _ON_HOST)
register("Enter Exit Merge Switch LoopCond RefEnter RefExit RefMerge RefSwitch RefNextIteration", _ON_HOST)

# Nodes of the flattened graph: a variable of a loop, the value that a loop passes to its next round, the result of a branch.
register("LoopVariable", OpType(work=host_only, view=is_input, view_work=_merge_and_switch, passes_on=True))
register("NextIteration", OpType(work=host_only, view=is_input, passes_on=True))
register("BranchMerge", OpType(work=host_only, view=is_any_input, passes_on=True))

register("While", OpType(work=host_only, control="loop", memory_by_dtype=True))
register("StatelessWhile For", OpType(work=host_only, control="loop"))
register("If StatelessIf Case StatelessCase", OpType(work=host_only, control="branch"))
register("PartitionedCall StatefulPartitionedCall", OpType(work=host_only, control="call", memory_by_dtype=True))
register("SymbolicGradient", OpType(control="gradient", memory_by_dtype=True))

register("EagerPyFunc PyFunc", OpType(unseen_code="python"))
register("PyFuncStateless", OpType(unseen_code="python", side_effects=True))
register("Abort Batch Unbatch UnbatchGrad Debug*", OpType(side_effects=True))
register("Collective* Nccl* TPU* _Send* _Recv* _HostSend* _HostRecv*", OpType(names_partners=True))
