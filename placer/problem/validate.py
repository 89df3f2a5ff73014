"""Re-checks an assignment from the problem alone: plain loops that share no code with what solvers use."""

from __future__ import annotations

from dataclasses import dataclass

from placer.problem.problem import Assignment, PlacementProblem


@dataclass(frozen=True, slots=True)
class Report:
    """What an independent check found."""

    violations: tuple[str, ...]
    """In words; empty where the assignment holds."""
    total_cost_ns: int
    peak_bytes: tuple[int, ...]
    """By device."""

    @property
    def ok(self) -> bool:
        """Whether nothing is violated."""
        return not self.violations


def validate(problem: PlacementProblem, assignment: Assignment, total_cost_ns: int | None = None) -> Report:
    """Checks allowed devices, memory limits and, where one is claimed, the total cost.

    The definitions are those of `placer.problem.price.total_cost_ns` and `placer.problem.memory.usage`. An assignment of
    another shape, or with a device that does not exist, is reported as such with cost and peaks 0.
    """
    names, count = problem.device_names, problem.devices
    device = assignment.device.tolist()
    if len(device) != problem.units:
        return Report((f"{len(device)} units are assigned where the problem has {problem.units}",), 0, (0,) * count)
    strangers = [u for u, d in enumerate(device) if not 0 <= d < count]
    if strangers:
        broken = tuple(f"unit {u} is on device number {device[u]}, of {count}" for u in strangers)
        return Report(broken, 0, (0,) * count)

    unit_op: dict[int, str] = {}
    for name, unit in zip(problem.op_names, problem.op_unit.tolist(), strict=True):
        unit_op.setdefault(unit, name)
    allowed = problem.unit_allowed.tolist()
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
    for d, (held, limit) in enumerate(zip(peak, problem.memory_limit_bytes.tolist(), strict=True)):
        if 0 <= limit < held:
            violations.append(f"{names[d]} holds {held} bytes at its peak, {held - limit} over its limit of {limit}")
    return Report(tuple(violations), cost, tuple(peak))


def _place(problem: PlacementProblem, device: int, on_host: bool) -> int:
    """Where `device` keeps a tensor: in its own memory, or in its view of host memory where that is another one."""
    return device + problem.devices if on_host and problem.device_kinds[device] != "CPU" else device


def _cost(problem: PlacementProblem, device: list[int]) -> int:
    where = [device[u] for u in problem.op_unit.tolist()]
    copied = problem.tensor_bytes if problem.tensor_copy_bytes is None else problem.tensor_copy_bytes
    latency, per_byte = problem.copy_latency_ns.tolist(), problem.copy_ns_per_byte.tolist()
    total = sum(row[d] for row, d in zip(problem.op_time_ns.tolist(), where, strict=True))
    for t, places in enumerate(_places(problem, where)):
        if problem.tensor_free[t]:
            continue
        src, nbytes, copies = places[0], int(copied[t]), float(problem.tensor_count[t])
        for dst in dict.fromkeys(places[1:]):
            if dst != src:
                total += round(copies * (latency[src][dst] + nbytes * per_byte[src][dst]))
    hops = dict.fromkeys(
        (src, where[dst])
        for src, dst in zip(problem.control_src.tolist(), problem.control_dst.tolist(), strict=True)
        if where[src] != where[dst]
    )
    runs = problem.op_count.tolist()
    told: dict[int, float] = {}
    for src, dst in zip(problem.control_src.tolist(), problem.control_dst.tolist(), strict=True):
        told[src] = max(told.get(src, 0.0), min(runs[src], runs[dst]))
    for op, d in hops:
        total += round(told[op] * latency[where[op]][d])
    return int(total)


def _places(problem: PlacementProblem, where: list[int]) -> list[list[int]]:
    """For each tensor the place it is produced in, then the place of each consumer."""
    start, consumer = problem.consumer_start.tolist(), problem.consumer_op.tolist()
    made, taken = problem.tensor_on_host.tolist(), problem.consumer_on_host.tolist()
    return [
        [_place(problem, where[op], made[t][where[op]])]
        + [_place(problem, where[consumer[c]], taken[c][where[consumer[c]]]) for c in range(start[t], start[t + 1])]
        for t, op in enumerate(problem.tensor_op.tolist())
    ]


def _peaks(problem: PlacementProblem, device: list[int]) -> list[int]:
    where = [device[u] for u in problem.op_unit.tolist()]
    moment = range(len(where)) if problem.op_moment is None else problem.op_moment.tolist()
    start, consumer = problem.consumer_start.tolist(), problem.consumer_op.tolist()
    ends = [moment[op] for op in consumer] if problem.consumer_until is None else problem.consumer_until.tolist()
    sizes = problem.tensor_bytes if problem.tensor_held_bytes is None else problem.tensor_held_bytes
    host = problem.device_kinds.index("CPU") if "CPU" in problem.device_kinds else 0
    ops = len(where)
    change = [[0] * (ops + 1) for _ in problem.device_names]

    def hold(d: int, nbytes: int, first: int, last: int) -> None:
        change[d][first] += nbytes
        change[d][last + 1] -= nbytes

    for d, nbytes in zip(device, problem.unit_persistent_bytes.tolist(), strict=True):
        hold(d, nbytes, 0, ops - 1)
    for op, row in enumerate(problem.op_workspace_bytes.tolist()):
        hold(where[op], row[where[op]], moment[op], moment[op])
    for t, (src, *places) in enumerate(_places(problem, where)):
        first, nbytes = moment[int(problem.tensor_op[t])], int(sizes[t])
        until: dict[int, int] = {}
        for place, c in zip(places, range(start[t], start[t + 1]), strict=True):
            until[place] = max(until.get(place, 0), ends[c])
        until[src] = ops - 1 if problem.tensor_is_result[t] else max([first, *until.values()])
        for place, last in until.items():
            if place == src and problem.tensor_shared is not None and problem.tensor_shared[t]:
                continue
            memory = place if place < problem.devices else host
            if problem.tensor_free[t]:
                hold(memory, nbytes, 0, ops - 1)
            else:
                hold(memory, nbytes, first, last)
    peak = []
    for changes in change:
        held = most = 0
        for step in changes[:-1]:
            held += step
            most = max(most, held)
        peak.append(most)
    return peak
