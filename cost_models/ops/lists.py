"""Lists of tensors, as loops keep them for their gradients."""

from __future__ import annotations

from cost_models.ops.optype import OpType
from cost_models.ops.table import register
from cost_models.ops.work import host_only, moves

register("EmptyTensorList TensorListReserve", OpType(work=host_only, makes_list=True))
register("TensorListFromTensor", OpType(work=moves(1), makes_list=True, list_element=0))
register("TensorListPushBack", OpType(work=host_only, list_element=1, passes_on=True))
register("TensorListPushBackBatch", OpType(list_element=1))
register("TensorListSetItem", OpType(work=host_only, list_element=2))
register("TensorListPopBack", OpType(work=host_only, passes_on=True))
register("TensorListLength TensorListElementShape TensorListGetItem TensorListResize TensorListSplit", OpType(work=host_only))
register("TensorListStack TensorListConcatV2 TensorListGather TensorListScatterV2", OpType(work=moves(1)))
