"""The reason for an op's device: the constraint that decided it, or the comparison with the best other device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.common.units import format_bytes, format_ns
from placer.problem.reasons import Reason

if TYPE_CHECKING:
    from placer.graph.op_graph import OpNode
    from placer.plan.placement import Placement


def why(placement: Placement, op: OpNode) -> Reason:
    """What decided the device of an op of the placement.

    If the op's unit could be elsewhere, its device is compared with the other device that would be best if only this unit moved.
    The kind of the reason is then one of four. "cost": its ops are slower there. "neighbours": the transfers would cost more.
    "indifferent": a tie. "whole": the move would lower the total cost, but not improve the plan.
    """
    plan = placement.ops[op.name]
    unit = placement.units[plan.unit]
    others = [device for device in unit.time_ns if device != plan.device]
    if not others:
        return _forced(placement, op)
    other = min(others, key=lambda device: unit.time_ns[device] + unit.transfer_ns[device])
    here_ns, other_ns = unit.time_ns[plan.device], unit.time_ns[other]
    slower_ns, transfers_ns = other_ns - here_ns, unit.transfer_ns[other] - unit.transfer_ns[plan.device]
    times = f"{format_ns(here_ns)} here, {format_ns(other_ns)} on {other}"
    times += f", for the {unit.ops} ops that move together" if unit.ops > 1 else ""
    if placement.assigned is not None:
        return _assigned(placement, op, other, slower_ns, transfers_ns, times)
    if slower_ns + transfers_ns < 0:
        saved = format_ns(-slower_ns - transfers_ns)
        text = f"for the plan as a whole ({placement.objective}), though moving it alone to {other} would save {saved}"
        return Reason("whole", op.name, f"{text} of total cost ({times}){_no_room(placement, plan.unit, other)}")
    if slower_ns + transfers_ns == 0:
        return Reason("indifferent", op.name, f"as good on {other} ({times}, no difference in transfers)")
    if slower_ns >= max(transfers_ns, 1):
        change = f"; a move would also add {format_ns(transfers_ns)} of transfers" if transfers_ns > 0 else ""
        change = change or (f", though a move would save {format_ns(-transfers_ns)} of transfers" if transfers_ns < 0 else "")
        return Reason("cost", op.name, f"cheaper by {format_ns(slower_ns)}: {times}{change}")
    text = f"moving it alone to {other} would add {format_ns(transfers_ns)} of transfers ({times})"
    return Reason("neighbours", op.name, text)


def decisive_op(placement: Placement) -> str:
    """The op whose time the choice of its device changes most; "" if no op has a choice.

    Ops on another device than in TensorFlow's own placement come first, compared with that device. Without such an op, each is
    compared with the device where it takes longest.
    """
    changes: list[tuple[bool, int, str]] = []
    for name, op in placement.ops.items():
        others = {device: ns for device, ns in op.time_ns.items() if device != op.device}
        if others and op.device in op.time_ns:
            other_ns = others.get(op.default, max(others.values()))
            changes.append((op.default in others, abs(other_ns - op.time_ns[op.device]), name))
    return max(changes, key=lambda change: change[:2], default=(False, 0, ""))[2]


def _no_room(placement: Placement, unit: int, device: str) -> str:
    """A clause that a device has no room for what a unit keeps from step to step; "" if it has."""
    totals, kept = placement.totals[device], placement.kept_bytes_of_unit.get(unit, 0)
    if totals.limit_bytes < 0 or totals.persistent_bytes + kept <= totals.limit_bytes:
        return ""
    limit = f"it keeps {format_bytes(totals.persistent_bytes)} of at most {format_bytes(totals.limit_bytes)}"
    return f"; {device} has no room for {format_bytes(kept)} that would be kept there: {limit}"


def _forced(placement: Placement, op: OpNode) -> Reason:
    """The constraint that excluded every other device; it may hold for another op of the unit."""
    plan = placement.ops[op.name]
    unit = placement.units[plan.unit]
    if not unit.reasons:
        return Reason("kernel", op.name, f"{plan.device} is the only device")
    reason = unit.reasons[-1]
    text = reason.text if reason.op == op.name else f"it goes with {reason.op!r} ({_together(placement, op)}): {reason.text}"
    return Reason(reason.kind, reason.op, text)


def _assigned(placement: Placement, op: OpNode, other: str, slower_ns: int, transfers_ns: int, times: str) -> Reason:
    """The device that the user named, and what moving the op's unit to `other` would change.

    Args:
        placement: a placement that the user assigned.
        op: one of its ops.
        other: the best other device.
        slower_ns: time that the unit's ops would take more there.
        transfers_ns: time that the transfers would take more.
        times: the unit's times on both devices, as text.
    """
    plan = placement.ops[op.name]
    named = op.name if op.name in (placement.assigned or {}) else placement.assigned_op_of_unit.get(plan.unit, "")
    text = "you named no device for it, so it is where TensorFlow would have it"
    if named:
        text = f"you have it on {plan.device}"
        together = f"it goes with {named!r} ({_together(placement, op)}), which you have on {plan.device}"
        text = text if named == op.name else together
    change_ns = slower_ns + transfers_ns
    change = f"{'add' if change_ns > 0 else 'save'} {format_ns(abs(change_ns))} of" if change_ns else "not change"
    copies = f"{format_ns(abs(transfers_ns))} {'more' if transfers_ns > 0 else 'less'}" if transfers_ns else "no difference"
    text += f"; moving it alone to {other} would {change} total cost ({times}, {copies} in transfers)"
    return Reason("assigned", named or op.name, text)


def _together(placement: Placement, op: OpNode) -> str:
    """Why the op's unit shares a device."""
    return placement.graph.group_reasons.get(op.group) or "they share a device"
