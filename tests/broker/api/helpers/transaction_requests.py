"""Transactional requests as tests ask them: what a producer knows of itself, and the fields of each request."""

from __future__ import annotations

from typing import Any, Protocol

from kafkalog_spark.format import layout
from kafkalog_spark.log.write.encoded_batch import header_fields, seal

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 8, 9, 10
CREATE_TOPICS, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, WRITE_MARKERS, TXN_OFFSET_COMMIT = 19, 22, 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
TOPIC = "accounts"
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TIMEOUT_MS = 60_000
SHORT_TIMEOUT_MS = 1_000
MAX_EPOCH = 2**15 - 1


class Asked(Protocol):
    def __call__(self, label: str, key: int, version: int, /, **values: Any) -> dict[str, Any]:
        """Ask, keep the answer under the label, return it."""

    def settle(self, transactional_id: str) -> None:
        """Return when no marker of the transaction is outstanding."""

    def expire(self, transactional_id: str) -> None:
        """Return when a transaction with SHORT_TIMEOUT_MS has been aborted by the coordinator."""

    def exhaust(self, transactional_id: str) -> None:
        """Let the producer's epoch be the last that a producer may have."""


class Producer:
    """What one producer knows of itself. `sequences`: next one by partition."""

    def __init__(self, asked: Asked, transactional_id: str, answer: dict[str, Any]) -> None:
        self.asked, self.transactional_id = asked, transactional_id
        self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        self.sequences: dict[int, int] = {}

    def fields(self, **changes: Any) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id, "producer_id": self.id, "producer_epoch": self.epoch
        } | changes  # fmt: skip

    def produce(self, label: str, version: int, partition: int = 0, records: int = 2, **changes: Any) -> Any:
        sequence = changes.pop("sequence", self.sequences.get(partition, 0))
        named = changes.pop("transactional_id", self.transactional_id)
        facts = {"producer_id": self.id, "producer_epoch": self.epoch, "transactional": True} | changes
        data = batch(records, sequence, **facts)
        answer = self.asked(label, PRODUCE, version, **produce_fields(named, partition, data))
        told = answer["responses"][0]["partition_responses"][0]
        if told["error_code"] == "none" and not changes:
            self.sequences[partition] = sequence + records
        return answer

    def add(self, label: str, version: int, *partitions: int, topic: str = TOPIC, **changes: Any) -> Any:
        topics = [{"name": topic, "partitions": list(partitions)}]
        if version < 4:
            fields = {f"v3_and_below_{name}": value for name, value in self.fields(**changes).items()}
            return self.asked(label, ADD_PARTITIONS, version, **fields, v3_and_below_topics=topics,
                              **self.fields(**changes), topics=topics)  # fmt: skip
        verify = changes.pop("verify_only", False)
        transaction = self.fields(**changes) | {"topics": topics, "verify_only": verify}
        return self.asked(label, ADD_PARTITIONS, version, transactions=[transaction])

    def end(self, label: str, version: int, committed: bool, **changes: Any) -> Any:
        answer = self.asked(label, END, version, **self.fields(committed=committed, **changes))
        self.asked.settle(self.transactional_id)
        if version >= 5 and answer["error_code"] == "none" and not changes:
            if answer["producer_epoch"] != self.epoch or answer["producer_id"] != self.id:
                self.sequences.clear()
            self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer

    def add_offsets(self, label: str, version: int, group: str, **changes: Any) -> Any:
        return self.asked(label, ADD_OFFSETS, version, **self.fields(group_id=group, **changes))

    def commit_offsets(self, label: str, version: int, group: str, offset: int, **changes: Any) -> Any:
        topics = changes.pop("topics", [offset_of(TOPIC, 0, offset)])
        return self.asked(label, TXN_OFFSET_COMMIT, version, **self.fields(
            group_id=group, **({"generation_id": -1, "member_id": "", "group_instance_id": None, "topics": topics}
                               | changes)))  # fmt: skip


def offset_of(topic: str, partition: int, offset: int, metadata: str = "") -> dict[str, Any]:
    return {"name": topic, "partitions": [
        {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1,
         "committed_metadata": metadata}
    ]}  # fmt: skip


def batch(
    records: int, sequence: int, *, producer_id: int, producer_epoch: int, transactional: bool, timestamp: int = 0
) -> bytes:
    """A v2 batch as a producer sends it: records without key, with a value of one byte."""
    data = bytearray(layout.BATCH_OVERHEAD)
    for delta in range(records):
        body = bytes((0, 0, 2 * delta, 1, 2, 65 + delta, 0))
        data += bytes((2 * len(body),)) + body
    attributes = layout.ATTRIBUTE_TRANSACTIONAL if transactional else 0
    fields = header_fields(
        0, records - 1, records, timestamp, timestamp, attributes=attributes, leader_epoch=-1,
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence,
    )  # fmt: skip
    seal(data, 0, len(data), fields)
    return bytes(data)


def produce_fields(transactional_id: str | None, partition: int, data: bytes) -> dict[str, Any]:
    topic = {"name": TOPIC, "topic_id": f"$id:{TOPIC}", "partition_data": [{"index": partition, "records": data}]}
    return {"transactional_id": transactional_id, "acks": -1, "timeout": 5_000, "topic_data": [topic]}


def fetch_fields(partition: int, offset: int, isolation: int) -> dict[str, Any]:
    wanted = {"partition": partition, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
              "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
    return {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": isolation,
        "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
        "topics": [{"topic": TOPIC, "topic_id": f"$id:{TOPIC}", "partitions": [wanted]}],
    }  # fmt: skip


def end_offset_fields(isolation: int) -> dict[str, Any]:
    wanted = [{"partition_index": n, "current_leader_epoch": -1, "timestamp": -1} for n in (0, 1)]
    return {"replica_id": -1, "isolation_level": isolation, "timeout": 0,
            "topics": [{"name": TOPIC, "partitions": wanted}]}  # fmt: skip


def offset_fetch_fields(group: str, stable: bool) -> dict[str, Any]:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    return {"groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}],
            "require_stable": stable}  # fmt: skip


def init(asked: Asked, label: str, version: int, transactional_id: str | None, **changes: Any) -> dict[str, Any]:
    return asked(label, INIT, version, **({
        "transactional_id": transactional_id, "transaction_timeout": TIMEOUT_MS, "producer_id": -1,
        "producer_epoch": -1} | changes))  # fmt: skip


def producer(asked: Asked, label: str, version: int, transactional_id: str, **changes: Any) -> Producer:
    return Producer(asked, transactional_id, init(asked, label, version, transactional_id, **changes))


def describe(asked: Asked, label: str, *ids: str) -> None:
    asked(label, DESCRIBE_TRANSACTIONS, 0, transactional_ids=list(ids))


def look(asked: Asked, label: str, offset: int = 0, partition: int = 0) -> None:
    """What consumers of both isolation levels are told."""
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        asked(f"{label}: isolation level {isolation}", FETCH, 12, **fetch_fields(partition, offset, isolation))
        asked(f"{label}: end offsets, isolation level {isolation}", LIST_OFFSETS, 7, **end_offset_fields(isolation))
