"""The ops of a placement as a table, filtered and sorted."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from placer.common.device_spec import parse
from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError
from placer.plan.placement import Placement

ORDERS: dict[str, Any] = {
    "order": lambda row: 0,
    "time": lambda row: -row["time_ns"],
    "bytes": lambda row: -row["output_bytes"],
    "name": lambda row: row["name"],
}
"""Sort keys by name. Rows with equal keys stay in execution order; with "order", all do."""


def rows(
    placement: Placement,
    *,
    device: str | None = None,
    op_type: str | None = None,
    scope: str | None = None,
    crossing: bool = False,
    flagged: bool = False,
    moved: bool = False,
    sort: str = "order",
) -> list[dict[str, Any]]:
    """The rows of `Placement.records` that pass every filter given.

    Args:
        placement: whose ops.
        device: a device spec, such as "GPU" or "GPU:0".
        op_type: a glob of op types.
        scope: the scope that names are in, or a glob of whole names.
        crossing: only ops that send a tensor to another device or read one from there.
        flagged: only ops with flags: ops that keep state, and ops whose results depend on the device.
        moved: only ops on another device than in TensorFlow's own placement.
        sort: "order" (of execution), "time" or "bytes" (largest first) or "name".

    Raises:
        OptionError: a device that the plan does not have, no text, or no such order.
    """
    if not (isinstance(sort, str) and sort in ORDERS):
        raise OptionError(f"sort={sort!r} is none of {', '.join(map(repr, ORDERS))}.")
    for name, pattern in (("op_type", op_type), ("scope", scope)):
        if not (pattern is None or isinstance(pattern, str)):
            raise OptionError(f"{name}={pattern!r} is no text, such as {'MatMul' if name == 'op_type' else 'encoder/layer_3'!r}.")
    devices = placement.devices if device is None else [name for name in placement.devices if parse(device).matches(name)]
    if not devices:
        raise OptionError(f"device={device!r} is none of the plan's: {', '.join(placement.devices)}.")
    prefix = None if scope is None else scope.strip("/")
    passing = [
        row
        for row in placement.records()
        if row["device"] in devices
        and (op_type is None or fnmatchcase(row["op_type"], op_type))
        and (prefix is None or row["name"] == prefix or row["name"].startswith(f"{prefix}/") or fnmatchcase(row["name"], prefix))
        and not (crossing and not row["crosses"])
        and not (flagged and not row["flags"])
        and not (moved and row["default_device"] in ("", row["device"]))
    ]
    return sorted(passing, key=ORDERS[sort])


def ops(
    placement: Placement,
    *,
    limit: int | None = None,
    device: str | None = None,
    op_type: str | None = None,
    scope: str | None = None,
    crossing: bool = False,
    flagged: bool = False,
    moved: bool = False,
    sort: str = "order",
) -> str:
    """A line for each of the first `limit` ops of `rows`, and a last line with the totals of all of them.

    Raises:
        OptionError: as `rows`, or the limit is no whole number of at least 0.
    """
    if isinstance(limit, bool) or not (limit is None or (isinstance(limit, int) and limit >= 0)):
        raise OptionError(f"limit={limit!r} is not a whole number of at least 0.")
    passing = rows(
        placement, device=device, op_type=op_type, scope=scope, crossing=crossing, flagged=flagged, moved=moved, sort=sort
    )
    shown = passing[:limit]
    lines = [
        [
            row["device"],
            row["op_type"],
            format_ns(row["time_ns"]),
            format_bytes(row["output_bytes"]),
            format_bytes(row["sent_bytes"]) if row["sent_bytes"] else "",
            row["reason_kind"],
            row["flags"],
            row["name"],
        ]
        for row in shown
    ]
    head = ["device", "op type", "time", "outputs", "sent", "why", "flags", "op"]
    left_aligned = {"op type", "why", "flags", "op"}
    if not any(row["flags"] for row in shown):
        lines, head = [[*line[:-2], line[-1]] for line in lines], [name for name in head if name != "flags"]
    more = [f"… and {len(passing) - len(shown)} more"] if len(shown) < len(passing) else []
    sums = format_ns(sum(row["time_ns"] for row in passing)), format_bytes(sum(row["sent_bytes"] for row in passing))
    total = f"{len(passing)} of {len(placement.ops)} ops, {sums[0]} together, {sums[1]} sent to other devices"
    return "\n".join([*([table(head, lines, left_aligned)] if shown else []), *more, total])
