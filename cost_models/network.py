"""The links between the hosts of a cluster, and those that were measured, in the user's cache folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from cost_models.cache import cache_folder, listed, tell_once
from cost_models.documents import parse_toml
from cost_models.files import write_whole
from cost_models.toml_records import RecordError, record_of, toml_scalars


@dataclass(frozen=True, slots=True)
class Network:
    """The links between hosts. All pairs of hosts have the same."""

    latency_us: float = 100.0
    """Time of a copy of a few bytes from one host's memory to another's, until the op that waits for it starts."""
    bytes_per_s: float = 1.25e9
    """Rate of a large copy. The default is that of 10 Gbit Ethernet."""
    call_us: float = 2000.0
    """Extra time of a call with an op on a worker."""

    def __post_init__(self) -> None:
        for key, most in (("latency_us", 1e9), ("call_us", 1e9)):
            if not 0 <= getattr(self, key) <= most:
                raise RecordError(f"{key} is {getattr(self, key)}; it must be from 0 to {most:,.0f}", key)
        if not 1e6 <= self.bytes_per_s <= 1e24:
            raise RecordError(f"bytes_per_s is {self.bytes_per_s}; it must be from 1e+06 to 1e+24", "bytes_per_s")


def save_network(addresses: Iterable[str], network: Network) -> Path:
    """Writes the measured network of a cluster with these workers, completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    path = _network_file(addresses)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "\n".join([*toml_scalars(network), ""]).encode())
    return path


def known_network(addresses: Iterable[str]) -> dict[str, float]:
    """By field of `Network`: what was measured between this host and these workers; {} if nothing was, or it cannot be read."""
    path = _network_file(addresses)
    if not listed(path.parent, path.name):
        return {}
    try:
        return asdict(record_of(Network, parse_toml(path.read_text(), str(path)), str(path)))
    except (OSError, ValueError) as error:
        tell_once(f"the measured network of this cluster cannot be used: {error}; placer calibrate --cluster measures it again")
        return {}


def _network_file(addresses: Iterable[str]) -> Path:
    """The file for workers at these addresses. Its name is a digest: addresses of many workers are too long for a name."""
    digest = hashlib.blake2b(" ".join(addresses).encode(), digest_size=16).hexdigest()
    return cache_folder() / "networks" / f"{digest}.toml"
