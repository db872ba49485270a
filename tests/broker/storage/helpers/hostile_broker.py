"""A broker with remote storage over a manipulated directory, and checks of the partitions that it serves."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_spark.format.names import (
    OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
)
from kafkalog_spark.log.tiered.remote_log_events import RemoteLogEvent, encode_event
from kafkalog_spark.log.write.encoded_batch import build_batch
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.log.helpers.batch_builder import V2Record, batch

PRODUCE, FETCH = 0, 1
TOPICS = {"orders": {}, "payments": {}, "tiered": {
    "remote.storage.enable": "true", "segment.bytes": "1048576", "internal.segment.bytes": "1000",
    "local.retention.bytes": "1000000000", "index.interval.bytes": "100",
}}  # fmt: skip
PARTITIONS = [(topic, number) for topic in ("orders", "payments", "tiered") for number in (0, 1)]
RECORDS = 4
"""Records of each partition in `made`, one batch each."""


def properties(tier: Path, **others: str) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "rsm.config.storage.root": str(tier),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "log.index.size.max.bytes": "1200",
        **{name.replace("_", "."): value for name, value in others.items()},
    }


class HostileBroker(BrokerInProcess):
    """data, tier, outside: a log directory, the folder of remote segments, and a folder that is none of its business,
    all below one directory."""

    def __init__(self, root: Path, **others: str) -> None:
        super().__init__(root / "data", properties(root / "tier", **others))

    def produce(self, topic: str, partition: int, value: bytes = b"v" * 300) -> str:
        """Send one record and return its error code."""
        now = self.clock.now_ms()
        data = batch(0, [V2Record(0, now, b"k", value)], leader_epoch=-1)
        fields = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": [
            {"name": topic, "partition_data": [{"index": partition, "records": data}]}
        ]}  # fmt: skip
        answer = self.ask(request_entity(PRODUCE, 9, fields, {}))
        return str(answer.responses[0].partition_responses[0].error_code.name)

    def fetch(self, topic: str, partition: int) -> tuple[str, int]:
        """(error code, bytes of records) from the log start offset on."""
        log = self.broker.logs.if_open(topic, partition)
        begin = 0 if log is None else log.log_start_offset
        fields = {
            "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
            "topics": [{"topic": topic, "partitions": [{
                "partition": partition, "current_leader_epoch": -1, "fetch_offset": begin, "log_start_offset": -1,
                "partition_max_bytes": 1 << 20,
            }]}],
        }  # fmt: skip
        one = self.ask(request_entity(FETCH, 11, fields, {})).responses[0].partitions[0]
        return one.error_code.name, len(one.records or b"")

    def __exit__(self, *error: object) -> None:
        # The first append to a log that recovery has emptied writes its leader epoch: that wait is another subject.
        self._waits.clear()
        super().__exit__(*error)

    def topic_id(self, topic: str) -> UUID:
        known = self.broker.topics.get(topic)
        assert known is not None
        return known.id

    def write_events(self, *events: RemoteLogEvent | bytes) -> None:
        """As a foreign hand would: no check of ours comes between."""
        now = self.clock.now_ms()
        values = [event if isinstance(event, bytes) else encode_event(event) for event in events]
        log = self.broker.log(REMOTE_LOG_METADATA_TOPIC, 0)
        log.append_batch(build_batch([(None, value) for value in values], now).data, now)

    def write_records(self, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
        now = self.clock.now_ms()
        self.broker.log(topic, 0).append_batch(build_batch(list(records), now).data, now)

    def copy_segments(self) -> None:
        """Copy closed segments to the tier, and delete what is to be deleted there."""
        assert self.broker.remote is not None
        self.run(self._copied(self.broker))

    async def _copied(self, broker: Broker) -> None:
        remote = broker.remote
        assert remote is not None
        await remote.run_due()
        await remote.wait_until_idle()


def make(root: Path) -> None:
    """A directory of every kind of state that is read at a start, cleanly shut down; some segments in the tier."""
    (root / "outside" / "victim-0").mkdir(parents=True)
    for name in ("victim-0/00000000000000000000.log", "orders.log", "orders.indexes", "secret"):
        (root / "outside" / name).write_bytes(b"somebody else's")
    (root / "tier").mkdir()
    with HostileBroker(root) as running:
        for name in (OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC):
            running.run(running.broker.ensure_internal_topic(name))
        for topic, configs in TOPICS.items():
            running.run(running.broker.ensure_topic(topic, 2, configs))
        for _ in range(RECORDS):
            for key in PARTITIONS:
                assert running.produce(*key) == "none"
        running.copy_segments()


def copy_of(made: Path, target: Path) -> Path:
    return Path(shutil.copytree(made, target, symlinks=True))


def contents(root: Path) -> dict[str, bytes | None]:
    """Return the files and directories below a directory by path."""
    found: dict[str, bytes | None] = {}
    for path in sorted(root.rglob("*")):
        is_file = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(root))] = path.read_bytes() if is_file else None
    return found


def names_in(root: Path) -> list[str]:
    return sorted(os.listdir(root))


def unserved(running: HostileBroker, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Any]:
    """Those of the partitions that do not answer Produce and Fetch, with what they answer. A log that is recovered in
    a thread is waited for."""
    found = {}
    for key in keys:
        answers = running.produce(*key), running.fetch(*key)[0]
        entry = running.broker.logs.entries.get(key)
        if entry is not None and "kafka_storage_error" in answers:
            while entry.is_recovering:
                running.run(asyncio.sleep(0.01))
            answers = running.produce(*key), running.fetch(*key)[0]
        if answers != ("none", "none"):
            found[key] = answers
    return found
