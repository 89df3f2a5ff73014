"""Programs in processes of their own that start with TensorFlow imported.

An import takes seconds of CPU time, so one process imports TensorFlow, does nothing with it, and forks all these programs.
What needs another PYTHONHASHSEED, or a setting that TensorFlow reads when it is imported, must be started by `subprocess`.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

ROOT = Path(__file__).parents[2]

_requests: socket.socket | None = None
"""Takes requests to the process that forks. A forked program has the socket of the process that started it."""
_server: subprocess.Popen[bytes] | None = None
"""The process that forks, if this process started it."""


class Program:
    """A Python program, as `subprocess.Popen` would run it, in a process group of its own.

    It is killed when this object, or the process that has it, is gone.

    Args:
        arguments: those of `python`: -c and code, -m and a module, or a file; then those of the program.
        environment: all variables of its environment. Default: those of this process.
        cwd: the folder that it starts in.
        stdout: a file. Default: a pipe, to be read as `self.stdout`.
        stderr: a file. Default: that of this process.
    """

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        stdout: int | None = None,
        stderr: int = 2,
    ) -> None:
        requests = _forking()
        ended, tells = os.pipe()
        read, write = os.pipe() if stdout is None else (None, os.dup(stdout))
        request = json.dumps([arguments, dict(os.environ if environment is None else environment), str(cwd)])
        socket.send_fds(requests, [request.encode()], [tells, write, stderr, requests.fileno()])
        os.close(tells)
        os.close(write)
        self.arguments = arguments
        self.stdout = None if read is None else open(read)  # noqa: SIM115
        self.returncode: int | None = None
        self._waiting = Lock()
        self._ended = open(ended)  # noqa: SIM115
        self.pid = int(self._ended.readline())

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it with all processes that it started itself."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it ended, and nobody has waited for it yet
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float = 300.0) -> int:
        """Its exit status, as soon as it ended. If it takes too long, it is killed."""
        with self._waiting:
            return self._status(timeout_s)

    def _status(self, timeout_s: float) -> int:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout_s)[0]:
                self.kill()
                raise subprocess.TimeoutExpired(self.arguments, timeout_s)
            self.returncode = int(self._ended.readline())
            self._ended.close()
        return self.returncode

    def output(self, timeout_s: float = 300.0) -> str:
        """What it printed to its pipe, which holds 64 KiB, as soon as it ended."""
        assert self.stdout is not None
        self.wait(timeout_s)
        return self.stdout.read()


def run(*arguments: str, timeout_s: float = 300.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; its exit status and what it printed. The arguments are those of `Program`."""
    with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        status = Program(*arguments, stdout=stdout.fileno(), stderr=stderr.fileno(), **options).wait(timeout_s)
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, status, stdout.read(), stderr.read())


def _forking() -> socket.socket:
    """Starts the process that forks, unless it runs. It ends with the last process that may send requests."""
    global _requests, _server
    if _requests is None:
        _requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = "import sys; from tests.helpers.forked import serve; serve(int(sys.argv[1]))"
        with theirs:
            _server = subprocess.Popen([sys.executable, "-c", code, str(theirs.fileno())], cwd=ROOT, pass_fds=[theirs.fileno()])
    return _requests


def serve(number: int) -> None:
    """Forks a process for each request that comes from a socket, whose number this is, and runs the program in it."""
    global _requests
    import tensorflow  # noqa: F401

    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    requests = socket.socket(fileno=number)
    while True:
        request, files, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not request:
            return
        if not os.fork():
            break
        for file in files:
            os.close(file)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tells, stdout, stderr, number = files
    if pid := os.fork():
        os.setpgid(pid, pid)  # before the number of the process is told, so that the group can be ended from then on
        for file in (stdout, stderr, number):
            os.close(file)
        _tell_end(pid, tells)
    os.close(tells)
    _requests = socket.socket(fileno=number)
    for file, at in ((stdout, 1), (stderr, 2)):
        os.dup2(file, at)
        os.close(file)
    _become(*json.loads(request))


def _tell_end(pid: int, tells: int) -> None:
    """Writes the number of a process, waits for it, and writes its exit status. Kills it when nobody can read that any more."""
    os.write(tells, f"{pid}\n".encode())
    end, events = os.pidfd_open(pid), select.poll()
    events.register(end, select.POLLIN)
    events.register(tells, 0)
    if end not in dict(events.poll()):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(tells, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(arguments: list[str], environment: dict[str, str], cwd: str) -> None:
    """Runs a program in this process."""
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    match arguments:
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            exec(code, vars(sys.modules["__main__"]))
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [file, *rest]:
            sys.argv = [file, *rest]
            runpy.run_path(file, run_name="__main__")
