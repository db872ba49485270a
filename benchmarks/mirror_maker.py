"""Apache Kafka's MirrorMaker 2, one process that copies a topic from one Kafka to another."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.real_kafka import VERSION, cache_dir, maven_copy

_LEAST_FRACTION = 0.97
"""Smallest size of the copy as a fraction of the source. Larger batches need fewer bytes of headers."""
_STOP_S = 60


class MirrorMaker:
    """Context manager of a MirrorMaker process, which copies one topic under the same name, without offsets."""

    def __init__(self, home: Path, source: str, target: str, topic: str) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {
            "clusters": "source,target",
            "source.bootstrap.servers": source,
            "target.bootstrap.servers": target,
            "source->target.enabled": "true",
            "source->target.topics": topic,
            "target->source.enabled": "false",
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "replication.factor": "1",
            "tasks.max": "2",
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "sync.group.offsets.enabled": "false",
            "refresh.topics.interval.seconds": "5",
            "offset.flush.interval.ms": "60000",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            # usual settings for a high rate
            "source.consumer.max.poll.records": "5000",
            "source.consumer.max.partition.fetch.bytes": "4194304",
            "target.producer.batch.size": "262144",
            "target.producer.linger.ms": "5",
        }

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def least_bytes(self, source: Any) -> int:
        """Return the smallest possible size of the complete copy in bytes."""
        return int(source.data_bytes * _LEAST_FRACTION)

    def start(self) -> Self:
        jars = cache_dir() / f"mirror-maker-{VERSION}"
        maven_copy(
            jars,
            [
                ("org.apache.kafka", "connect-mirror", VERSION),
                ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
            ],
        )
        self._home.mkdir(parents=True)
        config = self._home / "mm2.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        with (self._home / "out.log").open("wb") as out:
            self._process = subprocess.Popen(
                ["java", "-Xmx1g", "-cp", f"{jars}/*", "org.apache.kafka.connect.mirror.MirrorMaker", str(config)],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        time.sleep(1)
        if self._process.poll() is not None:
            raise RuntimeError(f"MirrorMaker ended: {(self._home / 'out.log').read_text()[-2000:]}")
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
