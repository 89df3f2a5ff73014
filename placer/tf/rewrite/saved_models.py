"""SavedModels on disk: copied, made of graphs of TensorFlow 1, and written with devices."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from placer.common.suggestions import keras_export
from placer.errors import OptionError, TraceError
from placer.tf._private.functions import keeping_devices

_V1 = tf.compat.v1
_REFERENCES = ("Variable", "VariableV2")
_NOT_OUTPUTS = ("Const", "NoOp", "Assert", "Placeholder")
DEFAULT_SIGNATURE = "serving_default"


def write_saved_model(source: Path, folder: Path) -> None:
    """Writes a SavedModel that can be placed: a copy of one, or one made of a graph of TensorFlow 1.

    Args:
        source: the folder of a SavedModel, or the file of a frozen GraphDef. Reference variables of TensorFlow 1 cannot be placed
            and become constants, unless the model has tables, whose values would be lost.
        folder: where to write. It must not exist.

    Raises:
        OptionError: there is neither a SavedModel nor a GraphDef.
        TraceError: it cannot be read.
    """
    if source.is_file():
        graph = _read_graph(source)
        _save(graph, {DEFAULT_SIGNATURE: _ends(graph)}, folder)
    elif not tf.saved_model.contains_saved_model(str(source)):
        raise OptionError(f"{source} is neither the folder of a SavedModel nor the file of a frozen GraphDef.")
    elif _has_references(source):
        _save(*_with_constants(source), folder)
    else:
        shutil.copytree(source, folder)


def save_with_devices(model: Any, signatures: Mapping[str, Any], folder: Path) -> None:
    """Writes a loaded SavedModel again, with the devices that its new signatures have.

    Args:
        model: what `tf.saved_model.load` gave.
        signatures: ConcreteFunctions, as `placer.tf.rewrite.rewriting.rewrite` gives them.
        folder: where to write. It must not exist.
    """
    with keeping_devices():
        tf.saved_model.save(model, str(folder), signatures=dict(signatures))


def _read_graph(path: Path) -> Any:
    graph = _V1.GraphDef()
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(path.read_text(), graph)
        else:
            graph.ParseFromString(path.read_bytes())
    except (OSError, UnicodeDecodeError, DecodeError, text_format.ParseError) as error:
        if way_out := keras_export(str(path)):
            raise OptionError(f"{path} is no GraphDef.{way_out}") from error
        raise TraceError(f"{path} cannot be read as a GraphDef: {error}") from error
    if not graph.node:
        raise TraceError(f"{path} is a GraphDef without nodes.")
    return graph


def _ends(graph: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The inputs and outputs of a frozen graph, each the name of a tensor by the name of its op."""
    read = {name.removeprefix("^").partition(":")[0] for node in graph.node for name in node.input}
    inputs = [node.name for node in graph.node if node.op == "Placeholder"]
    outputs = [node.name for node in graph.node if node.name not in read and node.op not in _NOT_OUTPUTS]
    return {name: f"{name}:0" for name in inputs}, {name: f"{name}:0" for name in outputs}


def _has_references(folder: Path) -> bool:
    ops = {node.op for node in _nodes(folder)}
    return not ops.isdisjoint(_REFERENCES) and not any("Table" in op for op in ops)


def _nodes(folder: Path) -> Iterator[Any]:
    path = folder / "saved_model.pb"
    if path.exists():
        read = SavedModel()
        read.ParseFromString(path.read_bytes())
        for part in read.meta_graphs:
            yield from part.graph_def.node


def _with_constants(folder: Path) -> tuple[Any, dict[str, tuple[dict[str, str], dict[str, str]]]]:
    """The graph of a SavedModel with constants in place of variables, and the inputs and outputs of its signatures.

    Raises:
        TraceError: it cannot be loaded.
    """
    with tf.Graph().as_default(), _V1.Session() as session:
        try:
            loaded = _V1.saved_model.load(session, [tf.saved_model.SERVING], str(folder))
        except (RuntimeError, OSError, ValueError, tf.errors.OpError) as error:
            raise TraceError(f"{folder} cannot be loaded as a SavedModel: {error}") from error
        signatures = {
            name: ({k: t.name for k, t in of.inputs.items()}, {k: t.name for k, t in of.outputs.items()})
            for name, of in loaded.signature_def.items()
            if of.outputs
        }
        outputs = {name.partition(":")[0] for _, made in signatures.values() for name in made.values()}
        return _V1.graph_util.convert_variables_to_constants(session, session.graph_def, sorted(outputs)), signatures


def _save(graph: Any, signatures: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]], folder: Path) -> None:
    """Writes a graph without state as a SavedModel."""
    wrapped = _V1.wrap_function(lambda: tf.import_graph_def(graph, name=""), [])
    tensor = wrapped.graph.get_tensor_by_name
    functions = {}
    for name, (inputs, outputs) in signatures.items():
        function = wrapped.prune([tensor(t) for t in inputs.values()], {k: tensor(t) for k, t in outputs.items()})
        function._arg_keywords = list(inputs)
        functions[name] = function
    tf.saved_model.save(tf.Module(), str(folder), signatures=functions)
