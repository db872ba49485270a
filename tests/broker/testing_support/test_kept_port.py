"""A port reserved for a broker: the broker can listen on it, and no other process gets it."""

from __future__ import annotations

import gc
import socket
import sys
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.kept_port import HOST, kept_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what the Linux kernel does with ports")


class Owner:
    pass


def is_free(port: int) -> bool:
    """Return whether a socket without SO_REUSEPORT can bind the port."""
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def test_only_the_owner_can_listen_on_a_kept_port() -> None:
    owner = Owner()
    port = kept_port(owner)
    for _ in range(2):  # a start, and one after a crash
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port))
        assert not is_free(port)
        with socket.create_server((HOST, port)), socket.create_connection((HOST, port)):
            pass
    del owner
    gc.collect()
    assert is_free(port)


def test_killed_broker_keeps_its_port(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        port = broker.port
        broker.kill()
        assert not is_free(port)
        broker.start()
        assert broker.port == port
