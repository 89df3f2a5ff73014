"""What an upgrade of TensorFlow changes: the op registry against the table that was reviewed."""

from __future__ import annotations

import difflib

import pytest

from placer.tf.trace.kernels import KernelIndex
from tests.helpers.registry_table import GOLDEN, table


def test_the_registry_is_the_one_that_was_reviewed() -> None:
    if not GOLDEN.exists():
        pytest.skip(
            f"no table of this TensorFlow was reviewed yet ({GOLDEN.name}): python -m tests.helpers.registry_table writes it"
        )
    if "GPU" not in KernelIndex.shared().lookup_type("MatMul", {"T": "float32"}).kernels:
        pytest.skip("the reviewed tables are of builds with GPU support")
    changed = difflib.unified_diff(GOLDEN.read_text().splitlines(), list(table()), "reviewed", "here", lineterm="", n=0)
    lines = [line for line in changed if not line.startswith("@@")]
    assert not lines, "\n".join(
        [*lines, "", "If this is right, renew the table and review its diff: python -m tests.helpers.registry_table"]
    )
