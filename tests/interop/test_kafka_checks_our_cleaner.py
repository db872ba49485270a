"""What our cleaner leaves, in the eyes of Apache Kafka: its DumpLogSegments has nothing to say of any file, it loads
the directory, consumers get from it what they got from ours, and its own cleaner goes on from there."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from tests.interop.compaction import (
    DELETE_RETENTION_MS,
    SEGMENT_BYTES,
    TOPICS,
    TRANSACTIONS,
    active_base,
    cleaned_to,
    compact,
    produce,
    set_config,
)
from tests.interop.consume import commit, consume
from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_real_kafka_loads_the_broker import dump
from tests.log.helpers import plain_decoder

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

WAIT = 180
OFFSETS, STATES = "__consumer_offsets", "__transaction_state"
OURS = {
    "node.id": 1, "log.cleaner.backoff.ms": 20, "log.retention.ms": -1, "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
}  # fmt: skip
LEVELS = ("read_committed", "read_uncommitted")
COMMITS = 150  # of each group, at each turn
RECORDS = 300  # of each topic, at each turn
A_LOG = (
    r"Log starting offset: \d+|baseOffset: .* isvalid: true|\| offset: .*"
    r"|Non-consecutive offsets in .*|  -?\d+ is followed by \d+"
)
"""What DumpLogSegments says of a compacted log. What it calls non-consecutive is what compaction does."""

EMPTY_BATCH = r"Found timestamp mismatch in :(.*)\n  Index timestamp: (\d+), log timestamp: -1"
"""What it says of a time index whose entry names the last batch of a producer, kept without its records: of Kafka's own
too. It takes the largest timestamp of the records, of which there is none, and not that of the batch."""

Rows = dict[tuple[str, str], list[dict[str, Any]]]


def settings(topic: str, dirty_ratio: float) -> dict[str, object]:
    return {
        "cleanup.policy": "compact",
        "internal.segment.bytes": SEGMENT_BYTES.get(topic, 8_000),
        "index.interval.bytes": 300,
        "delete.retention.ms": DELETE_RETENTION_MS,
        "min.cleanable.dirty.ratio": dirty_ratio,
        "file.delete.delay.ms": 100,
        **({"message.timestamp.type": "LogAppendTime"} if topic == "compacted-append-time" else {}),
    }


def commit_offsets(bootstrap: str, turn: int) -> None:
    """Two groups commit again and again, one of them in transactions."""
    one = Producer({"bootstrap.servers": bootstrap, "transactional.id": "commits offsets"})
    one.init_transactions(WAIT)
    readers = {
        name: Consumer({"bootstrap.servers": bootstrap, "group.id": name}) for name in ("plain", "transactional")
    }
    for number in range(1, COMMITS + 1):
        offsets = [TopicPartition(TRANSACTIONS, 0, turn * 1000 + number)]
        commit(readers["plain"], offsets)
        one.begin_transaction()
        one.send_offsets_to_transaction(offsets, readers["transactional"].consumer_group_metadata(), WAIT)
        one.commit_transaction(WAIT)
    for reader in readers.values():
        reader.close()


def committed_offsets(bootstrap: str) -> list[int]:
    found = []
    for name in ("plain", "transactional"):
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
        found.append(reader.committed([TopicPartition(TRANSACTIONS, 0)], WAIT)[0].offset)
        reader.close()
    return found


def wait_until_clean(kafka: RealKafka, broker: RunningBroker) -> None:
    """Return when all but the active segment of each log is compacted, and what it took the place of is deleted."""
    end = time.monotonic() + WAIT
    while True:
        done = cleaned_to(kafka.data_dir)
        ends = {topic: active_base(kafka.partition_dir(topic)) for topic in (*TOPICS, OFFSETS, STATES)}
        left = sorted(path.name for path in kafka.data_dir.glob("*/*.deleted"))
        if not left and all(done.get(topic, 0) >= end_offset for topic, end_offset in ends.items()):
            return
        assert time.monotonic() < end, (left, done, ends, broker.log()[-2000:])
        time.sleep(0.1)


def read_all(bootstrap: str) -> Rows:
    return {(topic, level): consume(bootstrap, topic, level) for topic in TOPICS for level in LEVELS}


def latest(rows: list[dict[str, Any]]) -> dict[object, object]:
    """Return the last value of each key, without keys whose last value is a tombstone."""
    values = {row["key"]: row["value"] for row in rows}
    return {key: value for key, value in values.items() if value is not None}


def check_files(kafka: RealKafka) -> None:
    """Run DumpLogSegments on every file of every partition and assert that it reports no fault.

    Only the messages that it also prints for files of Kafka's own cleaner are allowed.
    """
    files = [path for topic in (*TOPICS, OFFSETS, STATES) for path in sorted(kafka.partition_dir(topic).iterdir())]

    def told(suffix: str, *options: str, topic: str = "") -> list[str]:
        """What it says of the files; it refuses empty ones."""
        chosen = [path for path in files if path.suffix == suffix and path.parent.name.startswith(topic)]
        lines = dump([path for path in chosen if path.stat().st_size], *options).splitlines()
        assert sum(line.startswith("Dumping ") for line in lines) > 0
        return [line for line in lines if line and not line.startswith("Dumping ")]

    logs = told(".log", "--deep-iteration")
    assert sum("isvalid: true" in line for line in logs) > 500
    assert [line for line in logs if not re.fullmatch(A_LOG, line)] == []
    for suffix in (".index", ".timeindex"):
        sane = told(suffix, "--index-sanity-check")
        assert [line for line in sane if not line.endswith(" passed sanity check.")] == []
        complaints = "\n".join(told(suffix, "--verify-index-only"))
        for path, timestamp in re.findall(EMPTY_BATCH, complaints):
            batches = plain_decoder.decode_log(Path(path).with_suffix(".log"))
            assert [one for one in batches if not one.records and one.max_timestamp == int(timestamp)], complaints
        assert re.sub(EMPTY_BATCH, "", complaints).strip() == ""
    aborted = told(".txnindex")
    assert aborted != []
    assert [line for line in aborted if not line.startswith("version: 0 producerId: ")] == []
    assert [line for line in told(".snapshot") if not line.startswith("producerId: ")] == []
    offsets = "\n".join(told(".log", "--offsets-decoder", topic=OFFSETS))
    states = "\n".join(told(".log", "--transaction-log-decoder", topic=STATES))
    for text, key in ((offsets, '"group":"transactional"'), (states, '"transactionalId":"commits offsets"')):
        assert key in text
        assert "decode" not in text.lower(), "a record could not be decoded"


def test_kafka_accepts_the_output_of_our_cleaner(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path / "kafka")
    with kafka:
        for topic in TOPICS:
            kafka.create_topic(topic, 1, settings(topic, dirty_ratio=1.0))
        commit_offsets(kafka.bootstrap, turn=0)  # makes the internal topics
    ours = RunningBroker(kafka.data_dir, OURS)
    ours.start()
    for topic in (*TOPICS, OFFSETS, STATES):
        set_config(ours.bootstrap, topic, settings(topic, dirty_ratio=0.01))
    for turn in (1, 2):
        produce(ours.bootstrap, turn, RECORDS)
        commit_offsets(ours.bootstrap, turn)
        if turn == 2:
            ours.kill()  # while it compacts
            ours.start()
        wait_until_clean(kafka, ours)
        time.sleep(DELETE_RETENTION_MS / 1000)  # so that the next round finds tombstones and markers that are due
    rows, offsets = read_all(ours.bootstrap), committed_offsets(ours.bootstrap)
    ours.stop()
    for found in rows.values():
        assert 0 < 2 * len(found) < found[-1]["offset"], "not even half of the records were compacted away"
    assert offsets == [2000 + COMMITS] * 2
    assert [str(finding) for finding in check_log_dirs([kafka.data_dir], was_closed_cleanly=True).findings.kept] == []
    check_files(kafka)
    logs = {path: path.read_bytes() for topic in TOPICS for path in kafka.partition_dir(topic).glob("*.log")}
    with kafka:
        assert read_all(kafka.bootstrap) == rows
        assert committed_offsets(kafka.bootstrap) == offsets
        assert {path: path.read_bytes() for path in logs} == logs, "Kafka has changed what it loaded"
        produce(kafka.bootstrap, 3, RECORDS)
        expected = {topic: latest(consume(kafka.bootstrap, topic, "read_committed")) for topic in TOPICS}
    compact(kafka)
    check_files(kafka)
    with kafka:
        assert {topic: latest(consume(kafka.bootstrap, topic, "read_committed")) for topic in TOPICS} == expected
        told = kafka.server_log()
    assert "ERROR" not in told, told[told.index("ERROR") :][:1000]
