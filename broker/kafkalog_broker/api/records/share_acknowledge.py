"""79 ShareAcknowledge, versions 1 and 2: a member of a share group accepts, releases or rejects records (KIP-932).

ShareFetch carries acknowledgements too; both apply them with `acknowledge_all`.

v2  renewal of acquisition locks (KIP-1222); their timeout in the response
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
"""First version of ShareFetch and ShareAcknowledge that can renew locks."""

BATCHES_A_STEP = 500
"""Acknowledgement batches that are checked before other requests may run."""

_MAX_MEMBER_ID_LENGTH = 36


class AckOutcome(NamedTuple):
    """Result of the acknowledgements of one partition."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


@api(79, 1, 2)
async def share_acknowledge(request: Request, broker: Broker) -> Any:
    entity = request.entity
    time_slice = TimeSlice()
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
    """Raise BrokerError (INVALID_REQUEST) unless a request has a group ID and a valid member ID."""
    if group_id is None:
        raise BrokerError(ErrorCode.invalid_request, "Invalid group id in the request.")
    check_member_id(member_id)


def check_member_id(member_id: str | None) -> None:
    """Raise BrokerError (INVALID_REQUEST) if a member ID is missing, empty or too long."""
    if not member_id or len(member_id) > _MAX_MEMBER_ID_LENGTH:
        raise BrokerError(ErrorCode.invalid_request, "Invalid member id in the request.")


async def acknowledge_all(
    request: Request, broker: Broker, time_slice: TimeSlice
) -> Mapping[TopicIdPartition, AckOutcome]:
    """Apply the acknowledgements of a ShareFetch or ShareAcknowledge.

    Returns:
        The outcome of each requested partition, including those without acknowledgements.
    """
    entity = request.entity
    may_renew = request.version >= FIRST_RENEWING_VERSION
    is_renewing = may_renew and entity.is_renew_ack
    outcomes: dict[TopicIdPartition, AckOutcome] = {}
    for topic in entity.topics:
        existing_topic = broker.topics.by_id(topic.topic_id)
        for partition in topic.partitions:
            if time_slice.is_over:
                await time_slice.wait_turn()
            key = share_partition_key(entity.group_id, topic.topic_id, partition.partition_index)
            partition_id = TopicIdPartition(key.topic_id, key.partition)
            try:
                if existing_topic is None:
                    raise BrokerError(ErrorCode.unknown_topic_id)
                batches = await run_in_slices(
                    check_batches(partition.acknowledgement_batches, may_renew, is_renewing), time_slice
                )
                request.authorize(existing_topic.name)
                if not 0 <= key.partition < existing_topic.partitions:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition)
                if batches:
                    broker.share_partitions.acknowledge(key, entity.member_id, batches)
                outcomes[partition_id] = AckOutcome()
            except BrokerError as error:
                outcomes[partition_id] = AckOutcome(error.code, error.message)
    return outcomes


def check_batches(
    batches: Sequence[Any], may_renew: bool, is_renewing: bool
) -> Generator[None, None, list[Acknowledgement]]:
    """Check the acknowledgements of one partition (Kafka: `KafkaApis.validateAcknowledgementBatches`).

    The generator yields between steps of BATCHES_A_STEP. A batch may begin at the last offset of the previous batch, so
    a request may repeat one offset without limit. Repeated renewals of one offset change nothing and are dropped; any
    other repetition is refused when it is applied. This bounds the result by the number of records in flight.

    Args:
        batches: Acknowledgement batches of the request.
        may_renew: True if the version of the request knows renewals.
        is_renewing: True if the request states that it renews locks (`is_renew_ack`).

    Returns:
        The acknowledgements, as the value of the generator.

    Raises:
        BrokerError: INVALID_REQUEST if offsets overlap or types are invalid.
    """
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    acknowledgements = list[Acknowledgement]()
    previous_last = -1
    for number, batch in enumerate(batches, 1):
        if not number % BATCHES_A_STEP:
            yield
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        kinds = set(types)
        if (
            first > last
            or first < previous_last
            or not kinds
            or (len(types) > 1 and last - first != len(types) - 1)
            or min(kinds) < 0
            or max(kinds) > highest
            or (AcknowledgeType.RENEW in kinds and not is_renewing)
        ):
            raise BrokerError(ErrorCode.invalid_request)
        previous_last = last
        acknowledgement = Acknowledgement(first, last, types)
        if AcknowledgeType.RENEW not in kinds or not acknowledgements or acknowledgement != acknowledgements[-1]:
            acknowledgements.append(acknowledgement)
    return acknowledgements
