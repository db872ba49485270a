"""Encoding of the records of an offset commit.

A request may commit the offsets of very many partitions. Encoding does not depend on the group, so it is done first, in
steps that yield to the event loop. The check of the group, the append and the update of the offset store follow in one
step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.offset_records import OffsetAndMetadata, OffsetKey, offset_key, offset_value
from kafkalog_broker.groups.offset_requests import CommitRequest
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

PARTITIONS_PER_STEP = 10  # bounds the time for which a step blocks the event loop


class PreparedCommit(NamedTuple):
    """Error codes of all partitions in the request, and the records and offsets of the partitions without an error."""

    codes: list[ErrorCode]
    records: EncodedRecords
    committed: list[tuple[OffsetKey, OffsetAndMetadata]]


PreparingCommit = Generator[None, None, PreparedCommit]


def prepare_commit(request: CommitRequest, max_metadata_bytes: int, now_ms: int) -> PreparingCommit:
    """Encode the records of an offset commit. Yields after each step."""
    expire_ms = -1 if request.retention_ms < 0 else now_ms + request.retention_ms
    codes: list[ErrorCode] = []
    records = EncodedRecords()
    committed = []
    for number, part in enumerate(request.partitions, 1):
        if not number % PARTITIONS_PER_STEP:
            yield
        metadata = part.metadata or ""
        if len(metadata) > max_metadata_bytes:
            codes.append(ErrorCode.offset_metadata_too_large)
            continue
        codes.append(ErrorCode.none)
        committed_ms = now_ms if part.commit_timestamp_ms == -1 else part.commit_timestamp_ms
        topic_id = part.topic_id if request.producer is None else None  # as in Kafka, not in transactions
        value = OffsetAndMetadata(part.offset, part.leader_epoch, metadata, committed_ms, expire_ms, topic_id)
        key = OffsetKey(request.group_id, part.topic, part.partition)
        records.add(offset_key(*key), offset_value(value))
        committed.append((key, value))
    return PreparedCommit(codes, records, committed)
