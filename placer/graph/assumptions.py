"""What a graph assumes of sizes and rounds that it leaves open, what a run had of them, and what they are at both ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from cost_models.base import TensorSpec
from cost_models.ops import entry_of
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError
from placer.graph.op_graph import OpGraph, OpNode
from placer.graph.sizes import End, Source

_OPEN = frozenset[Source](["assumed", "bound"])
_ASSUMED = frozenset[Source](["assumed"])
MAX_OPS_NAMED, MAX_VALUES_NAMED = 4, 3


class Assumption(NamedTuple):
    """An argument, op or loop whose sizes or rounds follow from nothing, or an op whose functions cannot be read."""

    kind: Literal["argument", "op", "loop", "function"]
    node: str
    text: str
    """A sentence."""


def assumptions(graph: OpGraph) -> tuple[Assumption, ...]:
    """The arguments and ops in which sizes that are assumed begin, the loops whose rounds are assumed, and unread functions."""
    begun = []
    for name, sizes in graph.sizes.items():
        op = graph.op(name)
        if op.count and any(size and size.source == "assumed" for size in sizes) and _begins(graph, name, _ASSUMED):
            kind: Literal["argument", "op"] = "argument" if op.role == "argument" else "op"
            begun.append(Assumption(kind, name, f"{kind} {name!r}: {_sizes(graph, name)}"))
    loops = [
        Assumption(
            "loop",
            loop,
            f"loop {loop!r}: how often it runs cannot be read from the graph and counts as {rounds.value}. "
            "Learn from a call, or give the rounds, for true costs.",
        )
        for loop, rounds in graph.rounds.items()
        if rounds.source == "assumed" and _runs(graph, loop)
    ]
    unread = [Assumption("function", op.name, _unread(op)) for op in graph if op.count and _is_unread(op)]
    return (*begun, *loops, *unread)


def assumption_notes(graph: OpGraph) -> tuple[str, ...]:
    """The sentences about all arguments, loops and functions, and about the first ops."""
    found = assumptions(graph)
    ops = [each.text for each in found if each.kind == "op"]
    more = [f"{len(ops) - MAX_OPS_NAMED} more ops have sizes that are assumed."] if len(ops) > MAX_OPS_NAMED else []
    others = [each.text for each in found if each.kind != "op"]
    return (*others, *ops[:MAX_OPS_NAMED], *more)


def assumed_in_short(graph: OpGraph) -> str:
    """The nodes whose sizes, rounds or functions are not known, for the end of a sentence; "" where nothing is assumed."""
    named: dict[str, list[str]] = {"sizes": [], "the number of rounds": [], "no cost": []}
    for each in assumptions(graph):
        named[{"loop": "the number of rounds", "function": "no cost"}.get(each.kind, "sizes")].append(repr(each.node))
    parts = [f"{what} of {_some(names)}" for what, names in named.items() if names]
    return f"assuming {_all(parts)}" if parts else ""


def values_at(graph: OpGraph, end: End) -> str:
    """What is open and differs at an end, with its values there, such as "500 rounds of 'while' and sizes [256,784] of 'x'"."""
    rounds = [
        f"{known.at(end)} round{'s' * (known.at(end) != 1)} of {loop!r}"
        for loop, known in graph.rounds.items()
        if known.at(end) != known.value and _runs(graph, loop)
    ]
    sizes = []
    for name, of_node in graph.sizes.items():
        shape = next((shape for size in of_node if size and (shape := size.at(end)) is not None), None)
        if shape is not None and graph.op(name).count and _begins(graph, name, _OPEN):
            sizes.append(f"sizes [{','.join(map(str, shape))}] of {name!r}")
    return _all(rounds + sizes) or f"the {'smallest' if end == 'low' else 'largest'} likely sizes"


def depends_on_open(graph: OpGraph, name: str) -> bool:
    """Whether an op's cost depends on sizes or rounds that are assumed or only bounded."""
    op = graph.op(name)
    made = [size for k in range(len(op.signature.outputs)) if (size := graph.size_of(name, k))]
    read = [
        size for source, edge in graph.inputs_of(name) if edge.dst_index >= 0 and (size := graph.size_of(source, edge.src_index))
    ]
    loops = [loop for loop, known in graph.rounds.items() if known.source in _OPEN]
    return any(size.source in _OPEN for size in (*made, *read)) or any(op.body.startswith(f"{loop}/") for loop in loops)


def known_in_short(graph: OpGraph, source: Literal["seen", "given"]) -> str:
    """The rounds, branches and sizes that a run had, or that the user gave; "" for none."""
    parts = [
        f"{known.value} round{'s' * (known.value != 1)} of {loop!r}"
        for loop, known in graph.rounds.items()
        if known.source == source
    ]
    if source == "seen":
        parts += [f"{branch!r} took {_all([*map(str, times)], len(times))} times" for branch, times in graph.taken.items()]
    ops = [name for name, sizes in graph.sizes.items() if any(size and size.source == source for size in sizes)]
    begun = [name for name in ops if _begins(graph, name, frozenset([source]))]
    shapes = {name: shape for name in begun if (shape := _shape_of(graph, name, source))}
    return _all(parts + [f"sizes {shape} of {name!r}" for name, shape in shapes.items()])


def without_bound(graph: OpGraph) -> tuple[str, ...]:
    """The outputs that run and whose sizes have no upper bound, each as "op:output"."""
    return tuple(
        f"{name}:{k}"
        for name, sizes in graph.sizes.items()
        if graph.op(name).count
        for k, size in enumerate(sizes)
        if size and (size.bound is None or None in size.bound)
    )


def check_given(graph: OpGraph, sizes: Mapping[str, Any], rounds: Mapping[str, Any]) -> None:
    """Checks given sizes and rounds, as `Options` has them, against a graph that was made before.

    Raises:
        OptionError: nothing in the graph has such a name, or the graph was made without these numbers.
    """
    for name, numbers in sizes.items():
        named = [
            (size, spec.shape)
            for node, of_node in graph.sizes.items()
            if is_named(name, node)
            for size, spec in zip(of_node, graph.op(node).signature.outputs, strict=True)
            if size
        ]
        is_used = any(size.source == "given" and _has_numbers(shape, numbers) for size, shape in named)
        _check_given(graph, "sizes", name, graph.sizes, not named or is_used)
    for name, number in rounds.items():
        named_rounds = [known for loop, known in graph.rounds.items() if is_named(name, loop) and known.source != "exact"]
        is_used = any(known == (number, "given") for known in named_rounds)
        _check_given(graph, "rounds", name, graph.rounds, not named_rounds or is_used)


def _has_numbers(shape: Sequence[int | None] | None, numbers: Sequence[int]) -> bool:
    """Whether a shape has the given numbers, in their order: one for each dimension, or for each that was open."""
    dimensions = iter(shape or ())
    return all(number in dimensions for number in numbers)


def _check_given(graph: OpGraph, option: str, name: str, likely_meant: Iterable[str], is_used: bool) -> None:
    if not is_used:
        raise OptionError(
            f"the {option} given for {name!r} are not those of the graph: it was made with others, or they do not fit. For "
            "a size, give a number for each dimension, or for each open one; build_graph(function, *args, sizes=..., rounds=...) "
            "takes them."
        )
    names = (*graph.graph, *graph.rounds)
    # Called functions and the values that loops pass on have names in a trace, and no node.
    if not any(node.startswith(f"{name}/") for node in names):
        check_name(option, name, graph.name, [*likely_meant], names)


def is_named(glob: str, name: str) -> bool:
    """Whether a node is meant by a name or glob in `sizes` or `rounds`."""
    return name == glob or fnmatchcase(name, glob)


def check_name(option: str, name: str, function: str, unknown: Sequence[str], names: Collection[str]) -> None:
    """Checks a name or glob in `sizes` or `rounds`. Gradient ops are not in every trace of a function, so their names pass.

    Args:
        option: "sizes" or "rounds".
        name: as given.
        function: its name.
        unknown: the names of what has sizes, or rounds, that are not known; the error lists some if none is similar.
        names: all names.

    Raises:
        OptionError: the function has no such name.
    """
    if name.startswith("backward/") or any(is_named(name, each) for each in names):
        return
    what = "loop" if option == "rounds" else "op or argument"
    close = did_you_mean(name, unknown or names)
    if close == "." and unknown:
        close = f"; {option} are not known of {', '.join(map(repr, unknown[:5]))}."
    raise OptionError(f"{option}, {name!r}: {function!r} has no such {what}{close}")


def _shape_of(graph: OpGraph, name: str, source: Source) -> str:
    """The shape of an op's first output of known sizes with this source; "" if there is none."""
    sizes = zip(graph.op(name).signature.outputs, graph.sizes[name], strict=True)
    known = (spec.shape or () for spec, size in sizes if size and size.source == source and not _is_open(spec))
    return next((f"[{','.join(map(str, shape))}]" for shape in known), "")


def _begins(graph: OpGraph, name: str, sources: Collection[Source]) -> bool:
    """Whether no input's size is of these sources already; for an output of unknown size, whether all inputs' sizes are known."""
    read = [(source, edge.src_index) for source, edge in graph.inputs_of(name)]
    if any(map(_is_open, graph.op(name).signature.outputs)):
        return not any(_is_open(graph.op(source).signature.outputs[k]) for source, k in read)
    sizes = (graph.size_of(source, k) for source, k in read)
    return not any(size and size.source in sources for size in sizes)


def _is_unread(op: OpNode) -> bool:
    """Whether an op runs functions that are not part of the graph, and that XLA does not compile with it."""
    return op.role == "op" and bool(entry_of(op.op_type).control) and "unit" not in op.flags


def _unread(op: OpNode) -> str:
    if entry_of(op.op_type).control == "loop":
        return f"loop {op.name!r}: its body cannot be read, and the loop counts as one round of nothing."
    return f"op {op.name!r}: what it calls cannot be read, and counts as nothing."


def _is_open(spec: TensorSpec) -> bool:
    return spec.shape is None or None in spec.shape


def _runs(graph: OpGraph, loop: str) -> bool:
    return loop not in graph.graph or graph.op(loop).count > 0


def _sizes(graph: OpGraph, name: str) -> str:
    op = graph.op(name)
    specs = [spec for spec, size in zip(op.signature.outputs, graph.sizes[name], strict=True) if size]
    unknown = next(filter(_is_open, specs), None)
    is_argument = op.role == "argument"
    advice = (
        f"{'Plan with example arguments, or give' if is_argument else 'Learn from a call, or give'} the sizes, for true costs."
    )
    if unknown is None:
        return f"its sizes depend on values and are assumed to be {', '.join(map(str, specs))}. {advice}"
    what = "its unknown sizes count as 1" if unknown.shape is not None else "of unknown rank, it counts as a scalar"
    return f"{what}. {advice}"


def _all(parts: Sequence[str], limit: int = MAX_VALUES_NAMED) -> str:
    """The first parts, joined by commas and "and"."""
    more = len(parts) - limit
    shown = [*parts[:limit], f"{more} more"] if more > 0 else parts
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _some(names: list[str]) -> str:
    more = len(names) - 2
    return ", ".join(names[:2]) + (f" and {more} more" if more > 0 else "")
