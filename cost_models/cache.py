"""What is kept of this machine between processes, and where: the user's cache folder."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from pathlib import Path

from cost_models.machines import Link, Machine, MachineError, load_machine

FOLDER = "PLACER_CACHE"
"""Environment variable that names another folder."""


def cache_folder() -> Path:
    """``$PLACER_CACHE``, else ``$XDG_CACHE_HOME/placer``, else ``~/.cache/placer``; need not exist yet."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placer"


def machine_file(machine: Machine) -> Path:
    """Where the calibration of a machine with such devices is kept: a home may be shared by several machines."""
    models = [machine.devices[0].model, *(device.model for device in machine.devices if device.kind != "CPU")]
    return cache_folder() / "machines" / (re.sub(r"[^a-z0-9]+", "-", " ".join(models).lower()).strip("-") + ".toml")


def keep(machine: Machine) -> Path:
    """Writes a calibrated machine to its file, whole or not at all; OSError where it cannot be written."""
    path = machine_file(machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(machine.to_toml(), "utf-8")
    draft.replace(path)
    return path


def calibrated(seen: Machine) -> Machine:
    """The machine with the constants of its calibration, as it is where there is none; warns where that cannot be read."""
    path = machine_file(seen)
    if not path.exists():
        return seen
    try:
        found = load_machine(path)
    except MachineError as error:
        warnings.warn(f"the calibration of this machine cannot be used: {error}; placer calibrate makes it again", stacklevel=2)
        return seen
    return with_constants(seen, found)


def with_constants(seen: Machine, found: Machine) -> Machine:
    """The devices and links of one machine, priced as those between the same models are in another."""
    devices = {device.model: device for device in reversed(found.devices)}
    links = {(found.device(link.src).model, found.device(link.dst).model): link for link in reversed(found.links)}

    def priced(link: Link) -> Link:
        known = links.get((seen.device(link.src).model, seen.device(link.dst).model), link)
        return replace(known, src=link.src, dst=link.dst)

    return replace(
        seen,
        devices=tuple(replace(devices.get(d.model, d), name=d.name, memory_bytes=d.memory_bytes) for d in seen.devices),
        links=tuple(map(priced, seen.links)),
        call_overhead_ns=found.call_overhead_ns,
        host_hop_ns=found.host_hop_ns,
        split_ns=found.split_ns,
        argument_ns=found.argument_ns,
        passed_ns=found.passed_ns,
        provenance=found.provenance,
    )
