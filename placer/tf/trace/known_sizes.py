"""What is known of the sizes of a trace's tensors and of the rounds of its loops."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import tensorflow as tf

from placer.common.garbage_collection import paused_collection
from placer.errors import OptionError
from placer.graph.assumptions import check_name, is_named
from placer.graph.seen import Seen
from placer.graph.sizes import HIGH_SIDE, LOW_SIDE, End, Rounds, Shape, Size, Source, weakest
from placer.tf.trace.loop_sizes import Kind
from placer.tf.trace.rounds import LoopRounds
from placer.tf.trace.scratch_shapes import ScratchShapes, as_tuple
from placer.tf.trace.size_rules import is_known, is_open
from placer.tf.trace.size_walk import SizeWalk
from placer.tf.trace.tracing import Trace


class KnownSizes:
    """Sizes and rounds, derived from the trace, the shapes of its arguments, and what was seen or given.

    Nothing is derived where the trace itself knows every size.

    Args:
        trace: of the function.
        sizes: given sizes by node name or glob: one number for each dimension of an output, or for each that is unknown.
        rounds: given numbers of rounds by loop or glob.
        seen: what a run had, or what was given when the graph was read before.

    Raises:
        OptionError: a given size, or a given number of rounds, is above what it can be.
    """

    def __init__(
        self,
        trace: Trace,
        sizes: Mapping[str, Any] | None = None,
        rounds: Mapping[str, Any] | None = None,
        seen: Seen | None = None,
    ) -> None:
        self._unused = dict.fromkeys(sizes or {})
        self._used: dict[tuple[str, int], Shape] = {}
        """By path and output: the shape with the given sizes."""
        self._unfit: dict[str, str] = {}
        """By name or glob of given sizes: an open shape that they do not fit."""
        self._given_rounds = rounds or {}
        self._given = sizes or {}
        self.seen = seen or Seen()
        overrides = {path: Rounds(value, self._source(path)) for path, value in self.seen.rounds.items()}
        overrides |= {path: Rounds(value, "given") for path, value in (rounds or {}).items()}
        self._bound: SizeWalk | None = None
        self._likely: SizeWalk | None = None
        self._exact: SizeWalk | None = None
        self._ends: dict[End, SizeWalk] = {}
        self.rounds = LoopRounds(overrides)
        self._of_call: dict[tuple[str, int], Size] = {}
        """The sizes of arguments that the function's signature leaves open: the given ones, or those of the example call."""
        if _has_unknown(trace):
            self._derive(trace, overrides)

    @paused_collection()
    def _derive(self, trace: Trace, overrides: Mapping[str, Rounds]) -> None:
        scratch = ScratchShapes(trace.root.graph.graph_def_versions)
        arguments = [_argument_shape(value) for value in trace.arguments]
        for name, position in trace.root.inputs.items():
            path, traced = trace.root.names[name], as_tuple(trace.root.input_tensors[position].shape)
            if position < len(arguments) and not is_known(traced):
                known = self._override("likely", path, 0, traced)
                shape, source = known if known and known[1] == "given" else (arguments[position], "seen")
                if is_known(shape):
                    arguments[position], self._of_call[path, 0] = shape, Size(source, shape)

        varying = frozenset(path for (path, _), shape in self.seen.sizes.items() if shape.mean != shape.largest)

        def walk(kind: Kind, before: SizeWalk | None = None) -> SizeWalk:
            return SizeWalk(trace, kind, scratch, arguments, partial(self._override, kind), overrides, before, varying)

        def walk_at(end: End) -> SizeWalk:
            ends = {path: Rounds(known.at(end), "assumed") for path, known in rounds.items() if known.at(end) != known.value}
            return SizeWalk(trace, "likely", scratch, arguments, partial(self._at, end), {**ends, **overrides}, self._exact)

        self._exact = walk("exact")
        rounds = self._exact.rounds.known
        if not all(map(is_known, map(self._exact.shape, self._exact.origins))):
            self._bound = walk("bound", self._exact)
            if self._used:
                nothing = SizeWalk(trace, "bound", scratch, arguments, lambda *_: None, overrides, self._exact)
                self._check_bounds(nothing)
            self._likely = walk("likely", self._exact)
            likely = self._likely.rounds.known
            rounds = {path: Rounds(likely[path].value, known.source) for path, known in self._bound.rounds.known.items()}
            if any(source in ("assumed", "bound") for source in self._bound.sources.values()):
                self._ends = {end: walk_at(end) for end in get_args(End)}
        self.rounds = LoopRounds({**overrides, **rounds})  # datasets are not walked through

    def _override(self, kind: Kind, path: str, index: int, shape: Shape) -> tuple[Shape, Source] | None:
        for glob, numbers in self._given.items():
            if is_named(glob, path):
                filled = _filled(shape, numbers)
                if filled is not None:
                    self._unused.pop(glob, None)
                    self._used[path, index] = filled
                    return filled, "given"
                self._unfit[glob] = _said(shape)
        seen = self.seen.sizes.get((path, index))
        return None if seen is None else (seen.largest if kind == "bound" else seen.mean, self._source(path))

    def _check_bounds(self, without_given: SizeWalk) -> None:
        """Raises OptionError for a given size above its bound in a walk without given sizes."""
        for (path, index), shape in self._used.items():
            bound = without_given.shape((path, index))
            pairs = zip(shape or (), bound or (), strict=False)
            if any(side is not None and most is not None and side > most for side, most in pairs):
                raise OptionError(f"sizes, {path!r}: {_said(shape)} is given, and this tensor is at most {_said(bound)}.")

    def _source(self, path: str) -> Source:
        return "given" if path in self.seen.given else "seen"

    def _at(self, end: End, path: str, index: int, shape: Shape) -> tuple[Shape, Source] | None:
        """The shape at an end of an output whose size follows from nothing; see `Override`."""
        assert self._bound is not None
        assert self._likely is not None
        known, output = self._override("likely", path, index, shape), (path, index)
        if known is not None or shape is None or self._bound.origins.get(output) != frozenset([path]):
            return known
        likely = self._likely.shape(output)
        if end == "low":
            return tuple(LOW_SIDE if side is None else side for side in shape), "assumed"
        if self._bound.sources[path] != "assumed" or likely is None or len(likely) != len(shape):
            return None
        return tuple(_high(side) if known is None else known for known, side in zip(shape, likely, strict=True)), "assumed"

    def shape_of(self, path: str, index: int) -> Shape:
        """The most likely shape of an output, as far as it is known; None where the trace knows as much."""
        output = path, index
        walk = self._likely or self._exact
        return None if walk is None or output not in walk.traced else self._within_bound(walk, output)

    def _within_bound(self, walk: SizeWalk, output: tuple[str, int]) -> Shape:
        shape = walk.shape(output)
        bound = None if self._bound is None else self._bound.shape(output)
        if shape is None or bound is None or len(bound) != len(shape):
            return shape
        return tuple(b if a is None else a if b is None else min(a, b) for a, b in zip(shape, bound, strict=True))

    def size_of(self, path: str, index: int) -> Size | None:
        """What is known of an output whose shape is not exact; None for one whose shape is."""
        output = path, index
        if output in self._of_call:
            return self._of_call[output]
        if self._bound is None or self._exact is None or output not in self._bound.origins:
            return None
        if is_known(self._exact.shape(output)):
            return None
        bound = self._bound.shape(output)
        source = weakest(self._bound.sources[origin] for origin in self._bound.origins[output])
        if not is_known(bound) and source not in ("seen", "given"):
            source = "assumed"
        likely = self.shape_of(path, index)
        low, high = (self._shape_at(end, output, likely) for end in get_args(End))
        return Size(source, bound, low, high)

    def _shape_at(self, end: End, output: tuple[str, int], likely: Shape) -> Shape:
        """The shape at an end, None if that is the likely one. Dimensions that are not known count as 1, as in all shapes."""
        shape = self._within_bound(self._ends[end], output) if end in self._ends else None
        if shape is None:
            return None
        shape = tuple(1 if side is None else side for side in shape)
        return None if likely is not None and shape == tuple(1 if side is None else side for side in likely) else shape

    def open_outputs(self) -> list[tuple[str, int]]:
        """The outputs of ops, loops and branches whose sizes neither are exact nor follow from sizes of others."""
        if self._bound is None or self._likely is None or self._exact is None:
            return []
        walk = self._bound
        reported = {part for path, _ in walk.origins for part in (path, path.rpartition("/")[0])}
        return [
            output
            for output, origins in walk.origins.items()
            if not is_known(self._exact.shape(output))
            and (
                _decides(output, origins)
                or not origins - walk.origins_of_inputs(output[0]) <= reported
                or not is_known(walk.shape(output))
                or not is_known(self._likely.shape(output))
            )
        ]

    def notes(self, trace: Trace) -> list[str]:
        """A note for each given size and number of rounds that is not used. Call it when all loops of the trace were read.

        Raises:
            OptionError: no op, argument or loop of the trace has such a name. Gradient ops are not in every trace of a function.
        """
        used = [loop for loop, known in self.rounds.known.items() if known.source == "given"]
        unused_rounds = [name for name in self._given_rounds if not any(is_named(name, loop) for loop in used)]
        unused = {"sizes": list(self._unused), "rounds": unused_rounds}
        if any(unused.values()):
            paths = dict.fromkeys(path for body in trace.root.walk() for path in body.names.values())
            paths |= dict.fromkeys(path for path, _ in (self._exact.traced if self._exact else ())) | dict.fromkeys(
                self.rounds.known
            )
            not_known = {"sizes": [path for path, _ in self.open_outputs()], "rounds": [*self.rounds.known]}
            for option, names in unused.items():
                for name in names:
                    check_name(option, name, trace.name, not_known[option], paths)
        return [
            f"{name!r}: the sizes {_said(self._given[name])} are not used, they do not fit its shape {self._unfit[name]}. "
            "Give a number for each dimension, or for each open one."
            if name in self._unfit
            else f"{name!r}: what is given for it is not used, no open size or loop has this name."
            for name in (*unused["sizes"], *unused["rounds"])
        ]

    def of_nodes(self, outputs: Mapping[str, int]) -> dict[str, tuple[Size | None, ...]]:
        """By node with an output whose shape is not exact: `size_of` each output; `outputs` has each node's number of them."""
        if self._bound is None and not self._of_call:
            return {}
        sizes = {path: tuple(self.size_of(path, k) for k in range(count)) for path, count in outputs.items()}
        return {path: of_node for path, of_node in sizes.items() if any(of_node)}


def _decides(output: tuple[str, int], origins: Collection[str]) -> bool:
    """Whether the size of an output begins there: at its op, or at the loop or branch whose value it is.

    A branch's value counts too if it has the size of a body's op: a run may take another body.
    """
    holder, _, value = output[0].rpartition("/")
    return output[0] in origins or holder in origins or value == "out"


def _high(likely: int | None) -> int:
    return max(HIGH_SIDE, 10 * (likely or 0))


def _said(shape: Shape) -> str:
    return "[" + ",".join("?" if side is None else str(side) for side in shape or ()) + "]"


def _filled(shape: Shape, numbers: Sequence[int]) -> Shape:
    """A partly known shape with the given numbers; None if they do not fit it."""
    if shape is None:
        return tuple(numbers)
    if len(numbers) == len(shape):
        return tuple(numbers) if all(s in (None, n) for s, n in zip(shape, numbers, strict=True)) else None
    if len(numbers) != shape.count(None):
        return None
    rest = iter(numbers)
    return tuple(next(rest) if side is None else side for side in shape)


def _argument_shape(value: object) -> Shape:
    shape = getattr(value, "shape", None)
    return as_tuple(shape) if isinstance(shape, tf.TensorShape) else None


def _has_unknown(trace: Trace) -> bool:
    """Whether the shape of any tensor in a trace is not known."""
    return any(
        is_open(op.type, tensor, as_tuple(tensor.shape))
        for body in trace.root.walk()
        for name, op in body.operations.items()
        for tensor in (body.results(name) if name in body.children else op.outputs)
    )
