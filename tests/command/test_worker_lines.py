"""`placer worker` on the command line."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cost_models.machine_files import load_cluster
from placer.command.main import main


def test_a_worker_prints_how_to_join(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The page on several hosts shows these lines. A cluster's file with them has the worker."""
    monkeypatch.setattr("placer.tf.run.worker.start_worker", lambda host, port: f"{host}:{port}")
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    monkeypatch.setattr(signal, "sigwait", lambda _: signal.SIGTERM)
    assert main(["worker", "--host", "10.0.0.1", "--port", "2222"]) == 0
    lines = capsys.readouterr().out.partition("listening")[2].splitlines()
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "several-hosts.md").read_text()
    assert all(line.strip() in page for line in lines[:-1])
    assert 'placer.cluster(workers=["10.0.0.1:2222"])' in lines[1]
    path = tmp_path / "cluster.toml"
    path.write_text("\n".join(['client = "cpu2"', *lines[2:-1]]).replace("FILE", "h100", 1))
    assert load_cluster(path).addresses == ("10.0.0.1:2222",)
