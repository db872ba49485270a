"""What a commit of offsets writes, made before the group is asked: a request may name a hundred thousand partitions.

Making and encoding a record takes some 10 microseconds, and nothing of it depends on the group. What does, whether the
group takes the commit, appending and remembering it, is one step afterwards.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.messages import CommitRequest, TransactionalCommit
from kafkalog_broker.groups.offset_records import OffsetAndMetadata, OffsetKey, offset_key, offset_value
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

AT_ONCE = 10
"""Partitions in a step: some 0.1 ms."""


class PreparedCommit(NamedTuple):
    """A code for each partition of the request; records and offsets of those that can be committed."""

    codes: list[ErrorCode]
    records: EncodedRecords
    committed: list[tuple[OffsetKey, OffsetAndMetadata]]


PreparingCommit = Generator[None, None, PreparedCommit]


def prepare_commit(
    request: CommitRequest | TransactionalCommit, max_metadata_bytes: int, now_ms: int
) -> PreparingCommit:
    """In steps; returns what the group is to write."""
    in_transaction = isinstance(request, TransactionalCommit)
    retention_ms = -1 if isinstance(request, TransactionalCommit) else request.retention_ms
    expire_ms = -1 if retention_ms < 0 else now_ms + retention_ms
    codes: list[ErrorCode] = []
    records = EncodedRecords()
    committed = []
    for number, part in enumerate(request.partitions, 1):
        if not number % AT_ONCE:
            yield
        metadata = part.metadata or ""
        if len(metadata) > max_metadata_bytes:
            codes.append(ErrorCode.offset_metadata_too_large)
            continue
        codes.append(ErrorCode.none)
        committed_ms = now_ms if part.commit_timestamp_ms == -1 else part.commit_timestamp_ms
        topic_id = None if in_transaction else part.topic_id  # Kafka's records of transactions have no topic's id
        value = OffsetAndMetadata(part.offset, committed_ms, part.leader_epoch, metadata, expire_ms, topic_id)
        key = OffsetKey(request.group_id, part.topic, part.partition)
        records.add(offset_key(*key), offset_value(value))
        committed.append((key, value))
    return PreparedCommit(codes, records, committed)


def prepared_at_once(steps: PreparingCommit) -> PreparedCommit:
    """All of it."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: PreparedCommit = done.value
            return found
