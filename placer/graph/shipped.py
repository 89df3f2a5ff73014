"""Op graphs of real TensorFlow functions that come with the package; `graphs/README.md` says what they are."""

from __future__ import annotations

import json
import lzma
from importlib import resources

from placer.errors import OptionError
from placer.graph.op_graph import OpGraph

FOLDER, ENDING = "graphs", ".json.xz"


def shipped_graphs() -> tuple[str, ...]:
    """Their names, sorted."""
    files = resources.files("placer.graph").joinpath(FOLDER).iterdir()
    return tuple(sorted(file.name.removesuffix(ENDING) for file in files if file.name.endswith(ENDING)))


def shipped_graph(name: str) -> OpGraph:
    """The graph of that name. Raises OptionError listing them where there is none."""
    if name not in shipped_graphs():
        raise OptionError(f"no graph that comes with placer is called {name!r}; there are {', '.join(shipped_graphs())}.")
    packed = resources.files("placer.graph").joinpath(FOLDER, name + ENDING).read_bytes()
    return OpGraph.from_json(json.loads(lzma.decompress(packed)), name)


def packed(graph: OpGraph) -> bytes:
    """The graph as such a file has it."""
    return lzma.compress(json.dumps(graph.to_json(), separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
