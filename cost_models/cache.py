"""What is kept of this machine between processes, and where: the user's cache folder."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

from cost_models.machines import Device, Link, Machine, MachineError, load_machine
from cost_models.processors import without_generation

FOLDER = "PLACER_CACHE"
"""Environment variable that names another folder."""


class CacheWarning(UserWarning):
    """What is kept of this machine, or some of it, cannot be used."""


def cache_folder() -> Path:
    """``$PLACER_CACHE``, else ``$XDG_CACHE_HOME/placer``, else ``~/.cache/placer``; need not exist yet.

    A user without a home has one in the folder for temporary files.
    """
    if named := os.environ.get(FOLDER):
        return Path(os.path.expanduser(named))
    if above := os.environ.get("XDG_CACHE_HOME"):
        return Path(above) / "placer"
    try:
        return Path.home() / ".cache" / "placer"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"placer-{os.getuid()}"


def machine_file(machine: Machine) -> Path:
    """Where the calibration of a machine with such devices is kept: a home may be shared by several machines."""
    models = [machine.devices[0].model, *(device.model for device in machine.devices if device.kind != "CPU")]
    return cache_folder() / "machines" / f"{_slug(' '.join(models))}.toml"


def _slug(models: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", models.lower()).strip("-")


def keep(machine: Machine) -> Path:
    """Writes a calibrated machine to its file, whole or not at all; OSError where it cannot be written."""
    path = machine_file(machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        draft.write_text(machine.to_toml(), "utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def calibrated(seen: Machine) -> Machine:
    """The machine with the constants of its calibration, as it is where there is none; warns where that cannot be read.

    One made with more GPUs visible than now does too, and so does one from before names of hosts told their generation.
    """
    found = _calibrated(seen)
    if found is not seen or (before := _named_before(seen)) == seen:
        return found
    found = _calibrated(before)
    if found is before:
        return seen
    here = {device.name: device for device in seen.devices}
    told = f"{found.provenance}; that tells no generation of the host: placer calibrate measures this one"
    # Nor does it tell how many threads share a core, which was measured later than names told generations.
    alike = (replace(d, model=here[d.name].model, threads_per_core=here[d.name].threads_per_core) for d in found.devices)
    return replace(found, devices=tuple(alike), provenance=told)


def _named_before(machine: Machine) -> Machine:
    return replace(machine, devices=tuple(replace(d, model=without_generation(d.model)) for d in machine.devices))


def _calibrated(seen: Machine) -> Machine:
    """The machine with the constants of the calibration under its devices' names, itself where there is none."""
    own = machine_file(seen)
    kept = own.parent.glob(f"{_slug(seen.devices[0].model)}*.toml")
    for path in sorted(kept, key=lambda path: (path != own, len(path.name), path.name)):
        try:
            found = load_machine(path)
        except MachineError as error:
            if path == own:
                told = f"the calibration of this machine cannot be used: {error}; placer calibrate makes it again"
                warnings.warn(told, CacheWarning, stacklevel=2)
                return seen
            continue
        if path == own or _kinds(seen) <= _kinds(found):
            return with_constants(seen, found)
    return seen


def _kinds(machine: Machine) -> set[tuple[str, ...]]:
    """What is priced: models of devices, and pairs of models that have a link."""
    links = {(machine.device(link.src).model, machine.device(link.dst).model) for link in machine.links}
    return {(device.model,) for device in machine.devices} | links


def with_constants(seen: Machine, found: Machine) -> Machine:
    """The devices and links of one machine, priced as those between the same models are in another.

    A device is priced as the one of its name there, if that is of its model, else as the first of its model.
    """
    devices = {device.model: device for device in reversed(found.devices)}
    named = {(device.name, device.model): device for device in found.devices}
    links = {(found.device(link.src).model, found.device(link.dst).model): link for link in reversed(found.links)}

    def like(device: Device) -> Device:
        return named.get((device.name, device.model), devices.get(device.model, device))

    def priced(link: Link) -> Link:
        known = links.get((seen.device(link.src).model, seen.device(link.dst).model), link)
        return replace(known, src=link.src, dst=link.dst)

    return replace(
        seen,
        devices=tuple(
            replace(like(d), name=d.name, memory_bytes=d.memory_bytes, core_cache_bytes=d.core_cache_bytes) for d in seen.devices
        ),
        links=tuple(map(priced, seen.links)),
        call_overhead_ns=found.call_overhead_ns,
        host_hop_ns=found.host_hop_ns,
        split_ns=found.split_ns,
        argument_ns=found.argument_ns,
        passed_ns=found.passed_ns,
        waiting_ns=found.waiting_ns,
        provenance=found.provenance,
    )
