"""The wheel and the sdist: what they contain, how large they are, and what they say of themselves."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import placer

ROOT = Path(__file__).parents[1]
MAX_TEST_DATA_BYTES, MAX_SNAPSHOT_BYTES = 1_000_000, 200_000

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="compares with the files of the repository")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and an sdist."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


def tracked(*folders: str) -> set[str]:
    """The files in these folders that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


def test_the_wheel_has_the_packages_with_their_data_and_the_examples(wheel: zipfile.ZipFile) -> None:
    files = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert files == tracked("placer", "cost_models") | {f"placer/{name}" for name in tracked("examples")}
    assert {
        "placer/py.typed",
        "cost_models/py.typed",
        "placer/common/plan.schema.json",
        "placer/examples/training_step.py",
        "cost_models/profiles/h100.toml",
        "placer/graph/graphs/detector.json.xz",
    } <= files
    snapshots = [wheel.getinfo(name) for name in files if name.startswith("placer/tf/trace/gpu_kernels/")]
    assert len(snapshots) >= 2
    assert all(file.file_size < MAX_SNAPSHOT_BYTES for file in snapshots)


def test_the_sdist_makes_the_wheel_and_has_no_large_test_data(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        size_of = {file.name.partition("/")[2]: file.size for file in archive.getmembers()}
    top = {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "Makefile"}
    assert tracked("placer", "cost_models", "examples", "docs") | top <= set(size_of)
    test_bytes = sum(size for name, size in size_of.items() if name.startswith("tests/data/"))
    assert 0 < test_bytes < MAX_TEST_DATA_BYTES


def test_the_metadata_is_complete(wheel: zipfile.ZipFile) -> None:
    stated: Message = message_from_bytes(wheel.read(f"placer-{placer.__version__}.dist-info/METADATA"))
    assert stated["Name"] == "placer"
    assert stated["Version"] == placer.__version__
    assert stated["License-Expression"] == "Apache-2.0"
    assert stated["License-File"] == "LICENSE"
    assert f"placer-{placer.__version__}.dist-info/licenses/LICENSE" in wheel.namelist()
    assert stated["Description-Content-Type"] == "text/markdown"
    assert stated["Author"]
    assert stated["Keywords"]
    assert stated["Requires-Python"] == "<3.14,>=3.11"
    assert stated.get_all("Project-URL")
    assert "placer = placer.command.main:main" in wheel.read(f"placer-{placer.__version__}.dist-info/entry_points.txt").decode()
