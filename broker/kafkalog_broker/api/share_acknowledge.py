"""79 ShareAcknowledge, versions 1 and 2: what became of records that a member of a share group has acquired (KIP-932).

ShareFetch carries acknowledgements too; both apply them with `acknowledge_all`.

v2  renewing locks (KIP-1222), acquisition lock timeout in the response
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog_broker.api.itemized_responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.share.acknowledgement import Acknowledgement, AcknowledgeType
from kafkalog_broker.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, TopicIdPartition
from kafkalog_broker.share.share_state import NO_TOPIC, share_partition_key

FIRST_RENEWING_VERSION = 2
"""Version of ShareFetch and of ShareAcknowledge."""
BATCHES_A_STEP = 500
"""Acknowledgements that are checked before other requests may run: half a millisecond."""
_MAX_MEMBER_ID_LENGTH = 36


class AckOutcome(NamedTuple):
    """Result of the acknowledgements of one partition."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@api(79, 1, 2)
async def handle(request: Request, broker: Broker) -> Any:
    entity, time_slice = request.entity, TimeSlice()
    epoch = entity.share_session_epoch
    check_ids(entity.group_id, entity.member_id)
    key = SessionKey(entity.group_id, entity.member_id)
    sessions = broker.share_partitions.sessions
    if epoch == INITIAL_EPOCH:
        raise BrokerError(ErrorCode.invalid_share_session_epoch)
    if epoch == FINAL_EPOCH:
        sessions.get(key)
    else:
        sessions.advance(key, epoch)
    outcomes = await acknowledge_all(request, broker, time_slice)
    if epoch == FINAL_EPOCH:
        broker.share_partitions.end_session(key)
    lock_ms = broker.share_partitions.settings_of(entity.group_id).limits.lock_ms

    def outcome(topic: Any, partition: Any) -> Mapping[str, Any]:
        return outcomes[TopicIdPartition(topic.topic_id or NO_TOPIC, partition.partition_index)]._asdict()

    return await respond_by_partition(request, outcome, acquisition_lock_timeout=lock_ms)


def check_ids(group_id: str | None, member_id: str | None) -> None:
    """Raise BrokerError invalid_request unless a request names a group and a member."""
    if group_id is None:
        raise BrokerError(ErrorCode.invalid_request, "Invalid group id in the request.")
    check_member_id(member_id)


def check_member_id(member_id: str | None) -> None:
    if not member_id or len(member_id) > _MAX_MEMBER_ID_LENGTH:
        raise BrokerError(ErrorCode.invalid_request, "Invalid member id in the request.")


async def acknowledge_all(
    request: Request, broker: Broker, time_slice: TimeSlice
) -> Mapping[TopicIdPartition, AckOutcome]:
    """Apply the acknowledgements of a ShareFetch or ShareAcknowledge.

    Returns:
        Outcomes by partition, also of partitions that the request names without acknowledgements.
    """
    entity = request.entity
    may_renew = request.version >= FIRST_RENEWING_VERSION
    is_renewing = may_renew and entity.is_renew_ack
    outcomes: dict[TopicIdPartition, AckOutcome] = {}
    for topic in entity.topics:
        known = broker.topics.by_id(topic.topic_id)
        for partition in topic.partitions:
            if time_slice.over:
                await time_slice.next()
            key = share_partition_key(entity.group_id, topic.topic_id, partition.partition_index)
            named = TopicIdPartition(key.topic_id, key.partition)
            try:
                if known is None:
                    raise BrokerError(ErrorCode.unknown_topic_id)
                batches = await run_in_slices(
                    checked(partition.acknowledgement_batches, may_renew, is_renewing), time_slice
                )
                request.authorize(known.name)
                if not 0 <= key.partition < known.partitions:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition)
                if batches:
                    broker.share_partitions.acknowledge(key, entity.member_id, batches)
                outcomes[named] = AckOutcome()
            except BrokerError as error:
                outcomes[named] = AckOutcome(error.code, error.message)
    return outcomes


def checked(batches: Sequence[Any], may_renew: bool, is_renewing: bool) -> Generator[None, None, list[Acknowledgement]]:
    """Return the acknowledgements of one partition, in steps (KafkaApis.validateAcknowledgementBatches).

    A batch may begin where the one before ends, so a request may name one offset any number of times in batches of its
    own. Repeated renewals of one offset change nothing and are dropped; any other repetition is refused when it is
    applied. So the result has at most some three entries for each record in flight, or is refused.

    Args:
        batches: Acknowledgement batches of the request.
        may_renew: True if the version of the request knows renewals.
        is_renewing: True if the request says that it renews locks.

    Raises:
        BrokerError: invalid_request.
    """
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    found, end = list[Acknowledgement](), -1
    for number, batch in enumerate(batches, 1):
        if not number % BATCHES_A_STEP:
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
        acknowledgement = Acknowledgement(first, last, types)
        if AcknowledgeType.RENEW not in kinds or not found or acknowledgement != found[-1]:
            found.append(acknowledgement)
    return found
