"""Checks an assignment independently: plain loops over the problem, which share no code with the solvers."""

from __future__ import annotations

from dataclasses import dataclass

from placer.problem.problem import Assignment, PlacementProblem


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an independent check."""

    violations: tuple[str, ...]
    """Sentences; empty where the assignment is valid."""
    total_cost_ns: int
    peak_bytes: tuple[int, ...]
    """By device."""

    @property
    def ok(self) -> bool:
        """Whether nothing is violated."""
        return not self.violations


def validate(problem: PlacementProblem, assignment: Assignment, total_cost_ns: int | None = None) -> Report:
    """Checks allowed devices, memory limits and, if one is given, the total cost.

    The definitions are those of `placer.problem.price.total_cost_ns` and `placer.problem.memory.usage`. An assignment of
    another shape, or with a device that does not exist, is reported as such with cost and peaks 0.
    """
    names, count = problem.devices.names, problem.num_devices
    device = assignment.device.tolist()
    if len(device) != problem.num_units:
        return Report((f"{len(device)} units are assigned where the problem has {problem.num_units}",), 0, (0,) * count)
    unknown = [u for u, d in enumerate(device) if not 0 <= d < count]
    if unknown:
        broken = tuple(f"unit {u} is on device number {device[u]}, of {count}" for u in unknown)
        return Report(broken, 0, (0,) * count)

    unit_op: dict[int, str] = {}
    for name, unit in zip(problem.ops.names, problem.ops.unit.tolist(), strict=True):
        unit_op.setdefault(unit, name)
    allowed = problem.units.allowed.tolist()
    violations = [
        f"{unit_op.get(u, f'unit {u}')} is on {names[d]}, where it must not be: "
        f"it may be on {', '.join(n for n, ok in zip(names, allowed[u], strict=True) if ok)}"
        for u, d in enumerate(device)
        if not allowed[u][d]
    ]
    cost = _cost(problem, device)
    if total_cost_ns is not None and total_cost_ns != cost:
        violations.append(f"the total cost is said to be {total_cost_ns} ns and is {cost} ns")
    peak = _peaks(problem, device)
    for d, (held, limit) in enumerate(zip(peak, problem.devices.memory_limit_bytes.tolist(), strict=True)):
        if 0 <= limit < held:
            violations.append(f"{names[d]} holds {held} bytes at its peak, {held - limit} over its limit of {limit}")
    return Report(tuple(violations), cost, tuple(peak))


def _place(problem: PlacementProblem, device: int, on_host: bool) -> int:
    """Where `device` keeps a tensor: in its own memory, or in its view of host memory where that is another one."""
    return device + problem.num_devices if on_host and problem.devices.kinds[device] != "CPU" else device


def _cost(problem: PlacementProblem, device: list[int]) -> int:
    where = [device[u] for u in problem.ops.unit.tolist()]
    latency, per_byte = problem.links.latency_ns.tolist(), problem.links.ns_per_byte.tolist()
    total = sum(row[d] for row, d in zip(problem.ops.time_ns.tolist(), where, strict=True))
    for t, places in enumerate(_places(problem, where)):
        if problem.tensors.free[t]:
            continue
        src, nbytes, copies = places[0], int(problem.tensors.copy_bytes[t]), float(problem.tensors.count[t])
        for dst in dict.fromkeys(places[1:]):
            if dst != src:
                total += round(copies * (latency[src][dst] + nbytes * per_byte[src][dst]))
    hops = dict.fromkeys(
        (src, where[dst])
        for src, dst in zip(problem.ops.control_src.tolist(), problem.ops.control_dst.tolist(), strict=True)
        if where[src] != where[dst]
    )
    runs = problem.ops.count.tolist()
    signals: dict[int, float] = {}
    for src, dst in zip(problem.ops.control_src.tolist(), problem.ops.control_dst.tolist(), strict=True):
        signals[src] = max(signals.get(src, 0.0), min(runs[src], runs[dst]))
    for op, d in hops:
        total += round(signals[op] * latency[where[op]][d])
    return int(total)


def _places(problem: PlacementProblem, where: list[int]) -> list[list[int]]:
    """For each tensor the place it is produced in, then the place of each consumer."""
    start, consumer = problem.consumers.start.tolist(), problem.consumers.op.tolist()
    output_on_host, input_on_host = problem.tensors.on_host.tolist(), problem.consumers.on_host.tolist()
    return [
        [_place(problem, where[op], output_on_host[t][where[op]])]
        + [_place(problem, where[consumer[c]], input_on_host[c][where[consumer[c]]]) for c in range(start[t], start[t + 1])]
        for t, op in enumerate(problem.tensors.op.tolist())
    ]


def _host(problem: PlacementProblem, device: int) -> int:
    """The first CPU of a device's task; the first CPU of all, or device 0, where there is none."""
    kinds, tasks = problem.devices.kinds, problem.devices.tasks
    cpus = [d for d in range(problem.num_devices) if kinds[d] == "CPU"]
    return next((d for d in cpus if tasks[d] == tasks[device]), cpus[0] if cpus else 0)


def _peaks(problem: PlacementProblem, device: list[int]) -> list[int]:
    where = [device[u] for u in problem.ops.unit.tolist()]
    moment = problem.ops.moment.tolist()
    start = problem.consumers.start.tolist()
    ends = problem.consumers.until.tolist()
    ops = len(where)
    change = [[0] * (ops + 1) for _ in problem.devices.names]

    def hold(d: int, nbytes: int, first: int, last: int) -> None:
        change[d][first] += nbytes
        change[d][last + 1] -= nbytes

    for d, nbytes in zip(device, problem.units.persistent_bytes.tolist(), strict=True):
        hold(d, nbytes, 0, ops - 1)
    for op, row in enumerate(problem.ops.workspace_bytes.tolist()):
        hold(where[op], row[where[op]], moment[op], moment[op])
    for t, (src, *places) in enumerate(_places(problem, where)):
        first, nbytes = moment[int(problem.tensors.op[t])], int(problem.tensors.held_bytes[t])
        until: dict[int, int] = {}
        for place, c in zip(places, range(start[t], start[t + 1]), strict=True):
            until[place] = max(until.get(place, 0), ends[c])
        until[src] = ops - 1 if problem.tensors.is_result[t] else max([first, *until.values()])
        for place, last in until.items():
            if place == src and problem.tensors.shared[t]:
                continue
            memory = place if place < problem.num_devices else _host(problem, place - problem.num_devices)
            if problem.tensors.free[t]:
                hold(memory, nbytes, 0, ops - 1)
            else:
                hold(memory, nbytes, first, last)
    peak = []
    for changes in change:
        held = highest = 0
        for step in changes[:-1]:
            held += step
            highest = max(highest, held)
        peak.append(highest)
    return peak
