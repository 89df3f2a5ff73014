"""The TCP sockets of this process, also those that TensorFlow opened and gives nobody access to."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator


def own_sockets() -> Iterator[socket.socket]:
    """A duplicate of each TCP socket of this process, which is closed when the next one is asked for."""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                continue
            duplicate = os.dup(int(descriptor))
        except OSError:  # it was closed meanwhile
            continue
        try:
            own = socket.socket(fileno=duplicate)
        except OSError:  # it was closed meanwhile, and its number is that of a file now
            os.close(duplicate)
            continue
        with own:
            if own.type == socket.SOCK_STREAM and own.family in (socket.AF_INET, socket.AF_INET6):
                yield own


def cut(address: str) -> None:
    """Ends all connections of this process to an address, such as "host1:2222". What waits for them fails."""
    host, _, port = address.rpartition(":")
    peers = {(found[4][0], int(port)) for found in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)}
    for each in own_sockets():
        try:
            peer_host, peer_port, *_ = each.getpeername()
            if (peer_host.removeprefix("::ffff:"), peer_port) in peers:
                each.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is not connected
            continue
