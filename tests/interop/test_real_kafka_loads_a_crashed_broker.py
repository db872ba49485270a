"""Our broker is killed again and again under load in a directory that Apache Kafka made. Then Apache Kafka loads it,
after a clean stop of ours or after one more kill, and DumpLogSegments finds nothing to say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from tests.broker.clients.helpers.crash_load import BROKER_PROPERTIES, GROUP, PARTITIONS, TOPIC, TOPIC_CONFIG, CrashLoad
from tests.interop import consume
from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_real_kafka_loads_the_broker import dump, segment_files

pytestmark = [pytest.mark.skipif(available() is not None, reason=str(available())), pytest.mark.slow]
ROUNDS = 5
KAFKAS = {"internal.segment.bytes", "index.interval.bytes"}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_kafka_loads_the_directory_of_a_killed_broker(tmp_path: Path, end: str) -> None:
    kafka = RealKafka(tmp_path / "kafka", {"offsets.topic.num.partitions": 2}, short_lived=True)
    with kafka:
        kafka.create_topic(TOPIC, PARTITIONS, {name: TOPIC_CONFIG[name] for name in KAFKAS})
        toucher = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "makes the offsets topic"})
        consume.commit(toucher, [TopicPartition(TOPIC, 0, 0)])
        toucher.close()
    ours = RunningBroker(kafka.data_dir, {**BROKER_PROPERTIES, "node.id": 1, "log.segment.bytes": 1 << 20})
    ours.start()
    with CrashLoad(ours) as load:
        load.rounds(ROUNDS, seed=3)
        load.finish()
        acknowledged = [load.acknowledged(partition) for partition in range(PARTITIONS)]
        if end == "stop":
            ours.stop()
        else:
            ours.kill()
        load.check_directory(f"after {end}", closed=end == "stop")
    directories = [kafka.partition_dir(TOPIC, partition) for partition in range(PARTITIONS)]
    before = {path: path.read_bytes() for directory in directories for path in directory.glob("*.log")}
    kafka.start()
    try:
        rows = kafka.consume(TOPIC)
        for partition in range(PARTITIONS):
            offsets = np.array([row["offset"] for row in rows if row["partition"] == partition])
            assert np.array_equal(offsets, np.arange(acknowledged[partition]))
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": GROUP})
        found = reader.committed([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], timeout=60)
        reader.close()
        assert [one.offset for one in found] == acknowledged
    finally:
        kafka.stop()
    assert {path: path.read_bytes() for path in before} == before, "Kafka has cut or changed a log"
    assert check_log_dirs([kafka.data_dir]).findings.errors == 0
    files = [path for directory in directories for path in segment_files(directory)]
    told = dump([path for path in files if path.suffix == ".log"], "--deep-iteration", "--skip-record-metadata")
    assert told.count("isvalid: true") > len(before)
    assert "isvalid: false" not in told
    indexes = [path for path in files if path.suffix in (".index", ".timeindex") and path.stat().st_size]
    for check in ("--index-sanity-check", "--verify-index-only"):
        lines = dump(indexes, check).splitlines()
        assert [line for line in lines if not line.startswith("Dumping ") and " passed sanity check." not in line] == []
