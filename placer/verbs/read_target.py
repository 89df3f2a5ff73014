"""The op graph that a TARGET names, a function, a SavedModel's signature, a saved graph or plan, and the options with it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from placer.common.suggestions import keras_export
from placer.errors import OptionError, PlacerError
from placer.options import Options

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph
    from placer.plan.placement import Placement

DEFAULT_SIGNATURE = "serving_default"
FUNCTION = re.compile(r"(?!shipped:)[\w.]+:[^\W\d][\w.]*")
"""MODULE:FUNCTION."""
SHIPPED = "shipped:"
ONNX = ".onnx"
"""What the name of a model in ONNX ends in."""


def read_target(
    target: str, signature: str | None = None, overrides: Mapping[str, Any] = MappingProxyType({})
) -> tuple[OpGraph, Options]:
    """The op graph of a saved graph or plan, of a SavedModel's signature, or of a function; and the options that come with it.

    Args:
        target: a ``.json`` file, a model in ONNX, a SavedModel's folder, ``module:function``, or ``shipped:NAME`` for a graph
            that comes along, to be placed on an H100 with the costs that come along too.
        signature: a type for each argument of a function, or the name of a SavedModel's signature.
        overrides: options that replace those of the target: a function is traced for the machine that these name.

    Raises:
        OptionError: there is no such thing, or the signature does not fit it.
        PlanError: the file is broken.
        TraceError: the function cannot be traced.
    """
    path = Path(target)
    if path.suffix in {".json", ONNX} or target.startswith(SHIPPED):
        if signature is not None:
            raise OptionError(f"--signature is for functions and SavedModels; {target} has its types.")
        if given := [name for name in ("sizes", "rounds") if overrides.get(name)]:
            raise OptionError(f"{' and '.join(given)} are for functions and SavedModels; those of {target} are in it.")
        if target.startswith(SHIPPED):
            return _shipped(target.removeprefix(SHIPPED))
        return _read_onnx(path) if path.suffix == ONNX else _read_json(path)
    from placer.tf.run.starting import start
    from placer.verbs.build_graph import build_graph

    if path.is_dir():
        start()
        from placer.tf.trace.targets import load_signature

        chosen = Options.of(overrides)
        model, function = load_signature(path, signature or DEFAULT_SIGNATURE)
        graph = build_graph(function, sizes=chosen.sizes, rounds=chosen.rounds)
        del model  # its variables had to live until here
        return graph, Options()
    function, specs, options = target_function(target, signature)
    chosen = replace(options, **overrides)
    with called_as(target, signature):
        traced_for = chosen.devices if chosen.trace_for == "target" else None
        graph = build_graph(function, *specs, devices=traced_for, sizes=chosen.sizes, rounds=chosen.rounds)
    return graph, options


def is_function_or_model(target: str) -> bool:
    """Whether a target has the form of MODULE:FUNCTION, or is a folder."""
    return Path(target).is_dir() or FUNCTION.fullmatch(target) is not None


def is_unknown(target: str) -> bool:
    """Whether a target is neither a file or a folder, nor shipped, nor of a module that exists. Imports nothing."""
    if Path(target).exists() or Path(target).suffix or target.startswith(SHIPPED):
        return False
    top = target.partition(":")[0].partition(".")[0]
    return ":" not in target or not top or PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is None


def target_function(target: str, signature: str | None) -> tuple[Any, tuple[Any, ...], Options]:
    """The plain function that a target names, a type for each argument, and the options that come with it.

    A placed function has options, and the plain function as ``__wrapped__``. TensorFlow's devices start after the import of the
    function's module, which may set them.

    Raises:
        OptionError: it cannot be imported, is no function, or cannot be called with so many arguments.
    """
    from placer.tf.run.starting import import_tensorflow, start

    import_tensorflow()
    from placer.tf.trace.targets import check_call, parse_specs

    specs = parse_specs(signature or "")
    function = _imported(target)
    start()
    options = getattr(function, "options", None)
    if isinstance(options, Options):
        function = function.__wrapped__
    else:
        options = Options()
    check_call(function, specs, target)
    return function, specs, options


@contextmanager
def called_as(target: str, signature: str | None) -> Iterator[None]:
    """Turns the error of a function that cannot take its arguments into an OptionError."""
    try:
        yield
    except PlacerError:
        raise
    except (TypeError, ValueError) as error:
        raise OptionError(f"{target!r} cannot be called with {signature!r}: {error}") from error


def check_there(path: Path) -> None:
    """OptionError unless there is such a file."""
    if not path.exists():
        raise OptionError(f"there is no file {path}.")


def _shipped(name: str) -> tuple[OpGraph, Options]:
    from cost_models.auto import shipped_model
    from placer.graph.shipped import shipped_graph

    return shipped_graph(name), Options(devices="h100", cost_model=shipped_model())


def _read_onnx(path: Path) -> tuple[OpGraph, Options]:
    from placer.graph.onnx_graph import read_onnx

    return read_onnx(path), Options()


def _read_json(path: Path) -> tuple[OpGraph, Options]:
    """A saved graph, or the graph of a saved plan (see `of_plan`)."""
    from placer.common.json_files import read_json
    from placer.graph.op_graph import OpGraph
    from placer.plan.placement import Placement
    from placer.plan.saving import FORMAT

    check_there(path)
    if read_json(path).get("format") != FORMAT:
        return OpGraph.load(path), Options()
    return of_plan(Placement.load(path))


def of_plan(plan: Placement) -> tuple[OpGraph, Options]:
    """The graph of a plan, and options that plan it for the same machine if that is a shipped one."""
    from cost_models.machine_files import shipped_machines

    return plan.graph, Options(devices=plan.machine if plan.machine in shipped_machines() else None)


def _imported(target: str) -> Any:
    """The object that "package.module:name.name" names, importing from the working directory too."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise OptionError(
            f"{target!r} is no SavedModel folder, no .json file that exists, no shipped:NAME, and not MODULE:FUNCTION."
            + keras_export(target)
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        named: Any = importlib.import_module(module)
        for part in name.split("."):
            named = getattr(named, part)
    except Exception as error:
        if module.endswith(".py"):
            path = module.removesuffix(".py").strip("./").replace("/", ".")
            raise OptionError(f"{target!r} names a file: give its module, without .py: {path}:{name}.") from error
        raise OptionError(f"{target!r} cannot be imported: {type(error).__name__}: {error}.") from error
    return named
