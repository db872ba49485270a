"""The broker's ListOffsets by timestamp, compared with offset_for_timestamp on its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from tests.interop.real_kafka import RealKafka, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

LONG_AGO = 1_700_000_000_000
LATER = 4_000_000_000_000  # later than any clock that writes a marker


def test_offset_for_timestamp_may_be_that_of_a_transaction_marker(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    with RealKafka(tmp_path, short_lived=True) as kafka:
        kafka.create_topic("orders", 1, {"message.timestamp.after.max.ms": 2**62})
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        for start, end in ((LONG_AGO, producer.commit_transaction), (LATER, producer.abort_transaction)):
            producer.begin_transaction()
            for n in range(5):
                producer.produce("orders", b"v%d" % n, timestamp=start + n)
            assert producer.flush(120) == 0
            end(30)
        probes = [0, LONG_AGO, LONG_AGO + 3, LONG_AGO + 5, LATER, LATER + 4, LATER + 5]
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
        try:
            answers = []
            for probe in probes:
                (found,) = consumer.offsets_for_times([TopicPartition("orders", 0, probe)], 30)
                assert found.error is None
                answers.append(found.offset)
        finally:
            consumer.close()
        kafka.stop()
        log = LogDirs.open(kafka.data_dir).partition("orders", 0)
        ours = [offset_for_timestamp(log, probe) for probe in probes]
    # librdkafka gives -1 (OFFSET_END) where the broker knows of no such record
    assert [None if answer < 0 else answer for answer in answers] == ours
    assert ours == [0, 0, 3, 5, 6, 10, None], "5 is the marker that commits the first transaction"
