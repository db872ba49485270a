"""1,000 idle connections and 2,000 partitions use bounded memory. Times are left to the benchmarks."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from pathlib import Path

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.testing import RunningBroker
from tests.broker.net.helpers.served import connect, framed, produce_request
from tests.log.helpers.batch_builder import V2Record, batch

CONNECTIONS, PARTITIONS = 1_000, 2_000
IDLE_BYTES = 150 << 20
API_VERSIONS = framed(struct.pack(">hhih", 18, 0, 1, -1))

pytestmark = [
    pytest.mark.slow,  # making 2,000 partitions takes most of it
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from Linux's /proc"),
]


def resident_bytes(broker: RunningBroker) -> int:
    return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def ask_all(clients: list[socket.socket]) -> None:
    """Send a request on each connection, then read all responses."""
    for client in clients:
        client.sendall(API_VERSIONS)
    for client in clients:
        size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
        assert len(client.recv(size, socket.MSG_WAITALL)) == size > 100


@pytest.mark.timeout(300)
def test_idle_connections_and_partitions_use_bounded_memory(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * CONNECTIONS)), hard))
    records = batch(0, [V2Record(0, int(time.time() * 1000), b"k", b"v")], leader_epoch=-1)
    with RunningBroker(tmp_path / "data") as broker:
        for topic in range(4):
            broker.create_topic(f"t{topic}", PARTITIONS // 4)
        broker.stop()
        broker.start()
        assert f": {PARTITIONS} partitions, clean" in broker.log()
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(connect(broker)) for _ in range(CONNECTIONS)]
            ask_all(idle)
            assert resident_bytes(broker) <= IDLE_BYTES
            # Many partitions are written to, and everybody is still there.
            for partition in range(0, PARTITIONS // 4, 5):
                answer = broker.ask(produce_request("t1", records, partition=partition))
                assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
            ask_all(idle)
            assert resident_bytes(broker) <= IDLE_BYTES
    assert " ERROR " not in broker.log()
