"""Random programs: a strategy for functions that are well typed by construction and print as the Python they are.

A program is drawn as a tree of steps that knows no names: rows of the grammar, loops, branches and calls, each with numbers that
choose among the values of a fitting type when its turn comes. So any tree is a program, also one that hypothesis has cut down.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st

from tests.helpers.grammar import (
    ANY_LENGTH,
    DTYPES,
    FLOATS,
    INTS,
    MATRIX,
    NUMBERS,
    ROWS,
    SCALAR,
    SHAPES,
    STATIC,
    VARIABLES,
    VECTOR,
    Fits,
    Row,
    Type,
    of,
)
from tests.helpers.harness import OTHER, Program

Picks: TypeAlias = tuple[int, ...]
"""Numbers that choose: 0 the latest of what there is."""


@dataclass(frozen=True)
class Line:
    row: int
    """Its number, or of the first after it that has a use for a value there is."""
    picks: Picks


@dataclass(frozen=True)
class Loop:
    trips: Literal["known", "unknown", "while"]
    stacks: bool
    """Whether a value of each iteration is kept, in a TensorArray."""
    picks: Picks
    body: Steps


@dataclass(frozen=True)
class Map:
    picks: Picks
    body: Steps


@dataclass(frozen=True)
class Branch:
    picks: Picks
    bodies: Sequence[Steps]


@dataclass(frozen=True)
class Call:
    picks: Picks


@dataclass(frozen=True)
class Scope:
    device: str
    body: Steps


Step: TypeAlias = Line | Loop | Map | Branch | Call | Scope
Steps: TypeAlias = Sequence[Step]


@dataclass(frozen=True)
class Function:
    takes: Sequence[Type]
    body: Steps


@dataclass(frozen=True)
class Tree:
    """A whole program."""

    arguments: Sequence[tuple[Type, int]]
    """With the number of the device each is on."""
    variables: Sequence[tuple[Type, int]]
    functions: Sequence[Function]
    body: Steps
    results: int


# -- drawing -----------------------------------------------------------------------------------------------------------

picks = st.tuples(*[st.integers(0, 6)] * 4)
lines = st.builds(Line, st.integers(0, len(ROWS) - 1), picks)
variable_lines = st.builds(Line, st.integers(len(ROWS) - len(VARIABLES), len(ROWS) - 1), picks)


def steps(depth: int, longest: int) -> st.SearchStrategy[Steps]:
    if depth == 0:
        return st.lists(lines, min_size=1, max_size=longest)
    inner = st.deferred(lambda: steps(depth - 1, 3))
    return st.lists(
        st.one_of(
            *[lines] * 10,
            *[variable_lines] * 2,
            st.builds(Call, picks),
            st.builds(Branch, picks, st.lists(inner, min_size=2, max_size=3)),
            st.builds(Loop, st.sampled_from(["known", "unknown", "while"]), st.booleans(), picks, inner),
            st.builds(Map, picks, inner),
            st.builds(Scope, st.sampled_from([OTHER, "CPU:0"]), inner),
        ),
        min_size=1,
        max_size=longest,
    )


def types(dtypes: Sequence[str], shapes: Sequence[tuple[int | None, ...]]) -> st.SearchStrategy[Type]:
    return st.builds(Type, st.sampled_from(dtypes), st.sampled_from(shapes))


devices = st.integers(0, 1)
trees = st.builds(
    Tree,
    st.lists(st.tuples(types(DTYPES, (MATRIX, VECTOR, SCALAR, ANY_LENGTH)), devices), min_size=1, max_size=4),
    st.lists(st.tuples(types((*NUMBERS, "bool"), (MATRIX, VECTOR, SCALAR)), devices), max_size=3),
    st.lists(st.builds(Function, st.lists(types(DTYPES, STATIC), min_size=1, max_size=2), steps(1, 3)), max_size=2),
    steps(2, 5),
    st.integers(1, 4),
)


@st.composite
def programs(draw: st.DrawFn) -> Source:
    return write(draw(trees))


# -- writing -----------------------------------------------------------------------------------------------------------


class Source(str):
    """A program's text, in which `f` is the function, `arguments` what it is called with, `variables` its state."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"\n{self}"

    def build(self) -> Program:
        names: dict[str, Any] = {}
        exec(compile(self, "<random program>", "exec"), names)
        return Program(fn=names["f"], args=names["arguments"], state=names["variables"], raises=False)


Value: TypeAlias = tuple[str, Type]
"""Its name, or the text of a constant."""


def write(tree: Tree) -> Source:
    writer = _Writer()
    writer.add("import tensorflow as tf")
    for kind, device in tree.variables:
        name = writer.made("v", kind, device, 'tf.Variable({value}, name="{name}")')
        writer.variables.append((name, kind))
    arguments = [(writer.made("a", kind, device, "{value}"), kind) for kind, device in tree.arguments]
    for function in tree.functions:
        writer.function(function)
    signature = ", ".join(f"tf.TensorSpec({list(kind.shape)}, tf.{kind.dtype})" for _, kind in arguments)
    writer.add(f"@tf.function(autograph=False, input_signature=[{signature}])")
    with writer.block(f"def f({names(arguments)}):"):
        scope = list(arguments)
        writer.steps(tree.body, scope)
        writer.add(f"return {names(scope[-tree.results :])}")
    writer.add(f"arguments = ({names(arguments)},)")
    writer.add(f"variables = [{names(writer.variables)}]")
    return Source("\n".join(writer.lines) + "\n")


@dataclass
class _Writer:
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    count: int = 0
    variables: list[Value] = field(default_factory=list)
    functions: list[tuple[str, Sequence[Type], Sequence[Type]]] = field(default_factory=list)
    """With what each takes and gives."""

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(head)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, prefix: str = "x") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def made(self, prefix: str, kind: Type, device: int, text: str) -> str:
        name = self.fresh(prefix)
        with self.block(f'with tf.device("{OTHER if device else "CPU:0"}"):'):
            self.add(f"{name} = {text.format(value=constant(kind, self.count), name=name)}")
        return name

    def pick(self, scope: Sequence[Value], number: int, fits: Fits, *before: Type, constants: bool = True) -> Value:
        """The value of this number among those that fit, the latest first and a constant, if allowed, last."""
        fitting = [value for value in reversed(scope) if fits(value[1], *before)]
        number %= len(fitting) + constants
        if number < len(fitting):
            return fitting[number]
        kind = next(kind for kind in TYPES if fits(kind, *before))
        return constant(kind, number), kind

    def latest(self, scope: Sequence[Value], fits: Fits) -> Value:
        return self.pick(scope, 0, fits)

    def function(self, function: Function) -> None:
        name = f"g{len(self.functions)}"
        scope = [(self.fresh(), kind) for kind in function.takes]
        self.add("@tf.function(autograph=False)")
        with self.block(f"def {name}({names(scope)}):"):
            self.steps(function.body, scope)
            self.add(f"return {names(scope[-2:])}")
        self.functions.append((name, function.takes, [kind for _, kind in scope[-2:]]))

    def steps(self, steps: Steps, scope: list[Value]) -> None:
        for step in steps:
            match step:
                case Line():
                    self.line(step, scope)
                case Loop():
                    self.loop(step, scope)
                case Map():
                    self.map(step, scope)
                case Branch():
                    self.branch(step, scope)
                case Call() if self.functions:
                    self.call(step, scope)
                case Scope():
                    with self.block(f'with tf.device("{step.device}"):'):
                        before = len(self.lines)
                        self.steps(step.body, scope)
                        if len(self.lines) == before:
                            self.add("pass")

    def line(self, line: Line, scope: list[Value]) -> None:
        following = (ROWS[(line.row + n) % len(ROWS)] for n in range(len(ROWS)))
        row = next(row for row in following if any(row.operands[0](kind) for _, kind in self.known(row, scope)))
        operands = [self.pick(self.known(row, scope), line.picks[0], row.operands[0], constants=False)]
        for number, fits in zip(line.picks[1:], row.operands[1:], strict=False):
            operands.append(self.pick(scope, number, fits, *[kind for _, kind in operands]))
        text = row.text.format(*[name for name, _ in operands])
        if row.result is None:
            self.add(text)
        else:
            self.give(text, [row.result(*[kind for _, kind in operands])], scope)

    def known(self, row: Row, scope: Sequence[Value]) -> Sequence[Value]:
        """What the first operand is one of."""
        return self.variables if row.variable else scope

    def give(self, text: str, kinds: Sequence[Type], scope: list[Value]) -> None:
        """Names what an expression gives."""
        values = [(self.fresh(), kind) for kind in kinds]
        self.add(f"{names(values)} = {text}")
        scope += values

    def loop(self, loop: Loop, scope: list[Value]) -> None:
        carried = [self.pick(scope, number, of(DTYPES)) for number in loop.picks[:2]]
        kinds = [kind for _, kind in carried]
        i, passed = self.fresh("i"), [(self.fresh(), kind) for kind in kinds]
        limit, size, more = str(loop.picks[2] % 4), str(loop.picks[2] % 4), ""
        match loop.trips:
            case "unknown":
                counted, _ = self.pick(scope, loop.picks[2], of(INTS))
                limit = size = self.fresh("n")
                self.add(f"{limit} = {COUNT.format(counted, 4)}")
            case "while":
                size, more = "0, dynamic_size=True", ", maximum_iterations=3"
        goes_on = HOLDS[kinds[0].dtype].format(passed[0][0]) if loop.trips == "while" else f"{i} < {limit}"
        taken = [i, *(name for name, _ in passed), *(["rows"] if loop.stacks else [])]
        body = self.fresh("body")
        with self.block(f"def {body}({', '.join(taken)}):"):
            inner = [*scope, (i, Type("int32", SCALAR)), *passed]
            self.steps(loop.body, inner)
            results = [self.latest(inner, lambda own, kind=kind: own == kind)[0] for kind in kinds]
            row, row_kind = self.latest(inner, of(DTYPES, SCALAR))
            self.add(f"return {', '.join([f'{i} + 1', *results, *([f'rows.write({i}, {row})'] if loop.stacks else [])])}")
        array = [f"tf.TensorArray(tf.{row_kind.dtype}, {size}, element_shape=[])"] if loop.stacks else []
        initial = ", ".join(["0", *(name for name, _ in carried), *array])
        if any(None in kind.shape for kind in kinds):
            shapes = [(), *(kind.shape for kind in kinds), *([None] if loop.stacks else [])]
            more += f", shape_invariants=[{', '.join(f'tf.TensorShape({shape})' for shape in shapes)}]"
        text = f"tf.while_loop(lambda {', '.join(taken)}: {goes_on}, {body}, [{initial}]{more})"
        if loop.stacks:
            rows = self.fresh("rows")
            values = [(self.fresh(), kind) for kind in kinds]
            self.add(f"_, {names(values)}, {rows} = {text}")
            scope += values
            self.give(f"{rows}.stack()", [Type(row_kind.dtype, ANY_LENGTH)], scope)
        else:
            self.give(f"{text}[1:]", kinds, scope)

    def map(self, step: Map, scope: list[Value]) -> None:
        source, kind = self.pick(scope, step.picks[0], of(DTYPES, VECTOR, MATRIX))
        each, element = self.fresh("each"), (self.fresh(), Type(kind.dtype, kind.shape[1:]))
        with self.block(f"def {each}({element[0]}):"):
            inner = [*scope, element]
            self.steps(step.body, inner)
            result, (dtype, shape) = self.latest(inner, of(DTYPES, SCALAR, VECTOR))
            self.add(f"return {result}")
        signature = f"tf.TensorSpec({list(shape)}, tf.{dtype})"
        self.give(f"tf.map_fn({each}, {source}, fn_output_signature={signature})", [Type(dtype, (3, *shape))], scope)

    def branch(self, branch: Branch, scope: list[Value]) -> None:
        two = len(branch.bodies) == 2
        chosen, (dtype, _) = self.pick(scope, branch.picks[0], of(DTYPES if two else INTS))
        wanted: Fits = of(DTYPES)
        made = []
        for steps in branch.bodies:
            made.append(self.fresh("branch"))
            with self.block(f"def {made[-1]}():"):
                inner = list(scope)
                self.steps(steps, inner)
                result, kind = self.latest(inner, wanted)
                self.add(f"return {result}")
            wanted = functools.partial(operator.eq, kind)
        if two:
            text = f"tf.cond({HOLDS[dtype].format(chosen)}, {', '.join(made)})"
        else:
            text = f"tf.switch_case({COUNT.format(chosen, 3)}, [{', '.join(made)}])"
        self.give(text, [kind], scope)

    def call(self, call: Call, scope: list[Value]) -> None:
        name, takes, gives = self.functions[call.picks[-1] % len(self.functions)]
        operands = [
            self.pick(scope, number, functools.partial(operator.eq, kind))
            for number, kind in zip(call.picks, takes, strict=False)
        ]
        self.give(f"{name}({names(operands)})", gives, scope)


TYPES = [Type(dtype, shape) for shape in SHAPES for dtype in DTYPES]

HOLDS = {
    **dict.fromkeys(FLOATS, "tf.reduce_sum({0}) < 0.7137"),
    **dict.fromkeys(INTS, "tf.reduce_sum({0}) % 4 < 3"),
    "bool": "tf.reduce_any({0})",
    "string": "tf.strings.length(tf.strings.reduce_join({0})) < 7",
}
"""A condition on a value, by its dtype."""

COUNT = "tf.cast(tf.reduce_sum({0}) % {1}, tf.int32)"
"""A number below {1} from integers."""

CONSTANTS = {
    **dict.fromkeys(FLOATS, (0.5, -1.25, 0.75, 1.5, -0.3, 0.1, -0.7, 1.1, 0.9)),
    **dict.fromkeys(INTS, (1, 4, -2, 7, 0, 3, -5, 2, 6)),
    "bool": (True, False, True, True, False, False, True, False, True),
    "string": ("b1", "c", "1a", "", "bb", "7", "x1", "c", "a"),
}


def constant(kind: Type, start: int) -> str:
    """Text of a constant, its numbers from position `start` on."""
    supply = itertools.cycle(CONSTANTS[kind.dtype])
    following = itertools.islice(supply, start, None)

    def nested(shape: Sequence[int | None]) -> Any:
        return [nested(shape[1:]) for _ in range(shape[0] or 4)] if shape else next(following)

    return f"tf.constant({nested(kind.shape)!r}, tf.{kind.dtype})"


def names(values: Sequence[Value]) -> str:
    return ", ".join(name for name, _ in values)


def every_row() -> Source:
    """A program with each row of the grammar once."""
    variables = [(Type(dtype, shape), 0) for dtype in (*NUMBERS, "bool") for shape in STATIC]
    return write(
        Tree([(Type("float32", MATRIX), 0)], variables, [], [Line(row, (0, 0, 0, 0)) for row in range(len(ROWS))], len(ROWS))
    )
