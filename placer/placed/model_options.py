"""Options of the signatures of one model. Each signature gets the pins, sizes and rounds that name something in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from placer.errors import OptionError
from placer.graph.matching import matching
from placer.graph.op_graph import OpGraph
from placer.options import Options


def options_by_signature(graphs: Mapping[str, OpGraph], options: Options) -> dict[str, Options]:
    """The options of each signature. A name that fits no signature stays with the first one, whose planning reports it.

    Args:
        graphs: by signature.
        options: given for all signatures.
    """
    own: dict[str, dict[str, Any]] = {name: {option: {} for option in _FITS} for name in graphs}
    for option, is_fit in _FITS.items():
        for name, value in getattr(options, option).items():
            fitting = [signature for signature, graph in graphs.items() if is_fit(graph, name)]
            for signature in fitting or list(graphs)[:1]:
                own[signature][option][name] = value
    return {signature: replace(options, **given) for signature, given in own.items()}


def fitting_options(graph: OpGraph, options: Options) -> Options:
    """Options without the pins, sizes and rounds that name nothing in a graph."""
    own: dict[str, Any] = {}
    for option, is_fit in _FITS.items():
        own[option] = {name: value for name, value in getattr(options, option).items() if is_fit(graph, name)}
    return replace(options, **own)


def _fits_pin(graph: OpGraph, pattern: str) -> bool:
    try:
        return bool(matching(graph, pattern))
    except OptionError:
        return False


def _fits_size(graph: OpGraph, pattern: str) -> bool:
    return any(fnmatchcase(op.name, pattern) for op in graph)


def _fits_rounds(graph: OpGraph, pattern: str) -> bool:
    return any(fnmatchcase(loop, pattern) for loop in graph.rounds)


_FITS: dict[str, Callable[[OpGraph, str], bool]] = {"pins": _fits_pin, "sizes": _fits_size, "rounds": _fits_rounds}
"""By option: whether a name in it names something in a graph."""
