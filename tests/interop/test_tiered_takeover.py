"""Takeover of a real Kafka's directory and remote tier by our broker, and back: every record is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker
from tests.broker.api.helpers.admin_scenario import SET, TOPIC, change, incremental
from tests.broker.remote.helpers.tiered_broker import consumed, produce, tiered_properties, wait_until
from tests.broker.remote.record_tiered import asked
from tests.interop.real_kafka import available
from tests.log.tiered.tiered_kafka import TIERED_TOPIC, TieredKafka

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


def expected(end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%01000d" % number) for number in range(end)]


def test_directory_and_tier_move_from_kafka_to_our_broker_and_back(tmp_path: Path) -> None:
    kafka = TieredKafka(tmp_path / "kafka")
    with kafka:
        kafka.create_topic("orders", 1, TIERED_TOPIC)
        produce(kafka.bootstrap, "orders", range(100))
        kafka.wait_until_copied("orders")
    kafkas = len(kafka.remote_files("orders", suffix=".log"))
    assert kafkas > 4
    ours = RunningBroker(kafka.data_dir, {"node.id": 1, **tiered_properties(kafka.remote, log_retention_ms=-1)})
    with ours:
        assert consumed(ours.bootstrap, "orders", 0, 100) == expected(100)
        names = ("internal.segment.bytes", "local.retention.ms", "file.delete.delay.ms")
        operations = [(name, SET, str(TIERED_TOPIC[name])) for name in names]
        (answer,) = asked(ours.bootstrap, [incremental(change(TOPIC, "orders", *operations))])
        assert answer["answer"]["responses"][0]["error_code"] == "none", answer
        produce(ours.bootstrap, "orders", range(100, 160))
        wait_until(lambda: len(kafka.local_segments("orders")) == 1, "the copied segments leave the disk")
        assert len(kafka.remote_files("orders", suffix=".log")) >= kafkas + 3
        assert consumed(ours.bootstrap, "orders", 0, 160) == expected(160)
    kafka.start()
    try:
        assert consumed(kafka.bootstrap, "orders", 0, 160, patient=True) == expected(160)
        assert consumed(kafka.bootstrap, "orders", 123, 160) == expected(160)[123:]
        produce(kafka.bootstrap, "orders", range(160, 200))
        kafka.wait_until_copied("orders")
        assert consumed(kafka.bootstrap, "orders", 90, 200) == expected(200)[90:]
        events = kafka.metadata_events()
        assert events.count("state=COPY_SEGMENT_FINISHED") == len(kafka.remote_files("orders", suffix=".log"))
    finally:
        kafka.stop()
