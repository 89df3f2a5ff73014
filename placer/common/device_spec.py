"""Device strings as TensorFlow writes them, full or partial, parsed without TensorFlow."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from placer.errors import OptionError

_TYPES = ("CPU", "GPU", "TPU", "CUSTOM", "EPU")
"""Device types that need no "device:" before them and may be written in lower case."""

_EXAMPLES = 'devices look like "GPU:0", "/CPU", "worker:1/GPU:0" or "/job:a/task:0/device:GPU:1"'
_JOB = re.compile(r"job:([a-zA-Z]\w*)", re.ASCII)
_NUMBER = re.compile(r"(replica|task):(\d+)", re.ASCII)
_TASK = re.compile(r"([a-zA-Z]\w*):(\d+)", re.ASCII)
_DEVICE = re.compile(rf"(?:device:(\w+)|((?i:{'|'.join(_TYPES)})))(?::(\d+|\*))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """The parts of a device string; None for a part that it does not name. Merging and naming follow `tf.DeviceSpec`."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    type: str | None = None
    index: int | None = None

    def merge(self, outer: DeviceSpec) -> DeviceSpec:
        """This spec as an inner scope of `outer`: a part that it does not name is taken from `outer`."""
        pairs = ((getattr(self, f.name), getattr(outer, f.name)) for f in fields(self))
        return DeviceSpec(*(outside if inside is None else inside for inside, outside in pairs))

    def matches(self, device_name: str) -> bool:
        """Whether it allows the device `device_name`. A name without a job is a device of this process.

        A spec such as "GPU:0", which names one device and no task, allows that device of this process alone. "GPU" allows the
        GPUs of every task.
        """
        device = parse(device_name).merge(_own_task)
        is_bare = self.index is not None and self.job is None and self.task is None
        return (self.merge(_own_task) if is_bare else self).merge(device) == device

    @property
    def is_of_process(self) -> bool:
        """Whether it names no job, or the task that this process is."""
        return self.job in (None, "localhost") or (self.job, self.task or 0) == (_own_task.job, _own_task.task)

    @property
    def short(self) -> str:
        """The short name: "GPU:0" of this process, "worker:1/GPU:0" of another task, "GPU" for any GPU, "" without a type."""
        if self.type is None:
            return ""
        task = "" if self.is_of_process else f"{self.job}:{self.task or 0}/"
        return f"{task}{self.type}" if self.index is None else f"{task}{self.type}:{self.index}"

    @property
    def full(self) -> str:
        """The full name of one device, "/job:localhost/replica:0/task:0/device:GPU:0" in a process that is no task of a cluster.

        Parts that it does not name become those of this process and of its first device.

        Raises:
            OptionError: no device type is named.
        """
        if self.type is None:
            raise OptionError(f"{self} names no device type: add one, such as CPU or GPU")
        spec = self.merge(_own_task)
        return f"/job:{spec.job}/replica:{spec.replica}/task:{spec.task}/device:{spec.type}:{spec.index or 0}"


_own_task = DeviceSpec(job="localhost", replica=0, task=0)
"""The task that this process is, see `set_own_task`."""


def set_own_task(text: str) -> None:
    """Says which task this process is: short names leave it out, and full names have it.

    Args:
        text: such as "/job:worker/replica:0/task:1". Until this is called, it is "/job:localhost/replica:0/task:0".
    """
    global _own_task  # noqa: PLW0603
    _own_task = parse(text)


def parse(text: str) -> DeviceSpec:
    """Parses "/job:a/replica:0/task:1/device:GPU:0" or any part of it: "/GPU:0", "gpu:0", "CPU", "/device:GPU:*", "".

    A short name may start with a task: "a:1/GPU:0" is "/job:a/task:1/device:GPU:0".

    Raises:
        OptionError: `text` is no text, has a part that is none of these, or names two devices.
    """
    if not isinstance(text, str):
        raise OptionError(f"{text!r} is not a device; {_EXAMPLES}")
    parts: dict[str, Any] = {}
    for part in filter(None, text.split("/")):
        if job := _JOB.fullmatch(part):
            parts["job"] = job[1]
        elif number := _NUMBER.fullmatch(part):
            parts[number[1]] = int(number[2])
        elif device := _DEVICE.fullmatch(part):
            if "type" in parts:
                raise OptionError(f"{text!r} names two devices; name one")
            kind, index = device[1] or device[2], device[3]
            parts["type"] = kind.upper() if kind.upper() in _TYPES else kind
            parts["index"] = None if index in (None, "*") else int(index)
        elif (task := _TASK.fullmatch(part)) and text.startswith(f"{part}/"):
            parts["job"], parts["task"] = task[1], int(task[2])
        else:
            raise OptionError(f"cannot read {part!r}; {_EXAMPLES}")
    if parts.get("job") == "localhost" and _own_task.job != "localhost":  # TensorFlow says so of some tensors of a task
        parts |= {"job": _own_task.job, "task": _own_task.task}
    return DeviceSpec(**parts)
