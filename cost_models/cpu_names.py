"""The name of a host's processor, precise enough that measurements of one are not used for a different one.

Many cloud hosts report a name without a generation ("AMD EPYC", "Intel(R) Xeon(R) CPU @ 2.20GHz"), and the newest of these may be
four times as fast as an older one. Such a name gets the processor's family and model appended. Earlier versions did not append
them, so data stored under a plain name may also belong to this host.
"""

from __future__ import annotations

import re

_GENERATION = re.compile(r" \(family (\d+), model (\d+)\)")


def cpu_name(cpuinfo: str) -> str:
    """The name of the first processor in the text of /proc/cpuinfo, "" where it has none.

    A name without a generation gets the family and model appended: "AMD EPYC (family 25, model 1)".
    """
    values: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        values.setdefault(key.strip(), value.strip())
    name, family, model = (values.get(key, "") for key in ("model name", "cpu family", "model"))
    lacks_generation = not re.search(r"\d", name.partition("@")[0])  # the clock rate after "@" is no generation
    return f"{name} (family {family}, model {model})" if name and lacks_generation and family and model else name


def cpu_generation(device_model: str) -> tuple[int, int] | None:
    """The family and model at the end of a device model's name, None where the name has none."""
    match = _GENERATION.search(device_model)
    return (int(match[1]), int(match[2])) if match else None


def without_generation(device_model: str) -> str:
    """A device model's name without family and model, as earlier versions stored it."""
    return _GENERATION.sub("", device_model)
