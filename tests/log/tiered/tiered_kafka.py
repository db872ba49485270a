"""A real Kafka with tiered storage in a directory: Kafka's LocalTieredStorage, from the test jar of kafka-storage."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.real_kafka import VERSION, RealKafka, cache_dir, classpath, maven_jar

FORMATTER = "RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
FORMATTER_CLASS = f"org.apache.kafka.server.log.remote.metadata.storage.serialization.{FORMATTER}"
SEGMENT_BYTES = 16_384
METADATA_PARTITIONS = 3

TIERED_TOPIC = {
    "remote.storage.enable": "true",
    "local.retention.ms": 1000,
    "internal.segment.bytes": SEGMENT_BYTES,
    "file.delete.delay.ms": 1000,
    "index.interval.bytes": 1024,
    "segment.index.bytes": 4096,  # preallocated while a segment is active: golden data is committed
}
"""Settings of a topic whose segments are small and leave the local log soon after they were copied."""


def storage_jar() -> Path:
    """The jar with LocalTieredStorage; Maven fetches it once. Raises RuntimeError with Maven's words."""
    return maven_jar(f"org.apache.kafka:kafka-storage:{VERSION}:jar:test", cache_dir() / f"tiered-{VERSION}")


def tiered_properties(remote: Path) -> dict[str, object]:
    """Broker properties for tiered storage in the directory `remote`."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": storage_jar(),
        "rsm.config.dir": remote,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
        "log.retention.check.interval.ms": 500,
        "remote.log.manager.task.interval.ms": 500,
        "log.index.size.max.bytes": 16_384,  # also of __remote_log_metadata
        "log.initial.task.delay.ms": 500,
        "log.segment.delete.delay.ms": 1000,  # of deleted topics
    }


class TieredKafka(RealKafka):
    """RealKafka with tiered storage; remote objects lie below `remote`."""

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory, short_lived=True)
        self.remote = self.directory / "remote"
        self.properties.update(tiered_properties(self.remote))

    def remote_files(self, topic: str, partition: int = 0, suffix: str = "") -> list[Path]:
        """Remote files of a partition whose names end with `suffix`, of all topics of that name, by name."""
        return sorted((self.remote / "kafka-tiered-storage").glob(f"{topic}-{partition}-*/*{suffix}"))

    def local_segments(self, topic: str, partition: int = 0) -> list[Path]:
        """The .log files that the partition's directory holds."""
        return sorted(self.partition_dir(topic, partition).glob("*.log"))

    def wait_until(self, what: str, so: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for something that Kafka does in its own time. Raises RuntimeError with the end of its log."""
        end = time.monotonic() + seconds
        while not so():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not in {seconds} s: {self.server_log()[-3000:]}")
            time.sleep(0.05)

    def wait_until_copied(self, topic: str, partition: int = 0, local_left: int | None = 1) -> None:
        """Wait until all but the active segment are remote and `local_left` segments are local (None: as many as there
        are)."""

        def so() -> bool:
            local = self.local_segments(topic, partition)
            starts = {path.name[:20] for path in self.remote_files(topic, partition, ".snapshot")}
            deleted = list(self.partition_dir(topic, partition).glob("*.deleted"))
            whole = {path.name[:20] for path in local[:-1]} <= starts and bool(starts)
            return whole and not deleted and local_left in (None, len(local))

        self.wait_until(f"{topic}-{partition} is copied", so)

    def metadata_events(self) -> str:
        """What Kafka's own formatter prints of `__remote_log_metadata`: a line an event."""
        there = sum(self.watermarks("__remote_log_metadata", number)[1] for number in range(METADATA_PARTITIONS))
        printed = self.tool(
            "ConsoleConsumer", "--bootstrap-server", self.bootstrap, "--topic", "__remote_log_metadata",
            "--from-beginning", "--max-messages", there, "--timeout-ms", 60_000, "--formatter", FORMATTER_CLASS,
        )  # fmt: skip
        return "".join(f"{line}\n" for line in printed.splitlines() if line.startswith("partition: "))

    def watermarks(self, topic: str, partition: int, isolation_level: str = "read_uncommitted") -> tuple[int, int]:
        """(log start offset, high watermark) as the broker says; the last stable offset with read_committed."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.bootstrap, "group.id": "watermarks", "isolation.level": isolation_level}
        consumer = Consumer(settings)
        try:
            found: Any = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        finally:
            consumer.close()
        return int(found[0]), int(found[1])


def java_rules(cases: list[str]) -> list[str]:
    """What KafkaRules.java says of each case; a line that needs several lines ends with a dot."""
    program = Path(__file__).with_name("KafkaRules.java")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath(), str(program)]
    ran = subprocess.run(command, input="\n".join(cases) + "\n", capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"KafkaRules ended with {ran.returncode}: {ran.stderr[-2000:]}")
    return ran.stdout.splitlines()
