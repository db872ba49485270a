"""78 ShareFetch, versions 1 and 2: records of a share group's partitions, acquired by the member (KIP-932).

Acknowledgements in the request are applied first. The request then waits up to max_wait_ms for min_bytes; appends, and
records that other members release, wake it (`share/share_fetch.py`). A session stores the partitions between requests
(`share/share_sessions.py`).

v2  acquire mode: at most max_records, even if that divides a batch (KIP-1206); renewal of locks (KIP-1222)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.api.records.share_acknowledge import FIRST_RENEWING_VERSION, AckOutcome, acknowledge_all, check_ids
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.consumer_quota import limit_bytes, throttle
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.share_fetch_messages import ShareFetchPartition, ShareFetchResponse, ShareFetchTopic
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.share_fetch import FetchedPartitions, ShareFetch, ShareFetchParams
from kafkalog_broker.share.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSession,
    TopicIdPartition,
)
from kafkalog_broker.share.share_state import NO_TOPIC, SharePartitionKey

_RECORD_LIMIT = 1  # Kafka's ShareAcquireMode


class _RequestedPartitions(NamedTuple):
    """Partitions to fetch, and the session if the response may omit partitions without changes."""

    partitions: Sequence[TopicIdPartition]
    session: ShareSession | None


@api(78, 1, 2)
async def share_fetch(request: Request, broker: Broker) -> ShareFetchResponse:
    entity = request.entity
    time_slice = TimeSlice()
    check_ids(entity.group_id, entity.member_id)
    is_renewing = request.version >= FIRST_RENEWING_VERSION and entity.is_renew_ack
    if is_renewing:
        _check_renewing(entity)
    has_acks = any(partition.acknowledgement_batches for topic in entity.topics for partition in topic.partitions)
    partitions, session = _requested_partitions(request, broker, has_acks)
    outcomes: Mapping[TopicIdPartition, AckOutcome] = {}
    if has_acks:
        outcomes = await acknowledge_all(request, broker, time_slice)
    fetched: FetchedPartitions = {}
    if not is_renewing:
        fetched = await _fetch(request, broker, partitions)
    if session is not None:
        fetched = _changed_partitions(session, fetched)
    if entity.share_session_epoch == FINAL_EPOCH:
        broker.share_partitions.end_session(SessionKey(entity.group_id, entity.member_id))
    return _response(request, broker, fetched, outcomes)


def _check_renewing(entity: Any) -> None:
    """Raise BrokerError if a request that renews locks would also fetch, because its limits are not 0."""
    values = {
        "maxBytes": entity.max_bytes, "minBytes": entity.min_bytes, "maxRecords": entity.max_records,
        "maxWaitMs": entity.max_wait.total_seconds(),
    }  # fmt: skip
    if wrong := "".join(f"{name} must be set to 0, " for name, value in values.items() if value):
        raise BrokerError(ErrorCode.invalid_request, f"{wrong}if isRenewAck is true.")


def _requested_partitions(request: Request, broker: Broker, has_acks: bool) -> _RequestedPartitions:
    """Open, continue or end the session (SharePartitionManager.newContext). Raises BrokerError."""
    entity = request.entity
    sessions = broker.share_partitions.sessions
    key = SessionKey(entity.group_id, entity.member_id)
    epoch = entity.share_session_epoch
    requested = [
        TopicIdPartition(topic.topic_id or NO_TOPIC, partition.partition_index)
        for topic in entity.topics
        for partition in topic.partitions
    ]
    if epoch == FINAL_EPOCH:
        sessions.get(key)
        return _RequestedPartitions((), None)
    if epoch == INITIAL_EPOCH:
        if has_acks:
            raise BrokerError(ErrorCode.invalid_request)
        requested = list(dict.fromkeys(requested))  # a repeated partition is read once
        session = sessions.begin(key, requested)
        broker.share_partitions.bind_session(request.connection, session)
        return _RequestedPartitions(requested, None)
    session = sessions.advance(key, epoch)
    forgotten = [
        TopicIdPartition(topic.topic_id or NO_TOPIC, index)
        for topic in entity.forgotten_topics_data
        for index in topic.partitions
    ]
    sessions.update(session, requested, forgotten)
    partitions = list(session.partitions)
    start = epoch % len(partitions) if partitions else 0  # each request begins with another partition
    return _RequestedPartitions(partitions[start:] + partitions[:start], session)


async def _fetch(request: Request, broker: Broker, partitions: Sequence[TopicIdPartition]) -> FetchedPartitions:
    entity = request.entity
    refused = FetchedPartitions()
    keys: list[SharePartitionKey] = []
    for topic_id, index in partitions:
        key = SharePartitionKey(entity.group_id, topic_id, index)
        topic = broker.topics.by_id(topic_id)
        code = ErrorCode.unknown_topic_id if topic is None else request.authorization_error(topic.name)
        if code is ErrorCode.none and topic is not None and not 0 <= index < topic.partitions:
            code = ErrorCode.unknown_topic_or_partition
        if code is ErrorCode.none:
            keys.append(key)
        else:
            refused[key] = ShareFetchPartition(index, code)
    max_bytes = limit_bytes(broker.quotas, request, min(entity.max_bytes, broker.config.fetch_max_bytes))
    params = ShareFetchParams(
        entity.member_id, entity.max_records, entity.batch_size, min(entity.min_bytes, max_bytes), max_bytes,
        entity.max_wait.total_seconds(), entity.share_acquire_mode == _RECORD_LIMIT,
    )  # fmt: skip
    connection = request.connection
    fetch = ShareFetch(broker.share_partitions, keys, params, broker.remote, request.connection.hold)
    fetched = await fetch.run(connection.on_close, lambda: connection.is_closed)
    return {**fetched, **refused}


def _changed_partitions(session: ShareSession, fetched: FetchedPartitions) -> FetchedPartitions:
    """Return the partitions that a response to a session's later request includes.

    These have records or an error, or had an error in the previous response.
    """
    changed: FetchedPartitions = {}
    for key, partition in fetched.items():
        index = TopicIdPartition(key.topic_id, key.partition)
        had_error = session.partitions.get(index, False)
        if partition.acquired_records or partition.error_code or had_error:
            changed[key] = partition
            if index in session.partitions:
                session.partitions[index] = partition.error_code != ErrorCode.none
    return changed


def _response(
    request: Request, broker: Broker, fetched: FetchedPartitions, outcomes: Mapping[TopicIdPartition, AckOutcome]
) -> ShareFetchResponse:
    topics: dict[UUID, dict[int, ShareFetchPartition]] = {}
    for key, share in fetched.items():
        topics.setdefault(key.topic_id, {})[key.partition] = share
    for (topic_id, index), acknowledged in outcomes.items():
        partition = topics.setdefault(topic_id, {}).setdefault(index, ShareFetchPartition(index))
        partition.acknowledge_error_code, partition.acknowledge_error_message = acknowledged
    throttle_ms = throttle(broker.quotas, request, sum(share.size for share in fetched.values()))
    lock_ms = broker.share_partitions.settings_of(request.entity.group_id).limits.lock_ms
    return ShareFetchResponse(
        [ShareFetchTopic(topic_id, partitions.values()) for topic_id, partitions in topics.items()],
        acquisition_lock_timeout=lock_ms, throttle_time=throttle_ms,
    )  # fmt: skip


@on_error(78)
def share_fetch_error(request: Request, code: ErrorCode) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code)
