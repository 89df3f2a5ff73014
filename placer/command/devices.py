"""`placer devices`: the devices that TensorFlow sees here, and the machines that come along."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

HELP = "Show what TensorFlow sees here and which machines can be planned for."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from cost_models.machine_files import shipped_machines
    from placer.tf.run.starting import start
    from placer.views.shared.machine import describe

    start()
    from placer.tf.devices import local_machine

    machine = local_machine()
    shipped = f"shipped    {', '.join(shipped_machines())}: machines to plan for, as in placer solve --devices h100"
    return {"machine": asdict(machine), "shipped": shipped_machines()}, f"{describe(machine)}\n{shipped}"
