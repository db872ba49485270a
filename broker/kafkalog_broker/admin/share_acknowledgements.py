"""What ShareFetch and ShareAcknowledge have in common: acknowledgements read from requests, checked and carried out."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.share.fetching.share_sessions import Partition
from kafkalog_broker.share.partition.acknowledgement import Acknowledgement
from kafkalog_broker.share.partition.record_state import AcknowledgeType
from kafkalog_broker.share.state.state_records import share_partition
from kafkalog_broker.turn import Turn, in_turns

FIRST_RENEWING_VERSION = 2
LONGEST_MEMBER_ID = 36
BATCHES_A_STEP = 500
"""Acknowledgements that are checked in half a millisecond."""


def check_member_id(member_id: str | None) -> None:
    """Raises BrokerError invalid_request."""
    if not member_id or len(member_id) > LONGEST_MEMBER_ID:
        raise BrokerError(ErrorCode.invalid_request, "Invalid member id in the request.")


class Said(NamedTuple):
    """What became of the acknowledgements of one partition."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None


async def acknowledge_all(request: Request, broker: Broker, turn: Turn) -> Mapping[Partition, Said]:
    """By partition, of those that the request names acknowledgements of, or, for ShareAcknowledge, names at all."""
    asked = request.entity
    may_renew = request.version >= FIRST_RENEWING_VERSION
    is_renewing = may_renew and asked.is_renew_ack
    result: dict[Partition, Said] = {}
    written: set[int] = set()
    for topic in asked.topics:
        known = broker.topics.by_id(topic.topic_id)
        for partition in topic.partitions:
            if turn.over:
                await turn.next()
            key = share_partition(asked.group_id, topic.topic_id, partition.partition_index)
            try:
                if known is None:
                    raise BrokerError(ErrorCode.unknown_topic_id)
                batches = await in_turns(checked(partition.acknowledgement_batches, may_renew, is_renewing), turn)
                code = topic_refusal(request, known.name)
                if code is not ErrorCode.none:
                    raise BrokerError(code)
                if not 0 <= key.partition < known.partitions:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition)
                if batches:
                    broker.deliveries.acknowledge(key, asked.member_id, batches)
                    written.add(broker.share_coordinator.partition_for(key))
                result[key.topic_id, key.partition] = Said()
            except BrokerError as error:
                message = None if error.what == error.code.name else error.what
                result[key.topic_id, key.partition] = Said(error.code, message)
    for index in written:
        await broker.flush_if_due(broker.share_state_topic.log(index))
    return result


def topic_refusal(request: Request, name: str) -> ErrorCode:
    """`none` where the sender may read the topic."""
    return request.refused(name)


def checked(batches: Sequence[Any], may_renew: bool, is_renewing: bool) -> Generator[None, None, list[Acknowledgement]]:
    """Step by step. Raises BrokerError invalid_request (KafkaApis.validateAcknowledgementBatches).

    A batch may begin where the one before ends, so one offset may be named any number of times, in batches of its own.
    To renew it a second time changes nothing: that is left out. Whatever else is said of it twice is refused later. So
    what is left is no longer than some three times the records in flight, or is refused when it comes to that.
    """
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
