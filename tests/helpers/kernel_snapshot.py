"""Writes the snapshot of the GPU kernels of the installed TensorFlow, which must be a build with GPU support.

python -m tests.helpers.kernel_snapshot
"""

from __future__ import annotations

import lzma
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework.kernel_def_pb2 import KernelList
from tensorflow.python.framework import kernels

from cost_models.files import write_whole
from placer.tf.trace import kernel_registry


def content() -> bytes:
    """The file's content. Kernels are sorted, so that equal registries give equal files."""
    registered = [k for k in kernels.get_all_registered_kernels().kernel if k.device_type in ("GPU", "DEFAULT")]
    listed = KernelList(kernel=sorted(registered, key=lambda kernel: kernel.SerializeToString(deterministic=True)))
    return lzma.compress(listed.SerializeToString(deterministic=True), preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    if not tf.test.is_built_with_gpu_support():
        raise SystemExit(f"TensorFlow {tf.__version__} is built without GPU support: install the package `tensorflow`.")
    release = ".".join(tf.__version__.split(".")[:2])
    path = Path(kernel_registry.__file__).parent / "gpu_kernels" / f"{release}{kernel_registry.SUFFIX}"
    write_whole(path, content())
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
