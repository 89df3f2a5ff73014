"""The state of the execution model in the middle of a step."""

from __future__ import annotations

from dataclasses import dataclass

from placer.problem.model_tables import WIDE
from placer.problem.problem import PlacementProblem
from placer.problem.step_edges import step_edges_of


@dataclass(slots=True, eq=False)
class StepState:
    """The state of a simulated step between the starts of two ops. The rest of the step depends on nothing else. Times in ns."""

    pools: list[list[int]]
    """By device: when each thread is free, a heap."""
    stream_free: list[int]
    """By device: when its stream is free."""
    alone_free: list[list[int]]
    """By `SMALL` or `WIDE`, then by device: when the last op of that kind ends; -1 if there was none."""
    link_free: list[int]
    """By link."""
    ready: list[int]
    """By op: the latest arrival of a message so far."""
    waits: list[int]
    """By op: the number of edges that it still waits for."""
    queue: list[int]
    """A heap of what is ready, for N ops and E edges: op i that is ready at time t is t * (N + E) + i, and a copy is
    t * (N + E) + N + e, where e is the first edge that waits for it."""
    latest_ns: int = 0
    """The latest end of an op so far."""

    @classmethod
    def first(cls, problem: PlacementProblem) -> StepState:
        """The state before the first op."""
        fed = problem.devices.asynchronous.tolist()
        threads = problem.devices.threads.tolist()
        waits = step_edges_of(problem).waits_list.copy()
        return cls(
            pools=[[0] * (1 if fed[d] else threads[d]) for d in range(problem.num_devices)],
            stream_free=[0] * problem.num_devices,
            alone_free=[[-1] * problem.num_devices for _ in range(1 + WIDE)],
            link_free=[0] * (2 * problem.num_devices) ** 2,
            ready=[0] * problem.num_ops,
            waits=waits,
            queue=[i for i, n in enumerate(waits) if n == 0],  # sorted, so a heap
        )

    def copy(self) -> StepState:
        return StepState(
            [pool.copy() for pool in self.pools],
            self.stream_free.copy(),
            [each.copy() for each in self.alone_free],
            self.link_free.copy(),
            self.ready.copy(),
            self.waits.copy(),
            self.queue.copy(),
            self.latest_ns,
        )
