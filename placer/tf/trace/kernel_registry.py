"""The kernels of TensorFlow's registry and, for a build without GPU support, the GPU kernels that it lacks.

The package `tensorflow-cpu` and the builds for macOS and for 64-bit ARM have no GPU support. The kernels that they lack are read
from a snapshot: the GPU kernels of a build with GPU support, a file for each TensorFlow release. The file is written by
`python -m tests.helpers.kernel_snapshot`.
"""

from __future__ import annotations

import lzma
import re
from dataclasses import dataclass
from importlib import resources

import tensorflow as tf
from tensorflow.core.framework.kernel_def_pb2 import KernelDef, KernelList
from tensorflow.python.framework import kernels

SNAPSHOTS, SUFFIX = resources.files(__package__) / "gpu_kernels", ".binpb.xz"


@dataclass(frozen=True)
class KernelRegistry:
    """All kernels that a plan may use."""

    kernels: tuple[KernelDef, ...]
    snapshot: str
    """Where the GPU kernels are from, in words; "" if they are this build's own."""

    @staticmethod
    def read() -> KernelRegistry:
        """The registry of this process as it is now."""
        own = tuple(kernels.get_all_registered_kernels().kernel)
        if any(kernel.op == "MatMul" and kernel.device_type == "GPU" for kernel in own):
            return KernelRegistry(own, "")
        release = _release(tf.__version__)
        nearest = min(releases(), key=lambda other: abs(100 * (other[0] - release[0]) + other[1] - release[1]))
        known = {kernel.SerializeToString(deterministic=True) for kernel in own}
        lacking = [kernel for kernel in snapshot(nearest) if kernel.SerializeToString(deterministic=True) not in known]
        name = f"TensorFlow {nearest[0]}.{nearest[1]}"
        if nearest != release:
            name += f", the release nearest to {tf.__version__} that has a snapshot"
        return KernelRegistry((*own, *lacking), name)


def releases() -> list[tuple[int, int]]:
    """The TensorFlow releases that have a snapshot, as (2, 21)."""
    return sorted(_release(file.name) for file in SNAPSHOTS.iterdir() if file.name.endswith(SUFFIX))


def snapshot(release: tuple[int, int]) -> list[KernelDef]:
    """The GPU kernels of a release, and those for devices of all types."""
    content = (SNAPSHOTS / f"{release[0]}.{release[1]}{SUFFIX}").read_bytes()
    return list(KernelList.FromString(lzma.decompress(content)).kernel)


def _release(text: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)
