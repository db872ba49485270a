"""8 OffsetCommit, versions 0 to 10: remember how far a group has read.

A partition that does not exist is refused by itself; the others are committed, in one batch of __consumer_offsets.
Topic ids are stored with the offsets: an offset does not outlive its topic.

v0    stored in ZooKeeper once; here in __consumer_offsets as all others, as what a simple consumer commits
v1    generation and member id, and each offset may bring the time that it counts as committed at
v2-4  may name a retention time, which goes with the offset (as in Kafka)
v6    leader epoch (KIP-320)
v7    group.instance.id (KIP-345)
v9    an unknown group is GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION
v10   topics by id: UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kafkalog_broker.admin.responses import per_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.runtime import write_error
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.messages import NO_GENERATION, NO_MEMBER, CommitRequest, CommittedPartition
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import run_in_slices

_GROUP_ID_NOT_FOUND_FROM = 9
_TOPIC_IDS_FROM = 10
_MS = timedelta(milliseconds=1)


@api(8, 0, 10)
async def handle(request: Request, broker: Broker) -> Any:
    wanted, codes = asked_offsets(request, broker, by_id=request.version >= _TOPIC_IDS_FROM)
    committed = iter(await _commit(request, broker, tuple(wanted)) if wanted else [])
    results = iter([code or next(committed) for code in codes])
    module = response_module(request)

    def of_partition(topic: Any, part: Any) -> Any:
        kind = module.OffsetCommitResponsePartition
        return entity(kind, partition_index=part.partition_index, error_code=next(results))

    def of_topic(topic: Any, partitions: Any) -> Any:
        name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", None)
        return entity(module.OffsetCommitResponseTopic, name=name, topic_id=topic_id, partitions=partitions)

    return respond(request, topics=await per_partition(request.entity.topics, of_partition, of_topic))


def asked_offsets(
    request: Request, broker: Broker, *, by_id: bool = False
) -> tuple[list[CommittedPartition], list[ErrorCode]]:
    """Offsets to commit, and for each partition of the request the error: NONE for those."""
    wanted, codes = [], []
    for_unknown = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    for asked in request.entity.topics:
        if by_id:
            topic = None if asked.topic_id is None else broker.topics.by_id(asked.topic_id)
        else:
            topic = broker.topics.get(asked.name)
        refused = ErrorCode.none
        if request.access is not None and not (by_id and topic is None):
            refused = request.refused(asked.name if topic is None else topic.name)
        for part in asked.partitions:
            index = part.partition_index
            if refused:
                codes.append(refused)
            elif topic is None:
                codes.append(for_unknown)
            elif not 0 <= index < topic.partitions:
                codes.append(ErrorCode.unknown_topic_or_partition)
            else:
                epoch = getattr(part, "committed_leader_epoch", -1)
                wanted.append(
                    CommittedPartition(
                        topic.name,
                        index,
                        part.committed_offset,
                        epoch,
                        part.committed_metadata,
                        topic.id,
                        getattr(part, "commit_timestamp", -1),
                    )
                )
                codes.append(ErrorCode.none)
    return wanted, codes


async def _commit(request: Request, broker: Broker, partitions: tuple[CommittedPartition, ...]) -> list[ErrorCode]:
    asked = request.entity
    retention = getattr(asked, "retention_time", None)
    commit = CommitRequest(
        group_id=asked.group_id,
        partitions=partitions,
        member_id=getattr(asked, "member_id", NO_MEMBER),
        generation=getattr(asked, "generation_id_or_member_epoch", NO_GENERATION),
        group_instance_id=getattr(asked, "group_instance_id", None),
        retention_ms=-1 if retention is None else retention // _MS,
        knows_group_id_not_found=request.version >= _GROUP_ID_NOT_FOUND_FROM,
    )
    try:
        prepared = await run_in_slices(broker.groups.prepare_commit(commit))
        codes: list[ErrorCode] = broker.groups.commit(commit, prepared)
        # As for any append, an answer waits for the disk where flush.messages of the topic is 1.
        await broker.flush_offsets(asked.group_id)
    except BrokerError as error:
        return [write_error(error.code)] * len(partitions)
    return codes
