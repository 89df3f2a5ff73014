"""A TensorFlow that placer was not checked with is told of once, with the private names that changed in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import placer.tf
from placer.tf import version_guard
from tests.helpers import forked

HERE = "from tensorflow.python.framework import func_graph, no_such_module\nfunc_graph.FuncGraph('name')\n"


def test_every_private_name_that_placer_uses_is_there() -> None:
    files = sorted(Path(placer.tf.__file__).parent.rglob("*.py"))
    assert len(files) > 10
    assert version_guard.changed_names(file.read_text() for file in files) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("func_graph.NoSuchGraph", "tensorflow.python.framework.func_graph.NoSuchGraph"),
        ("func_graph.FuncGraph()", "tensorflow.python.framework.func_graph.FuncGraph"),
        ("func_graph.FuncGraph('name', no_such_argument=1)", "tensorflow.python.framework.func_graph.FuncGraph"),
    ],
)
def test_names_that_are_missing_or_take_other_arguments(line: str, name: str) -> None:
    missing = "tensorflow.python.framework.no_such_module"
    assert version_guard.changed_names([HERE]) == [missing]
    assert version_guard.changed_names([f"{HERE}{line}\n"]) == sorted([missing, name])


def test_the_message_names_the_version_and_the_names() -> None:
    text = version_guard.message("2.99.0", ["tensorflow.python.a.b"])
    assert "TensorFlow 2.99.0" in text
    assert "tensorflow.python.a.b" in text
    assert "2.21" in text


IMPORT = """
import warnings
import cost_models.auto
cost_models.auto.installed_tensorflow = lambda: {version!r}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import placer.tf.devices
    import placer.tf.trace.tracing
print(sum("not checked with TensorFlow" in str(warning.message) for warning in caught))
"""


@pytest.mark.parametrize(("version", "warned"), [("2.21.0", 0), ("2.99.0", 1)])
def test_the_first_import_warns_once(version: str, warned: int) -> None:
    done = forked.run("-c", IMPORT.format(version=version))
    assert done.stdout.split() == [str(warned)], done.stderr
