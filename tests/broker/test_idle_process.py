"""Modules loaded by a broker that serves small requests without TLS: they must be few."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog_broker.testing import running_broker

HEAVY = ("libllvmlite", "numba", "pyarrow", "cryptography", "prometheus")
"""Libraries with files that are mapped, for large batches, TLS, tokens and metrics only."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_start_and_small_requests_load_no_compiler_and_no_cryptography() -> None:
    with running_broker() as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        producer.produce("orders", b"value")
        assert producer.flush(120) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(120)
        assert message is not None
        assert message.value() == b"value"
        consumer.close()
        mapped = {line.split()[-1] for line in Path(f"/proc/{broker.pid}/maps").read_text().splitlines() if "/" in line}
    assert any("numpy" in path for path in mapped)  # else this looks at another process
    assert not [path for path in mapped if any(name in path for name in HEAVY)]
