"""Which ops must share a device, and which devices each such unit may use, with the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from cost_models.machines import Machine, task_of
from cost_models.ops import entry_of
from placer.common.device_spec import parse
from placer.errors import ConstraintError, DeviceError
from placer.graph.matching import matching
from placer.graph.op_graph import OpGraph, OpNode
from placer.options import Options
from placer.problem.arrays import Bools, Ints
from placer.problem.reasons import Reason, ReasonKind

FLOATS = frozenset({"float32", "float64", "float16", "bfloat16", "complex64", "complex128"})
"""Element types of eager tensors that TensorFlow puts on a GPU where there is one; integers and strings stay with the host."""


CAPTURES_FREED = (
    "captured tensors do not fit where TensorFlow would put them, and are planned where they are best: make them on the devices "
    "that the plan has them on."
)


@dataclass(frozen=True, eq=False)
class Constraints:
    """The units of a graph on a machine. N ops in graph order, U units in order of their first op, D devices."""

    op_unit: Ints
    """[N]"""
    allowed: Bools
    """[U, D]"""
    reasons: Mapping[int, tuple[Reason, ...]]
    """By unit: the demands that narrowed its devices, strongest first. Units that may go anywhere are left out."""
    notes: tuple[str, ...]
    """Sentences about demands that were dropped."""


def constrain(graph: OpGraph, machine: Machine, options: Options, *, guess: bool = True) -> Constraints:
    """Contracts groups to units and intersects what each of their ops demands.

    Strongest first: kernels; pins; where a variable, an argument or a capture is; `tf.device` scopes. The first three must
    hold together. A scope that cannot be met is noted and dropped, unless it meets only another scope of its unit.

    Variables, arguments and captures stay where TensorFlow has them now, if the plan is for the machine of this process. For
    another machine they are where TensorFlow would put them: arguments on the host; variables and floating-point captures on the
    first GPU if all their ops can run there. In a cluster, these are the host and the GPUs of the process that calls, and ops
    that read or change something of a process stay in this one, unless a pin or a scope asks for another.

    A pin on an argument or capture says where the caller will put it. It must give the exact name, not a glob.

    On the machine of this process, ops that a distribution strategy has put on a device stay there, or with their state. No
    glob, op type or layer pins them.

    Args:
        guess: False lets the plan choose the devices of captured tensors on another machine.

    Raises:
        OptionError: a pin matches no op, op type, variable or layer, or is no device string.
        DeviceError: a pin asks for a device that is not there, or a scope does and ``on_missing_device="error"``.
        ConstraintError: the demands on one unit leave no device.
    """
    return _Constrainer(graph, machine, options, guess).run()


def guesses(graph: OpGraph, machine: Machine) -> bool:
    """Whether there are captured tensors and the machine is another one than this process runs on."""
    here = {d.name for d in machine.devices} <= set(graph.process_devices)
    return not here and any(op.role == "capture" and not op.resource for op in graph)


@dataclass
class _Constrainer:
    """Sets of devices are bit masks, bit d for device d of the machine."""

    graph: OpGraph
    machine: Machine
    options: Options
    guess: bool
    reasons: dict[int, list[Reason]] = field(default_factory=dict)
    unmet: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Scopes that were dropped: the ops, by the request and by the reason why it was dropped."""
    unserved: dict[str, dict[str, str]] = field(default_factory=dict)
    """Scopes that were dropped because their devices have no kernel: the reason by op, by the request."""

    def run(self) -> Constraints:
        self.ops: list[OpNode] = list(self.graph)
        self.names = tuple(d.name for d in self.machine.devices)
        self.everything = (1 << len(self.names)) - 1
        self.local = all(name in self.graph.process_devices for name in self.names)
        numbers: dict[str, int] = {}
        # Group and op names never meet in one key: the marker keeps them apart.
        self.unit = [numbers.setdefault(f"\0{op.group}" if op.group else op.name, len(numbers)) for op in self.ops]
        self.mask = [self.everything] * len(numbers)
        self.runnable = self._kernels()
        pinned = self._pins()
        with_state = self._ends(pinned)
        self._replicas(pinned, with_state)
        decided = pinned | with_state
        self._scopes(decided)
        self._effects()
        rows = {mask: [mask >> d & 1 == 1 for d in range(len(self.names))] for mask in set(self.mask)}
        allowed = np.array([rows[mask] for mask in self.mask], np.bool_).reshape(len(self.mask), len(self.names))
        return Constraints(
            np.array(self.unit, np.int64),
            allowed,
            {unit: tuple(reasons) for unit, reasons in self.reasons.items()},
            self._notes(),
        )

    # -- demands, strongest first ----------------------------------------------------------------------------------

    def _kernels(self) -> list[int]:
        """Narrows to devices with a kernel; returns each op's own."""
        kinds = tuple(d.kind for d in self.machine.devices)
        masks: dict[tuple[str, ...], int] = {}
        runnable = []
        for i, op in enumerate(self.ops):
            has = tuple(op.kernels)
            mask = masks.get(has)
            if mask is None:
                mask = masks[has] = sum(1 << d for d, kind in enumerate(kinds) if kind in has)
            runnable.append(mask)
            if mask != self.everything:
                self._narrow(i, mask, "kernel", self._refusal(op, self.everything))
        return runnable

    def _pins(self) -> set[int]:
        pinned: set[int] = set()
        for pattern, device in self.options.pins.items():
            mask = self._devices(device)
            if not mask:
                raise DeviceError(
                    f"pin {pattern!r} asks for {device!r}, which {self.machine.name!r} does not have; "
                    f"it has {self._device_list()}."
                )
            matched = set(matching(self.graph, pattern))
            for i, op in enumerate(self.ops):
                if op.name not in matched:
                    continue
                if not mask & self.runnable[i]:
                    raise ConstraintError(
                        f"pin {pattern!r} puts {op.name!r} ({op.op_type}) on {device!r}, but it cannot run there: "
                        f"{self._refusal(op, mask)}. It can run on {self._list(self.runnable[i])}. "
                        "Way out: pin fewer ops, or pin it there."
                    )
                self._narrow(i, mask, "pin", f"pin {pattern!r} demands {device!r}")
                pinned.add(self.unit[i])
        return pinned

    def _ends(self, pinned: set[int]) -> set[int]:
        """State, arguments and captures stay where they are; returns the units this decides."""
        decided: set[int] = set()
        for i, op in enumerate(self.ops):
            if not op.resource and op.role not in ("argument", "capture"):
                continue
            unit = self.unit[i]
            state = self.graph.resources.get(op.resource)
            stays = state.stays if state is not None and state.kind == "variable" and self.options.variables == "move" else None
            if stays == "":
                continue
            what = f"{state.kind} {state.name!r}" if state else f"{op.role} {op.name!r}"
            kind: ReasonKind = "resource" if op.resource else "location"
            known = (state.device if state else op.location) if self.local else ""
            if known and (mask := self._devices(known)) and (op.resource or unit not in pinned):
                self._narrow(i, mask, kind, f"{what} lives on {known}{f', and {stays}' if stays else ''}")
            elif unit in pinned or op.role == "op" or (op.role == "capture" and not op.resource and not self.guess):
                continue  # an op that makes its own state makes it where it runs
            else:
                mask = self._where_made(unit, op)
                self._narrow(i, mask, kind, f"{what} is taken to live on {self._list(mask)}")
            decided.add(unit)
        return decided

    def _replicas(self, pinned: set[int], with_state: set[int]) -> None:
        """Ops that a distribution strategy has put on a device stay there, or with their state."""
        for i, op in enumerate(self.ops):
            unit = self.unit[i]
            if not self.local or not op.is_of_strategy or unit in with_state:
                continue
            mask = self._devices(op.location)
            if mask & self.mask[unit] or (mask and unit in pinned):
                self._narrow(i, mask, "location", f"a distribution strategy runs {op.name!r} on {op.location}")

    def _scopes(self, decided: set[int]) -> None:
        masks: dict[str, int] = {}
        scoped: set[int] = set()
        for i, op in enumerate(self.ops):
            text = op.requested_device
            if not text or op.role in ("argument", "capture"):
                continue
            mask = masks.get(text)
            if mask is None:
                mask = masks[text] = self._devices(text)
            unit = self.unit[i]
            if not mask:
                if self.options.on_missing_device == "error":
                    raise DeviceError(
                        f"{op.name!r} asks for {text!r}, which {self.machine.name!r} does not have; "
                        f"it has {self._device_list()}. "
                        'Way out: plan for a machine that has it, or on_missing_device="relax".'
                    )
                self._drop(op, f"{self.machine.name!r} does not have; it has {self._device_list()}")
            elif not mask & self.runnable[i]:
                self.unserved.setdefault(_asking(op), {})[op.name] = self._refusal(op, mask)
            elif mask & self.mask[unit]:
                self._narrow(i, mask, "scope", self._demand(op, mask))
                scoped.add(unit)
            elif unit in scoped and unit not in decided:
                self._contradiction(i, "scope", self._demand(op, mask))
            else:
                stronger = self.reasons[unit][-1]
                self._drop(op, f"cannot be: {stronger.op!r} decides, {stronger.text}")

    def _effects(self) -> None:
        """Keeps ops that read or change something of a process, such as files, in the process that calls, if allowed there."""
        own = self._own()
        for i, op in enumerate(self.ops):
            if own != self.everything and _is_of_process(op) and self.mask[self.unit[i]] & own:
                self._narrow(i, own, "location", f"what {op.op_type} reads or changes is of the process that calls")

    # -- masks -----------------------------------------------------------------------------------------------------

    def _narrow(self, op: int, mask: int, kind: ReasonKind, text: str) -> None:
        """Rules out devices of a unit and keeps the reason if that changes any. Raises ConstraintError if no device remains."""
        unit = self.unit[op]
        remaining = self.mask[unit] & mask
        if remaining == self.mask[unit]:
            return
        if not remaining:
            self._contradiction(op, kind, text)
        self.mask[unit] = remaining
        self.reasons.setdefault(unit, []).append(Reason(kind, self.ops[op].name, text))

    def _drop(self, op: OpNode, why: str) -> None:
        self.unmet.setdefault((_asking(op), why), []).append(op.name)

    def _where_made(self, unit: int, op: OpNode) -> int:
        """One device: the first GPU for what TensorFlow puts on GPUs, else the host, within what the unit may use.

        It is a device of the process that calls, if the unit may use one.
        """
        may = self.mask[unit] & self._own() or self.mask[unit]
        state = self.graph.resources.get(op.resource)
        wants_gpu = state.kind == "variable" if state else op.role == "capture" and op.signature.outputs[0].dtype in FLOATS
        free = [d for d in range(len(self.names)) if may >> d & 1]
        gpus = [d for d in free if self.machine.devices[d].kind == "GPU"]
        return 1 << (gpus[0] if gpus and wants_gpu else free[0])

    def _own(self) -> int:
        """The devices of the process that calls."""
        return sum(1 << d for d, name in enumerate(self.names) if not task_of(name))

    def _devices(self, spec: str) -> int:
        request = parse(spec)
        return sum(1 << d for d, name in enumerate(self.names) if request.matches(name))

    # -- words -----------------------------------------------------------------------------------------------------

    def _notes(self) -> tuple[str, ...]:
        def some(ops: list[str]) -> str:
            return ", ".join(map(repr, ops[:3])) + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")

        def why_not(refusals: Iterable[str]) -> str:
            first, *more = dict.fromkeys(refusals)
            return first + (f"; and {len(more)} more reason{'s' if len(more) > 1 else ''}" if more else "")

        relaxed = [f"{some(ops)}: {asking} relaxed, which {why}." for (asking, why), ops in self.unmet.items()]
        for asking, refusals in self.unserved.items():
            relaxed.append(f"{some([*refusals])}: {asking} relaxed, which cannot serve: {why_not(refusals.values())}.")
        return (*relaxed, *([] if self.guess else [CAPTURES_FREED]))

    def _contradiction(self, op: int, kind: ReasonKind, text: str) -> NoReturn:
        unit = self.unit[op]
        node = self.ops[op]
        demands = [*self.reasons.get(unit, ()), Reason(kind, node.name, text)]
        shared = self.graph.group_reasons.get(node.group, "") if node.group else ""
        together = f" These ops must share a device ({shared})." if shared else ""
        raise ConstraintError(
            f"no device can hold {node.name!r}; the machine has {self._device_list()}, and what is demanded leaves none:\n"
            + "\n".join(f"  {demand.op!r}: {demand.text}" for demand in demands)
            + f"\n{together.strip()}{' ' if together else ''}{self._way_out(demands)}"
        )

    def _way_out(self, demands: Sequence[Reason]) -> str:
        outs = dict.fromkeys(change for demand in demands for change in self._changes(demand))
        return f"Way out: {'; or '.join(outs or ['plan for a machine that has a device for all of them'])}."

    def _changes(self, demand: Reason) -> Iterator[str]:
        """Changes by the user that would drop a demand."""
        op = self.graph.op(demand.op)
        if demand.kind == "pin":
            yield "drop or change one of the pins"
        elif demand.kind == "scope" and op.planned_by:
            yield "change the pins or scopes of the placed function"
        elif demand.kind == "scope":
            yield "change one of the tf.device scopes"
        elif demand.kind in ("resource", "location"):
            state = self.graph.resources.get(op.resource)
            if self.options.variables != "move" and state is not None and state.kind == "variable" and not state.stays:
                yield 'variables="move"'
            if self.local:
                yield "make the variable, or hand the value over, on the device that is demanded"

    def _refusal(self, op: OpNode, mask: int) -> str:
        kinds = dict.fromkeys(d.kind for i, d in enumerate(self.machine.devices) if mask >> i & 1)
        return "; ".join(
            op.refusals.get(kind) or f"{op.op_type} has no {kind} kernel" for kind in kinds if kind not in op.kernels
        )

    def _demand(self, op: OpNode, mask: int) -> str:
        if not op.planned_by:
            return f"{_asking(op)} demands {self._list(mask)}"
        why = f": {op.planned_why}" if op.planned_why else ""
        return f"the plan of placed function {op.planned_by!r} demands {self._list(mask)}{why}"

    def _list(self, mask: int) -> str:
        return " or ".join(name for d, name in enumerate(self.names) if mask >> d & 1) or "no device"

    def _device_list(self) -> str:
        return ", ".join(self.names)


def _is_of_process(op: OpNode) -> bool:
    """Whether an op reads or changes something of the process that runs it: its files, its output, objects of its Python code."""
    entry = entry_of(op.op_type)
    if entry.unseen_code or op.op_type in ("ReadFile", "MatchingFiles"):
        return True
    has_state_as_input = any(spec.dtype == "resource" for spec in op.signature.inputs)
    return "stateful" in op.flags and "random" not in op.flags and op.op_type != "Assert" and not has_state_as_input


def _asking(op: OpNode) -> str:
    """What asks for the device of an op."""
    device = op.requested_device
    return f"{parse(device).short} in the plan of {op.planned_by!r}" if op.planned_by else f"tf.device({device!r})"
