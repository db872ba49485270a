"""Share groups (KIP-932): members, descriptions, start offsets.

76 ShareGroupHeartbeat, version 1: a member of a share group joins, stays, subscribes anew or leaves.
77 ShareGroupDescribe, version 1: share groups with their members and assignments.
90 DescribeShareGroupOffsets, versions 0 and 1; v1: lag (KIP-1226).
91 AlterShareGroupOffsets, version 0: where a share group without members begins.
92 DeleteShareGroupOffsets, version 0: a share group without members forgets topics.

State of share partitions, between brokers: 83 InitializeShareGroupState, version 0; 84 ReadShareGroupState, version 0;
85 WriteShareGroupState, versions 0 and 1; 86 DeleteShareGroupState, version 0; 87 ReadShareGroupStateSummary, versions
0 and 1. v1: delivery complete count (KIP-1226).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from kafkalog_broker.admin.responses import respond_by_partition
from kafkalog_broker.api.consumer_groups import (
    Described,
    Fields,
    assignment,
    check_topics,
    describe_groups,
    heartbeat_response,
    topic_names,
)
from kafkalog_broker.api.share_fetch import check_member_id
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_records import NO_STATE, SharedTopic
from kafkalog_broker.groups.share.share_group import ShareGroup
from kafkalog_broker.groups.share.share_group_heartbeat import ASSIGNOR, ShareHeartbeatRequest
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import error_response, respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.share.share_coordinator import UNKNOWN_PARTITION, UNKNOWN_STATE, ShareCoordinator
from kafkalog_broker.share.state_records import (
    NO_START_OFFSET,
    NOT_COUNTED,
    SharePartitionKey,
    StateBatch,
    share_partition,
)
from kafkalog_spark.format.names import SHARE_STATE_TOPIC

_log = logging.getLogger(__name__)


@api(76, 1, 1)
async def share_group_heartbeat(request: Request, broker: Broker) -> Any:
    asked = request.entity
    try:
        check_member_id(asked.member_id)
        names = asked.subscribed_topic_names
        check_topics(request, names or ())
        heartbeat = ShareHeartbeatRequest(
            asked.group_id, asked.member_id, asked.member_epoch, rack_id=asked.rack_id, topics=names,
            client_id=request.client_id or "", client_host=f"/{request.connection.host}",
        )  # fmt: skip
        answer = broker.groups.share_group_heartbeat(heartbeat)
    except BrokerError as error:
        return error_response(request, error.code, error.message)
    return heartbeat_response(request, answer)


@api(77, 1, 1)
async def share_group_describe(request: Request, broker: Broker) -> Any:
    def described(group: ShareGroup) -> Described:
        names = topic_names(broker, (member.assigned for member in group.members.values()))
        return (
            names.values(), {"assignor_name": ASSIGNOR},
            lambda member: {"assignment": assignment(member.assigned, names)},
        )  # fmt: skip

    return await describe_groups(request, broker.groups.share_groups, described)


_NO_LAG = -1
_TOPIC_REFUSED = "Topic authorization failed."


@api(90, 0, 1)
async def describe_share_group_offsets(request: Request, broker: Broker) -> Any:
    groups, turn = [], TimeSlice()
    for group in request.entity.groups:
        code, what, topics = ErrorCode.none, None, []
        try:
            request.check(group.group_id)
            topics = await _described_topics(request, broker, group, turn)
        except BrokerError as error:
            code, what = error.code, error.message
        groups.append({"group_id": group.group_id, "topics": topics, "error_code": code, "error_message": what})
    return respond(request, groups=groups)


async def _described_topics(request: Request, broker: Broker, group: Any, turn: TimeSlice) -> list[dict[str, Any]]:
    refused: list[dict[str, Any]] = []
    topics: list[tuple[str, UUID | None, Iterable[int]]] = []
    if group.topics is None:
        share_group = broker.groups.share_groups(group.group_id).groups.get(group.group_id)
        state = NO_STATE if share_group is None else share_group.partitions
        for topic_id, info in state.initialized.items():
            known = broker.topics.by_id(topic_id)
            if known is not None and request.may(Operation.DESCRIBE, ResourceType.TOPIC, known.name):
                topics.append((known.name, topic_id, info.partitions))
    for topic in group.topics or ():
        if request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
            known = broker.topics.get(topic.topic_name)
            topics.append((topic.topic_name, None if known is None else known.id, topic.partitions))
        else:
            error = {"error_code": ErrorCode.topic_authorization_failed, "error_message": _TOPIC_REFUSED}
            nothing = {"start_offset": NO_START_OFFSET, "lag": _NO_LAG, **error}
            partitions = [{"partition_index": index, **nothing} for index in topic.partitions]
            refused.append({"topic_name": topic.topic_name, "partitions": partitions})
    described = []
    for name, asked_id, indexes in sorted(topics, key=lambda topic: topic[1] is None):  # unknown ones last
        answers = [
            _described_partition(broker, group.group_id, name, asked_id, index) async for index in turn.spread(indexes)
        ]
        described.append({"topic_name": name, "topic_id": asked_id, "partitions": answers})
    return described + refused


def _described_partition(
    broker: Broker, group_id: str, topic: str, topic_id: UUID | None, index: int
) -> dict[str, int]:
    summary, lag = UNKNOWN_STATE, _NO_LAG
    try:
        if topic_id is not None:
            summary = broker.share_coordinator.summary(SharePartitionKey(group_id, topic_id, index))
        if summary.start_offset != NO_START_OFFSET and summary.delivery_complete_count != NOT_COUNTED:
            end = broker.log(topic, index).high_watermark
            lag = end - summary.start_offset - summary.delivery_complete_count
    except BrokerError:
        summary, lag = UNKNOWN_STATE, _NO_LAG  # as Kafka: as if nothing had been delivered
    return {
        "partition_index": index, "start_offset": summary.start_offset, "leader_epoch": summary.leader_epoch,
        "lag": lag,
    }  # fmt: skip


@api(91, 0, 0)
async def alter_share_group_offsets(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    if not asked.group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
    unknown = BrokerError(ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION)
    wanted: dict[UUID, dict[int, int]] = {}
    refused: dict[str, BrokerError] = {}
    for topic in asked.topics:
        known = broker.topics.get(topic.topic_name)
        if code := request.refused(topic.topic_name):
            refused[topic.topic_name] = BrokerError(code)
        elif known is not None:
            starts = ((one.partition_index, one.start_offset) for one in topic.partitions)
            wanted[known.id] = {index: offset for index, offset in starts if 0 <= index < known.partitions}
    failed: dict[tuple[UUID | None, int], BrokerError] = {}
    try:
        await broker.ensure_internal_topic(SHARE_STATE_TOPIC)
        infos = {
            topic_id: SharedTopic(topic.name, tuple(sorted(offsets)))
            for topic_id, offsets in wanted.items()
            if (topic := broker.topics.by_id(topic_id)) is not None
        }
        epoch = broker.groups.alter_share_group_offsets(asked.group_id, infos)
        broker.share_partitions.forget_group(asked.group_id)
        for topic_id, offsets in wanted.items():
            async for index, offset in turn.spread(offsets.items()):
                key = SharePartitionKey(asked.group_id, topic_id, index)
                try:
                    broker.share_coordinator.initialize(key, epoch, offset)
                except BrokerError as error:
                    failed[topic_id, index] = error
        if not failed and infos:
            broker.groups.initialize_share_group_state(asked.group_id, infos)
    except BrokerError as error:
        return error_response(request, error.code, error.what)
    topics = []
    for topic in asked.topics:
        known = broker.topics.get(topic.topic_name)
        its_id = None if known is None else known.id
        partitions = []
        for index in (one.partition_index for one in topic.partitions):
            why = refused.get(topic.topic_name) or failed.get((its_id, index))
            if why is None and (its_id is None or index not in wanted.get(its_id, ())):
                why = unknown
            code, message = (ErrorCode.none, None) if why is None else (why.code, why.message)
            partitions.append({"partition_index": index, "error_code": code, "error_message": message})
        topics.append({"topic_name": topic.topic_name, "topic_id": its_id, "partitions": partitions})
    return respond(request, responses=topics)


@api(92, 0, 0)
async def delete_share_group_offsets(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    if not asked.group_id:
        raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
    refused, named, unknown = [], {}, []
    for name in (topic.topic_name for topic in asked.topics):
        known = broker.topics.get(name)
        if not request.may(Operation.READ, ResourceType.TOPIC, name):
            refused.append(_deleted_topic(name, None, ErrorCode.topic_authorization_failed, _TOPIC_REFUSED))
        elif known is None:
            unknown.append(_deleted_topic(name, None, ErrorCode.unknown_topic_or_partition, UNKNOWN_PARTITION))
        else:
            named[known.id] = name
    try:
        topics = broker.groups.initiate_delete_share_group_offsets(asked.group_id, named.keys())
        outcomes = await _delete_state(broker, asked.group_id, topics, turn)
        if gone := [topic_id for topic_id, error in outcomes.items() if error is None]:
            broker.groups.complete_delete_share_group_offsets(asked.group_id, gone)
    except BrokerError as error:
        return error_response(request, error.code, error.what)
    deleted = [_deleted_topic(named[topic_id], topic_id) for topic_id in gone]
    without = [
        _deleted_topic(name, None, ErrorCode.unknown_topic_or_partition, "There is no offset information to delete.")
        for topic_id, name in named.items()
        if topic_id not in outcomes
    ]
    failed = [
        _deleted_topic(named[topic_id], topic_id, error.code, error.what)
        for topic_id, error in outcomes.items()
        if error is not None
    ]
    return respond(request, responses=[*refused, *deleted, *without, *unknown, *failed])


def _deleted_topic(
    name: str, topic_id: UUID | None, code: ErrorCode = ErrorCode.none, what: str | None = None
) -> dict[str, Any]:
    return {"topic_name": name, "topic_id": topic_id, "error_code": code, "error_message": what}


# Changes of share groups that both coordinators take part in: begun in the group, carried out in the share
# partitions' state, finished in the group. What is left half done by a crash is done again when it is asked for
# again.


async def initialize(
    broker: Broker, group_id: str, state_epoch: int, topics: Mapping[UUID, SharedTopic], *, from_start: bool
) -> None:
    """Begin the state of share partitions that members subscribe to, and let the group know. from_start: at offset 0,
    otherwise where share.auto.offset.reset says."""
    turn, done = TimeSlice(), True
    start_offset = 0 if from_start else NO_START_OFFSET
    try:
        await broker.ensure_internal_topic(SHARE_STATE_TOPIC)
        for topic_id, info in topics.items():
            async for index in turn.spread(info.partitions):
                key = SharePartitionKey(group_id, topic_id, index)
                broker.share_coordinator.initialize(key, state_epoch, start_offset)
    except BrokerError as error:
        _log.warning("share group %.200r: the state of its partitions cannot be begun: %s", group_id, error)
        done = False
    try:
        if done:
            broker.groups.initialize_share_group_state(group_id, topics)
        else:
            broker.groups.uninitialize_share_group_state(group_id, topics)
    except BrokerError as error:  # it is begun again after group.share.initialize.retry.interval.ms
        _log.warning("share group %.200r: which partitions have state cannot be written: %s", group_id, error)


async def delete_group(broker: Broker, group_id: str) -> None:
    topics = broker.groups.initiate_delete_share_group(group_id)
    outcomes = await _delete_state(broker, group_id, topics, TimeSlice())
    for outcome in outcomes.values():
        if outcome is not None:
            raise outcome
    broker.groups.delete_share_group(group_id)


async def _delete_state(
    broker: Broker, group_id: str, topics: Mapping[UUID, SharedTopic], turn: TimeSlice
) -> dict[UUID, BrokerError | None]:
    broker.share_partitions.forget_group(group_id)
    outcomes: dict[UUID, BrokerError | None] = {}
    for topic_id, info in topics.items():
        outcomes[topic_id] = None
        async for index in turn.spread(info.partitions):
            try:
                broker.share_coordinator.delete(SharePartitionKey(group_id, topic_id, index))
            except BrokerError as error:
                outcomes[topic_id] = error
    return outcomes


# State of share partitions, between brokers.


def _read(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> Fields:
    state = coordinator.read(key, partition.leader_epoch)
    batches = [batch._asdict() for batch in state.batches]
    return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}


def _write(coordinator: ShareCoordinator, key: SharePartitionKey, partition: Any) -> None:
    batches = [
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in partition.state_batches
    ]
    complete = getattr(partition, "delivery_complete_count", NOT_COUNTED)
    coordinator.write(key, partition.state_epoch, partition.leader_epoch, partition.start_offset, complete, batches)


_ASK: Mapping[int, Callable[[ShareCoordinator, SharePartitionKey, Any], Fields | None]] = {
    83: lambda coordinator, key, wanted: coordinator.initialize(key, wanted.state_epoch, wanted.start_offset),
    84: _read,
    85: _write,
    86: lambda coordinator, key, _: coordinator.delete(key),
    87: lambda coordinator, key, _: coordinator.summary(key)._asdict(),
}
"""By API key: the fields of a partition's answer; may raise BrokerError."""


@api(83, 0, 0)
@api(84, 0, 0)
@api(85, 0, 1)
@api(86, 0, 0)
@api(87, 0, 1)
async def share_group_state(request: Request, broker: Broker) -> Any:
    """A request without a group names no partitions."""
    group_id, ask = request.entity.group_id, _ASK[request.api_key]
    if not group_id:
        return respond(request)

    def answer(topic: Any, partition: Any) -> Fields:
        key = share_partition(group_id, topic.topic_id, partition.partition)
        return ask(broker.share_coordinator, key, partition) or {}

    return await respond_by_partition(request, answer)
