"""`placer solvers`: the registered solvers, and the publications that their algorithms are from."""

from __future__ import annotations

import argparse
from typing import Any

HELP = "List the solvers and where each algorithm comes from."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cite", metavar="NAME", help="what to cite for one of them, a reference a line")


def run(args: argparse.Namespace) -> tuple[Any, str]:
    from placer.errors import OptionError
    from placer.research.instances.solvers import INSTANCE_SOLVERS, KINDS
    from placer.solvers.registry import solver, solvers

    def source(name: str) -> str:
        try:
            return solver(name).cite()
        except OptionError as error:  # one package's solver that cannot be loaded must not hide the others
            return str(error)

    if args.cite is not None:
        cited = INSTANCE_SOLVERS[args.cite].cite() if args.cite in INSTANCE_SOLVERS else solver(args.cite).cite()
        return {args.cite: cited}, cited
    sources = {name: source(name) for name in solvers()}
    sources |= {name: f"for {KINDS[found.objective]}\n{found.cite()}" for name, found in INSTANCE_SOLVERS.items()}
    width = max(map(len, sources))
    return sources, "\n".join(
        f"{name if k == 0 else '':{width}}  {line}" for name, text in sources.items() for k, line in enumerate(text.splitlines())
    )
