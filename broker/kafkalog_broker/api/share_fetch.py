"""Records of share groups (KIP-932).

78 ShareFetch, versions 1 and 2: records of a share group's partitions, acquired by the member. Waits up to max_wait_ms
for min_bytes, woken by appends and by records that others give back. The acknowledgements that it brings are carried
out first. Sessions remember the partitions (`share/share_sessions.py`).
v2  acquire mode: strictly no more than max records (KIP-1206); renewing locks (KIP-1222)

79 ShareAcknowledge, versions 1 and 2: what became of records that a member has acquired.
v2  renewing locks (KIP-1222), acquisition lock timeout in the answer
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.admin.responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.hot_messages import ShareFetchPartition, ShareFetchResponse, ShareFetchTopic
from kafkalog_broker.quotas.client_quotas import Client
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.share.acknowledgement import Acknowledgement, AcknowledgeType
from kafkalog_broker.share.share_fetch import FetchedShares, ShareFetch, ShareFetchParams
from kafkalog_broker.share.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSession,
    TopicIdPartition,
)
from kafkalog_broker.share.share_state import NO_TOPIC, SharePartitionKey, share_partition_key

_RECORD_LIMIT = 1  # ShareAcquireMode


@api(78, 1, 2)
async def share_fetch_request(request: Request, broker: Broker) -> ShareFetchResponse:
    asked, turn = request.entity, TimeSlice()
    _check_ids(asked)
    is_renewing = request.version >= FIRST_RENEWING_VERSION and asked.is_renew_ack
    if is_renewing:
        named = {
            "maxBytes": asked.max_bytes, "minBytes": asked.min_bytes, "maxRecords": asked.max_records,
            "maxWaitMs": asked.max_wait.total_seconds(),
        }  # fmt: skip
        if wrong := "".join(f"{name} must be set to 0, " for name, value in named.items() if value):
            raise BrokerError(ErrorCode.invalid_request, f"{wrong}if isRenewAck is true.")
    has_acks = any(partition.acknowledgement_batches for topic in asked.topics for partition in topic.partitions)
    partitions, session = _asked(request, broker, has_acks)
    outcomes: Mapping[TopicIdPartition, AckOutcome] = {}
    if has_acks:
        outcomes = await acknowledge_all(request, broker, turn)
    answers: FetchedShares = {}
    if not is_renewing:
        answers = await _fetched(request, broker, partitions)
    if session is not None:
        answers = _worth_saying(session, answers)
    if asked.share_session_epoch == FINAL_EPOCH:
        broker.share_partitions.end_session(SessionKey(asked.group_id, asked.member_id))
    return _response(request, broker, answers, outcomes)


def _asked(request: Request, broker: Broker, has_acks: bool) -> tuple[Sequence[TopicIdPartition], ShareSession | None]:
    """Partitions to fetch, and the session that goes on. Raises BrokerError (SharePartitionManager.newContext)."""
    asked, sessions = request.entity, broker.share_partitions.sessions
    key, epoch = SessionKey(asked.group_id, asked.member_id), asked.share_session_epoch
    named = [
        TopicIdPartition(topic.topic_id or NO_TOPIC, one.partition_index)
        for topic in asked.topics
        for one in topic.partitions
    ]
    if epoch == FINAL_EPOCH:
        sessions.get(key)
        return (), None
    if epoch == INITIAL_EPOCH:
        if has_acks:
            raise BrokerError(ErrorCode.invalid_request)
        named = list(dict.fromkeys(named))  # a partition is read once, however often it is named
        session = sessions.begin(key, named)
        broker.share_partitions.bind_session(request.connection, session)
        return named, None
    session = sessions.advance(key, epoch)
    forgotten = [
        TopicIdPartition(topic.topic_id or NO_TOPIC, index)
        for topic in asked.forgotten_topics_data
        for index in topic.partitions
    ]
    sessions.update(session, named, forgotten)
    partitions = list(session.partitions)
    turned = epoch % len(partitions) if partitions else 0
    return partitions[turned:] + partitions[:turned], session


async def _fetched(request: Request, broker: Broker, partitions: Sequence[TopicIdPartition]) -> FetchedShares:
    asked, refused = request.entity, FetchedShares()
    keys: list[SharePartitionKey] = []
    for topic_id, index in partitions:
        key = SharePartitionKey(asked.group_id, topic_id, index)
        known = broker.topics.by_id(topic_id)
        code = ErrorCode.unknown_topic_id if known is None else request.refused(known.name)
        if code is ErrorCode.none and known is not None and not 0 <= index < known.partitions:
            code = ErrorCode.unknown_topic_or_partition
        if code is ErrorCode.none:
            keys.append(key)
        else:
            refused[key] = ShareFetchPartition(index, code)
    max_bytes = min(asked.max_bytes, broker.config.fetch_max_bytes)
    if broker.quotas.in_use:
        max_bytes = min(max_bytes, broker.quotas.fetch_bytes(Client.of_request(request)) or max_bytes)
    params = ShareFetchParams(
        asked.member_id, asked.max_records, asked.batch_size, min(asked.min_bytes, max_bytes), max_bytes,
        asked.max_wait.total_seconds(), getattr(asked, "share_acquire_mode", 0) == _RECORD_LIMIT,
    )  # fmt: skip
    connection = request.connection
    fetch = ShareFetch(broker.share_partitions, keys, params, broker.remote, request.connection.hold)
    fetched = await fetch.run(connection.on_close, lambda: connection.closed)
    return {**fetched, **refused}


def _worth_saying(session: ShareSession, answers: FetchedShares) -> FetchedShares:
    """Filters a session's later responses: partitions with records, an error, or a change."""
    told: FetchedShares = {}
    for key, given in answers.items():
        place = TopicIdPartition(key.topic_id, key.partition)
        must = session.partitions.get(place, False)
        if given.acquired_records or given.error_code or must:
            told[key] = given
            if place in session.partitions:
                session.partitions[place] = given.error_code != ErrorCode.none
    return told


def _response(
    request: Request, broker: Broker, answers: FetchedShares, outcomes: Mapping[TopicIdPartition, AckOutcome]
) -> ShareFetchResponse:
    asked = request.entity
    topics: dict[UUID, dict[int, ShareFetchPartition]] = {}
    for key, given in answers.items():
        topics.setdefault(key.topic_id, {})[key.partition] = given
    for (topic_id, index), acknowledged in outcomes.items():
        partition = topics.setdefault(topic_id, {}).setdefault(index, ShareFetchPartition(index))
        partition.acknowledge_error_code, partition.acknowledge_error_message = acknowledged
    throttle_ms = 0
    size = sum(given.size for given in answers.values())
    if broker.quotas.in_use and size:
        throttle_ms = broker.quotas.record_fetch(Client.of_request(request), size)
        if throttle_ms:
            request.connection.mute(throttle_ms / 1000)
    lock_ms = broker.share_partitions.settings_of(asked.group_id).limits.lock_ms
    return ShareFetchResponse(
        [ShareFetchTopic(topic_id, partitions.values()) for topic_id, partitions in topics.items()],
        acquisition_lock_timeout=lock_ms, throttle_time=throttle_ms,
    )  # fmt: skip


@on_error(78)
async def failed(request: Request, code: ErrorCode) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code)


@api(79, 1, 2)
async def share_acknowledge(request: Request, broker: Broker) -> Any:
    asked = request.entity
    epoch, turn = asked.share_session_epoch, TimeSlice()
    _check_ids(asked)
    key = SessionKey(asked.group_id, asked.member_id)
    sessions = broker.share_partitions.sessions
    if epoch == INITIAL_EPOCH:
        raise BrokerError(ErrorCode.invalid_share_session_epoch)
    if epoch == FINAL_EPOCH:
        sessions.get(key)
    else:
        sessions.advance(key, epoch)
    outcomes = await acknowledge_all(request, broker, turn)
    if epoch == FINAL_EPOCH:
        broker.share_partitions.end_session(key)
    lock_ms = broker.share_partitions.settings_of(asked.group_id).limits.lock_ms

    def answer(topic: Any, partition: Any) -> Mapping[str, Any]:
        return outcomes[TopicIdPartition(topic.topic_id or NO_TOPIC, partition.partition_index)]._asdict()

    return await respond_by_partition(request, answer, acquisition_lock_timeout=lock_ms)


# Acknowledgements of both: read from requests, checked and carried out.

FIRST_RENEWING_VERSION = 2
LONGEST_MEMBER_ID = 36
BATCHES_A_STEP = 500  # acknowledgements that are checked in half a millisecond


def _check_ids(asked: Any) -> None:
    if asked.group_id is None:
        raise BrokerError(ErrorCode.invalid_request, "Invalid group id in the request.")
    check_member_id(asked.member_id)


def check_member_id(member_id: str | None) -> None:
    if not member_id or len(member_id) > LONGEST_MEMBER_ID:
        raise BrokerError(ErrorCode.invalid_request, "Invalid member id in the request.")


class AckOutcome(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


async def acknowledge_all(request: Request, broker: Broker, turn: TimeSlice) -> Mapping[TopicIdPartition, AckOutcome]:
    """By partition, of those that the request names acknowledgements of, or, for ShareAcknowledge, names at all."""
    asked = request.entity
    may_renew = request.version >= FIRST_RENEWING_VERSION
    is_renewing = may_renew and asked.is_renew_ack
    result: dict[TopicIdPartition, AckOutcome] = {}
    for topic in asked.topics:
        known = broker.topics.by_id(topic.topic_id)
        for partition in topic.partitions:
            if turn.over:
                await turn.next()
            key = share_partition_key(asked.group_id, topic.topic_id, partition.partition_index)
            named = TopicIdPartition(key.topic_id, key.partition)
            try:
                if known is None:
                    raise BrokerError(ErrorCode.unknown_topic_id)
                batches = await run_in_slices(checked(partition.acknowledgement_batches, may_renew, is_renewing), turn)
                request.check(known.name)
                if not 0 <= key.partition < known.partitions:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition)
                if batches:
                    broker.share_partitions.acknowledge(key, asked.member_id, batches)
                result[named] = AckOutcome()
            except BrokerError as error:
                result[named] = AckOutcome(error.code, error.message)
    return result


def checked(batches: Sequence[Any], may_renew: bool, is_renewing: bool) -> Generator[None, None, list[Acknowledgement]]:
    """Step by step. Raises BrokerError invalid_request (KafkaApis.validateAcknowledgementBatches).
    A batch may begin where the one before ends, so one offset may be named any number of times, in batches of its own.
    To renew it a second time changes nothing: that is left out. Whatever else is said of it twice is refused later. So
    what is left is no longer than some three times the records in flight, or is refused when it comes to that."""
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    found, end = list[Acknowledgement](), -1
    for at, batch in enumerate(batches, 1):
        if not at % BATCHES_A_STEP:
            yield
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        kinds = set(types)
        if (
            first > last
            or first < end
            or not kinds
            or (len(types) > 1 and last - first != len(types) - 1)
            or min(kinds) < 0
            or max(kinds) > highest
            or (AcknowledgeType.RENEW in kinds and not is_renewing)
        ):
            raise BrokerError(ErrorCode.invalid_request)
        end = last
        said = Acknowledgement(first, last, types)
        if AcknowledgeType.RENEW not in kinds or not found or said != found[-1]:
            found.append(said)
    return found
