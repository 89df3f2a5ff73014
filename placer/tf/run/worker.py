"""A server of TensorFlow in this process, which runs the ops that other processes place on its devices.

TensorFlow's server listens on all network interfaces, whatever address it is given. It asks nobody who they are. So a worker for
this host alone limits the listening socket to the loopback interface before the server answers.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from contextlib import closing
from pathlib import Path

import tensorflow as tf

from cost_models.cluster import JOB
from placer.errors import OptionError, PlacerError
from placer.tf._private.sockets import own_sockets

_CONNECTED = "01"
"""State of a connected socket in /proc/net/tcp."""


def start_worker(host: str, port: int) -> str:
    """Starts the server, which runs until the process ends.

    Args:
        host: the address by which others reach this host. If it is a loopback address, nobody else can connect; otherwise the
            server listens on all interfaces.
        port: the port, or 0 for a free one.

    Returns:
        The address with the port, such as "host1:2222".

    Raises:
        OptionError: the host is unknown, or the port is used by another program.
        PlacerError: the server cannot be limited to the loopback interface.
    """
    loopback_only = _is_loopback(host)
    port = _free_port(port)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        server = tf.distribute.Server({JOB: [address]}, job_name=JOB, task_index=0, protocol="grpc", start=False)
    except tf.errors.OpError as error:
        raise PlacerError(f"TensorFlow cannot start a server at {address}: {error.message}") from error
    if loopback_only:
        _limit_to_loopback(port)
    server.start()
    _servers.append(server)
    return address


_servers: list[tf.distribute.Server] = []
"""Kept, because TensorFlow deletes a server that nothing refers to."""


def _is_loopback(host: str) -> bool:
    """Whether all addresses of a host are loopback addresses."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OptionError(f"--host {host!r}: {error.strerror or error}. Give a name or an address of this host.") from error
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)


def _free_port(port: int) -> int:
    """The port, or a free one in the place of 0. TensorFlow would share a port that another server of TensorFlow uses."""
    with closing(socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections to a worker that has ended keep no port
        try:
            tried.bind(("", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", "") or "a port is from 0 to 65535"
            raise OptionError(f"--port {port}: {reason}. Give another port, or 0 for a free one.") from error
        return int(tried.getsockname()[1])


def _limit_to_loopback(port: int) -> None:
    """Lets the listening sockets of a port take connections from this host alone, before their server answers any.

    A listening socket that is bound to an interface takes no connections from others: SO_BINDTODEVICE in socket(7).
    """
    failure = "its listening socket is not found"
    has_limit = hasattr(socket, "SO_BINDTODEVICE")
    if not has_limit:
        failure = "only Linux can limit a socket to an interface"
    for each in own_sockets() if has_limit else ():
        if each.getsockname()[1] == port and each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            try:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
            except OSError as error:
                failure = error.strerror or str(error)
                break
            failure = ""
    if port in _ports_connected_from_elsewhere():
        failure = failure or "another host connected before it was limited"
    if failure:
        raise PlacerError(
            f"the server cannot be limited to this host: {failure}. Nothing was started. In a private network, --host ADDRESS "
            "lets it listen on all interfaces."
        )


def _ports_connected_from_elsewhere() -> set[int]:
    """The local ports of the connected TCP sockets of this host whose other end is not a loopback address."""
    ports = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            _, local, remote, state, *_ = line.split()
            if state == _CONNECTED and not _address(remote.partition(":")[0]).is_loopback:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


def _address(words: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address that a table of /proc/net has as words of 32 bits, each in this host's order of bytes."""
    numbers = (int(words[k : k + 8], 16) for k in range(0, len(words), 8))
    address = ipaddress.ip_address(b"".join(number.to_bytes(4, sys.byteorder) for number in numbers))
    return getattr(address, "ipv4_mapped", None) or address
