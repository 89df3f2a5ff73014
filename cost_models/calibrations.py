"""Calibrated machines in the user's cache folder, found again by the models of their devices."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from cost_models.cache import cache_folder, listed, tell_once
from cost_models.files import write_whole
from cost_models.machine_files import load_machine
from cost_models.machines import Device, Link, Machine, MachineError


def calibration_file(machine: Machine) -> Path:
    """The file for the calibration of a machine with these device models. Several machines may share a cache folder."""
    models = [machine.devices[0].model, *(device.model for device in machine.devices if device.kind != "CPU")]
    return cache_folder() / "machines" / f"{_slug(' '.join(models))}.toml"


def _slug(models: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", models.lower()).strip("-")


def save_calibration(machine: Machine) -> Path:
    """Writes a calibrated machine to its file, completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    path = calibration_file(machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, machine.to_toml().encode())
    return path


def with_calibration(machine: Machine) -> Machine:
    """The machine with the constants of its calibration, or unchanged if there is none; warns if that cannot be read.

    A calibration that was made with more visible GPUs counts too.
    """
    own_file = calibration_file(machine)
    files = listed(own_file.parent, f"{_slug(machine.devices[0].model)}*.toml")
    for path in sorted(files, key=lambda path: (path != own_file, len(path.name), path.name)):
        try:
            calibrated = load_machine(path)
        except MachineError as error:
            if path == own_file:
                tell_once(f"the calibration of this machine cannot be used: {error}; placer calibrate makes a new one")
                return machine
            continue
        if path == own_file or _models_and_links(machine) <= _models_and_links(calibrated):
            return with_constants(machine, calibrated)
    return machine


def _models_and_links(machine: Machine) -> set[tuple[str, ...]]:
    """What has constants: each device model, and each ordered pair of models with a link."""
    links = {(machine.device(link.src).model, machine.device(link.dst).model) for link in machine.links}
    return {(device.model,) for device in machine.devices} | links


def with_constants(machine: Machine, calibrated: Machine) -> Machine:
    """The devices and links of `machine` with the constants of `calibrated`, matched by device model.

    A device takes the constants of the device with its name, if that has the same model; otherwise those of the first device of
    its model. Devices and links without a match keep their constants.
    """
    first_of_model = {device.model: device for device in reversed(calibrated.devices)}
    by_name = {(device.name, device.model): device for device in calibrated.devices}
    link_of_models = {
        (calibrated.device(link.src).model, calibrated.device(link.dst).model): link for link in reversed(calibrated.links)
    }

    def calibrated_device(device: Device) -> Device:
        source = by_name.get((device.name, device.model), first_of_model.get(device.model, device))
        return replace(source, name=device.name, memory_bytes=device.memory_bytes, core_cache_bytes=device.core_cache_bytes)

    def calibrated_link(link: Link) -> Link:
        source = link_of_models.get((machine.device(link.src).model, machine.device(link.dst).model), link)
        return replace(source, src=link.src, dst=link.dst)

    return replace(
        calibrated,
        name=machine.name,
        devices=tuple(map(calibrated_device, machine.devices)),
        links=tuple(map(calibrated_link, machine.links)),
        reserve_bytes=machine.reserve_bytes,
        others_bytes=machine.others_bytes,
        used_by_others=machine.used_by_others,
        assumed=machine.assumed,
    )
