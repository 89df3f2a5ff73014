"""What one run of a function had: sizes of tensors, rounds of loops, branches taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from placer.graph.op_graph import OpGraph
from placer.graph.sizes import Shape


class SeenShape(NamedTuple):
    """The shapes that one output of an op had."""

    mean: Shape
    """By dimension: the mean over the op's executions, rounded up."""
    largest: Shape
    """By dimension: the largest; None where that is not known."""


@dataclass(frozen=True)
class Seen:
    """What one run had."""

    sizes: Mapping[tuple[str, int], SeenShape] = field(default_factory=dict)
    """By op and output, for outputs whose size does not follow from other sizes."""
    rounds: Mapping[str, int] = field(default_factory=dict)
    """By loop that was reached: the mean number of rounds, rounded."""
    taken: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By branch that was reached: how often each of its bodies ran. The bodies of an If are then and else."""
    given: frozenset[str] = frozenset()
    """The ops and loops whose sizes or rounds the user gave. A run had all others."""

    def __bool__(self) -> bool:
        return bool(self.sizes or self.rounds or self.taken)

    def __str__(self) -> str:
        lines = [f"{op}:{k}: {_shape(shape)}" for (op, k), shape in self.sizes.items()]
        lines += [f"{loop}: {rounds} rounds" for loop, rounds in self.rounds.items()]
        lines += [f"{branch}: taken {' and '.join(map(str, times))} times" for branch, times in self.taken.items()]
        return "\n".join(lines)

    def weights(self, branch: str, bodies: int) -> tuple[int, ...]:
        """The shares of a branch's bodies in the branch's executions, as whole numbers in proportion.

        Each body counts once more than it ran (Laplace's rule of succession), so none is expected never to run. Without a run
        all weights are equal.
        """
        return tuple(times + 1 for times in self.taken.get(branch, (0,) * bodies))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return {
            "sizes": [[op, k, shape.mean, shape.largest] for (op, k), shape in self.sizes.items()],
            "rounds": dict(self.rounds),
            "taken": {branch: list(times) for branch, times in self.taken.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Seen:
        """What `to_json` wrote.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: the data is something else.
        """
        sizes = {(str(op), int(k)): SeenShape(_tuple(mean), _tuple(largest)) for op, k, mean, largest in data["sizes"]}
        return cls(sizes, dict(data["rounds"]), {branch: tuple(times) for branch, times in data["taken"].items()})

    @classmethod
    def of_graph(cls, graph: OpGraph) -> Seen:
        """What was seen or given when a graph was read, so that the same function can be read alike again."""
        sizes = {
            (name, k): SeenShape(spec.shape, size.bound)
            for name, of_node in graph.sizes.items()
            for k, (size, spec) in enumerate(zip(of_node, graph.op(name).signature.outputs, strict=True))
            # Another call brings arguments of other sizes.
            if graph.op(name).role != "argument" or (size and size.source == "given")
            if size and size.source in ("seen", "given") and spec.shape is not None and None not in spec.shape
        }
        rounds = {loop: known.value for loop, known in graph.rounds.items() if known.source in ("seen", "given")}
        given = {name for name, of_node in graph.sizes.items() if any(size and size.source == "given" for size in of_node)}
        given |= {loop for loop, known in graph.rounds.items() if known.source == "given"}
        return cls(sizes, rounds, dict(graph.taken), frozenset(given))


def _tuple(shape: Any) -> Shape:
    return None if shape is None else tuple(shape)


def _shape(shape: SeenShape) -> str:
    mean = _text(shape.mean)
    return mean if shape.largest == shape.mean else f"{mean} on average, at most {_text(shape.largest)}"


def _text(shape: Shape) -> str:
    return "?" if shape is None else f"[{','.join('?' if side is None else str(side) for side in shape)}]"
