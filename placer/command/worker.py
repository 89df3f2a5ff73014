"""`placer worker`: lets functions of other processes run ops on the devices of this host."""

from __future__ import annotations

import argparse
import json
import signal
from typing import Any

HELP = (
    "Let functions of other processes run on this host's devices, until it is stopped. Whoever connects is trusted: "
    "use a private network."
)
_ENDS = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=2222, help="where to listen; 0 for a free port (default: 2222)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the name or address by which other hosts reach this one. The worker then listens on all interfaces (default: "
        "127.0.0.1, which only this host reaches)",
    )


def run(args: argparse.Namespace) -> tuple[Any, str]:
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # before TensorFlow starts threads, which inherit it
    from placer.tf.run.starting import start
    from placer.views.shared.machine import describe
    from placer.views.shared.terminal import print_text

    start()
    from placer.tf.devices import local_machine
    from placer.tf.run.worker import start_worker

    machine = local_machine()
    address = start_worker(args.host, args.port)
    plain = {"address": address, "devices": [device.name for device in machine.devices]}
    if args.json:
        print(json.dumps(plain), flush=True)
    else:
        print_text(f"{describe(machine)}\n{_joining(address)}")
    ended = signal.Signals(signal.sigwait(_ENDS)).name
    return {**plain, "ended": ended}, f"ended by {ended}"


def _joining(address: str) -> str:
    """How another process uses the worker."""
    return (
        f"listening  {address}; whoever connects is trusted\n"
        f'join       placer.cluster(workers=["{address}"]), or in the cluster\'s file:\n'
        f'           [[workers]]\n           address = "{address}"\n'
        '           machine = "FILE"   # which placer calibrate --out FILE wrote on this host'
    )
