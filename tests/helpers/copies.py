"""Which tensors TensorFlow sent between devices, read off the partitions of the functions that it ran."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

CROSSING = re.compile(r"(.+)/crossing(\d+)_to_\w+")
"""What placer calls the node by which a tensor crosses."""


def copies(graphs: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    """Tensor, source and destination of every copy that a placed function makes; control edges copy nothing.

    Where Grappler merged equal ops, one copy is that of each of them.

    Args:
        graphs: the partitions of a function, a GraphDef a device.
    """
    for graph in graphs:
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            crossing = CROSSING.fullmatch(node.name)
            source = nodes.get(node.input[0].partition(":")[0]) if crossing else None
            if crossing and source and source.op in ("_Recv", "_HostRecv"):
                yield f"{crossing[1]}:{crossing[2]}", *_ends(source)
            if node.op in ("_Send", "_HostSend") and (sender := nodes.get(node.input[0].partition(":")[0])):
                crossing = CROSSING.fullmatch(sender.name)
                if crossing:
                    yield f"{crossing[1]}:{crossing[2]}", *_ends(node)
                elif sender.op == "_Arg":
                    yield f"{sender.name}:0", *_ends(node)


def _ends(node: Any) -> tuple[str, str]:
    src, dst = (tf.DeviceSpec.from_string(node.attr[key].s.decode()) for key in ("send_device", "recv_device"))
    return f"{src.device_type}:{src.device_index}", f"{dst.device_type}:{dst.device_index}"
