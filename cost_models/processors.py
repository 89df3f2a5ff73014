"""What a host's processor is called, so that what is measured on one is not taken for what another takes.

On many machines of a cloud its name hides the generation ("AMD EPYC", "Intel(R) Xeon(R) CPU @ 2.20GHz"), of which the latest may
be four times as quick as one before: there the family and model go with the name. They did not always, and what is kept under
such a name may be of this machine too.
"""

from __future__ import annotations

import re

_GENERATION = re.compile(r" \(family (\d+), model (\d+)\)")


def processor(cpuinfo: str) -> str:
    """The name of the first processor in /proc/cpuinfo, with its generation where it would hide that; "" where there is none."""
    told: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        told.setdefault(key.strip(), value.strip())
    name, family, model = (told.get(key, "") for key in ("model name", "cpu family", "model"))
    hidden = not re.search(r"\d", name.partition("@")[0])  # a clock rate tells no generation
    return f"{name} (family {family}, model {model})" if name and hidden and family and model else name


def generation(device_model: str) -> tuple[int, int] | None:
    """The family and model that the name of a device's model tells, None where it tells none."""
    found = _GENERATION.search(device_model)
    return (int(found[1]), int(found[2])) if found else None


def without_generation(device_model: str) -> str:
    """What a device's model was called before names told the generation."""
    return _GENERATION.sub("", device_model)
