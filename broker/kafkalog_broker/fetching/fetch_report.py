"""Partitions that the response to a Fetch includes, which a fetch session remembers (KIP-227)."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog_broker.fetching.fetch_read import FetchedPartition
from kafkalog_broker.fetching.fetch_session import FetchContext, Reported, Session

_NEVER_REPORTED = Reported(-1, -1, False)
_new_tuple = tuple.__new__  # Reported without the cost of its constructor


def report(context: FetchContext, fetched: Sequence[FetchedPartition]) -> Sequence[FetchedPartition]:
    """Return the partitions that the response includes, and store their state in the session.

    Call it once, and only if the response is sent (Kafka: updateAndGenerateResponseData).
    """
    session = context.session
    if session is None:
        return fetched
    changed = [partition for partition in fetched if report_partition(session, partition)]
    return changed if context.is_incremental else fetched


def report_partition(session: Session, fetched: FetchedPartition) -> bool:
    """Store the state of a partition in the session. Return True if an incremental response includes the partition.

    A partition with records moves behind all others, so that none starves when responses are full.
    """
    key = (fetched.request.topic, fetched.request.partition)
    partition = session.partitions.get(key)
    if partition is None:
        return True
    has_error = bool(fetched.error_code) or fetched.diverging_epoch is not None
    before = session.reported.get(key, _NEVER_REPORTED)
    session.reported[key] = _new_tuple(Reported, (fetched.high_watermark, fetched.log_start_offset, has_error))
    if fetched.size:
        del session.partitions[key]
        session.partitions[key] = partition
        return True
    return has_error or before != (fetched.high_watermark, fetched.log_start_offset, False)
