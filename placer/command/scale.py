"""`placer scale`: predicts a data-parallel training step on many GPUs, on paper."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from placer.command.arguments import add_option_flags, add_target, comma_separated, options_given
from placer.common.progress import progress
from placer.verbs.read_target import read_target

HELP = "Predict a training step on many GPUs, on paper: replicas that run a plan, and the all-reduce of their gradients."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from cost_models.network import Network
    from placer.verbs.scale import GPUS

    add_target(parser)
    parser.add_argument(
        "--gpus",
        type=comma_separated(int),
        default=list(GPUS),
        metavar="N,N,...",
        help=f"numbers of GPUs (default: {','.join(map(str, GPUS))})",
    )
    parser.add_argument("--gpus-per-host", type=int, default=8, metavar="N", help="GPUs of each host (default: 8)")
    parser.add_argument(
        "--network-latency-us",
        type=float,
        metavar="US",
        help=f"latency between hosts (default: {Network().latency_us:g}, assumed)",
    )
    parser.add_argument(
        "--network-bytes-per-s",
        type=float,
        metavar="RATE",
        help=f"rate between hosts (default: {Network().bytes_per_s:g}, assumed)",
    )
    add_option_flags(parser)


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from cost_models.network import Network
    from placer.errors import OptionError
    from placer.verbs.scale import scale

    overrides = options_given(args)
    with progress(f"reading {args.target}"):
        graph, options = read_target(args.target, args.signature, overrides)
    given = {"latency_us": args.network_latency_us, "bytes_per_s": args.network_bytes_per_s}
    given = {key: value for key, value in given.items() if value is not None}
    try:
        network = Network(**given) if given else None
    except ValueError as error:
        raise OptionError(f"{error}.") from error
    with progress(f"placing {len(graph)} ops"):
        scaling = scale(
            graph, gpus=args.gpus, gpus_per_host=args.gpus_per_host, network=network, options=replace(options, **overrides)
        )
    return scaling.to_json(), str(scaling)
