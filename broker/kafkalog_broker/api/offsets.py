"""Offsets of groups, committed, fetched and deleted.

8 OffsetCommit, versions 0 to 10: remember how far a group has read. A partition that does not exist is refused by
itself; the others are committed, in one batch of __consumer_offsets. Topic ids are stored with the offsets: an offset
does not outlive its topic.
v0    stored in ZooKeeper once; here in __consumer_offsets as all others, as what a simple consumer commits
v1    generation and member id, and each offset may bring the time that it counts as committed at
v2-4  may name a retention time, which goes with the offset (as in Kafka)
v6    leader epoch (KIP-320)
v7    group.instance.id (KIP-345)
v9    an unknown group is GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION
v10   topics by id: UNKNOWN_TOPIC_ID

28 TxnOffsetCommit, versions 0 to 5: how far a group has read, to count when the transaction commits.
v2  leader epoch (KIP-320)
v3  member, generation, group.instance.id (KIP-447): a consumer that lost its partitions is refused
v4  TRANSACTION_ABORTABLE for a group that was not added; before, INVALID_TXN_STATE (KIP-890)
v5  the commit adds the group to the transaction

9 OffsetFetch, versions 0 to 10: how far groups have read; offset -1 where nothing is committed. What a request names
more than once, a group without topics or a partition of a group, is answered once: an answer is never larger than what
is committed and what was asked for.
v0   read from ZooKeeper once; the same as v1 on the wire, but where nothing is committed UNKNOWN_TOPIC_OR_PARTITION
v2   all topics of the group when topics is null; an error of the request as a whole
v5   leader epoch (KIP-320)
v7   require_stable: offsets in an open transaction are UNSTABLE_OFFSET_COMMIT (KIP-447)
v8   several groups (KIP-709)
v9   member id and epoch, of members of consumer groups (KIP-848): STALE_MEMBER_EPOCH
v10  topics by id: UNKNOWN_TOPIC_ID; of a null list, topics that do not exist any more are left out

47 OffsetDelete, version 0: forget what a group has committed to some partitions (KIP-496). Offsets of topics that a
member subscribes to stay: GROUP_SUBSCRIBED_TO_TOPIC. A partition named several times counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kafkalog_broker.admin.responses import respond_by_partition
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_requests import NO_GENERATION, NO_MEMBER
from kafkalog_broker.groups.offset_requests import CommitRequest, CommittedPartition
from kafkalog_broker.groups.offset_store import CommittedOffset
from kafkalog_broker.groups.offset_validation import check_fetch
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import error_response
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, in_parts, run_in_slices
from kafkalog_broker.transactions.transaction_coordinator import TXN_OFFSET_COMMIT_ABORTABLE, Speaks
from kafkalog_broker.transactions.transaction_metadata import TopicPartition
from kafkalog_spark.format.names import OFFSETS_TOPIC

_GROUP_ID_NOT_FOUND_FROM = 9
_TOPIC_IDS_FROM = 10
_MS = timedelta(milliseconds=1)
_TXN_OFFSET_COMMIT = 28
_LOAD_IN_PROGRESS_FROM = 2  # before, its clients could crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)


@api(8, 0, 10)
@api(_TXN_OFFSET_COMMIT, 0, 5)
async def offset_commit(request: Request, broker: Broker) -> Any:
    asked, producer = request.entity, None
    if request.api_key == _TXN_OFFSET_COMMIT:
        producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    by_id = producer is None and request.version >= _TOPIC_IDS_FROM
    wanted, codes = _asked(request, broker, by_id=by_id)
    committed = iter(await _committed(request, broker, tuple(wanted), producer) if wanted else [])
    results = iter([code or next(committed) for code in codes])

    def answer(topic: Any, partition: Any) -> dict[str, Any]:
        code = next(results)
        if code is ErrorCode.coordinator_load_in_progress and producer and request.version < _LOAD_IN_PROGRESS_FROM:
            code = ErrorCode.coordinator_not_available
        return {"error_code": code}

    return await respond_by_partition(request, answer)


def _asked(request: Request, broker: Broker, *, by_id: bool) -> tuple[list[CommittedPartition], list[ErrorCode]]:
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
                written_ms = getattr(part, "commit_timestamp", -1)
                wanted.append(CommittedPartition(
                    topic.name, index, part.committed_offset, epoch, part.committed_metadata, topic.id, written_ms
                ))  # fmt: skip
                codes.append(ErrorCode.none)
    return wanted, codes


async def _committed(
    request: Request, broker: Broker, partitions: tuple[CommittedPartition, ...], producer: ProducerIdAndEpoch | None
) -> list[ErrorCode]:
    asked = request.entity
    retention = getattr(asked, "retention_time", None)
    generation = "generation_id_or_member_epoch" if producer is None else "generation_id"
    commit = CommitRequest(
        group_id=asked.group_id,
        partitions=partitions,
        member_id=getattr(asked, "member_id", NO_MEMBER),
        generation=getattr(asked, generation, NO_GENERATION),
        group_instance_id=getattr(asked, "group_instance_id", None),
        retention_ms=-1 if retention is None else retention // _MS,
        knows_group_id_not_found=producer is None and request.version >= _GROUP_ID_NOT_FOUND_FROM,
        producer=producer,
    )
    try:
        if producer is not None and not asked.group_id:
            raise BrokerError(ErrorCode.invalid_group_id, "the group id is empty")
        prepared = await run_in_slices(broker.groups.prepare_commit(commit))
        if producer is not None:
            while not _verify(request, broker, producer):
                await broker.transaction_ends.flush(asked.transactional_id)
        # Nothing may wait between the verification and the commit.
        codes = broker.groups.shard(asked.group_id).commit(commit, prepared)
    except BrokerError as error:
        return [coordinator_error_code(error.code)] * len(partitions)
    return codes


def _verify(request: Request, broker: Broker, producer: ProducerIdAndEpoch) -> bool:
    """As for Produce: the first commit of a transaction in a partition of __consumer_offsets begins it there.

    Returns:
        False if the coordinator's record must be flushed first. Verify again then.
    """
    asked = request.entity
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.runtime.partition_for(asked.group_id))
    if not broker.config.transaction_partition_verification_enable:
        return True
    if OFFSETS_TOPIC in broker.topics and broker.log(*partition).producer_state.has_open_transaction(*producer):
        return True
    speaks = Speaks.of(request.version, TXN_OFFSET_COMMIT_ABORTABLE)
    broker.transactions.verify(asked.transactional_id, producer, partition, speaks)
    return broker.transactions.unflushed(asked.transactional_id) is None


FETCHED_AT_ONCE = 500  # partitions that are looked up before others may have their turn: about 1 ms

_ERROR_FROM = 2
_GROUPS_FROM = 8


class TopicOffsets(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: list[CommittedOffset]


class GroupOffsets(NamedTuple):
    """Answer for a group. error_code: then there are no topics; before version 2 an error for each partition."""

    group_id: str
    topics: list[TopicOffsets]
    error_code: int = 0


class OffsetFetchResponse(NamedTuple):
    """Up to version 7 of one group, `topics` and `error_code`."""

    groups: list[GroupOffsets]
    topics: list[TopicOffsets]
    error_code: int
    throttle_time: int = 0


Wanted: TypeAlias = "dict[str | UUID | None, dict[int, None]]"
"""Partitions by topic, each once, in the order in which they come first."""


@api(9, 0, 10)
async def offset_fetch(request: Request, broker: Broker) -> OffsetFetchResponse:
    asked, turn = request.entity, TimeSlice()
    stable = getattr(asked, "require_stable", False)
    return _response([await _fetched(request, broker, group, stable, turn) for group in _groups(request)])


@on_error(9)
def offset_fetch_failed(request: Request, code: ErrorCode) -> OffsetFetchResponse:
    return _response([_failed_group(request, group, code) for group in _groups(request)])


def _response(groups: list[GroupOffsets]) -> OffsetFetchResponse:
    _, topics, code = groups[0] if groups else GroupOffsets("", [])
    return OffsetFetchResponse(groups, topics, code)


def _groups(request: Request) -> list[Any]:
    """A group of which everything is asked for comes once."""
    if request.version < _GROUPS_FROM:
        return [request.entity]
    numbered = enumerate(request.entity.groups)
    once = {(group.group_id, None if group.topics is None else number): group for number, group in numbered}
    return list(once.values())


async def _fetched(request: Request, broker: Broker, asked: Any, require_stable: bool, turn: TimeSlice) -> GroupOffsets:
    by_id = request.version >= _TOPIC_IDS_FROM
    group_id, answers, refused = asked.group_id, [], []
    try:
        request.check(group_id)
        shard = broker.groups.shard(group_id)
        group = shard.consumer_or_streams_group(group_id)
        if group is not None:  # members of classic groups always may
            check_fetch(group, getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1))
        if asked.topics is None:
            wanted: Wanted = {
                topic: dict.fromkeys(offsets) for topic, offsets in shard.offsets.of_group(group_id).items()
            }
        else:
            wanted = _wanted(asked.topics, by_id=by_id)
        for key, indexes in wanted.items():
            asked_id = None if isinstance(key, str) else key
            topic = broker.topics.get(key) if isinstance(key, str) else broker.topics.by_id(key) if key else None
            name = key if isinstance(key, str) else "" if topic is None else topic.name
            is_known = isinstance(key, str) or topic is not None
            if is_known and not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                offsets = _without_offset(indexes, ErrorCode.topic_authorization_failed)
                refused.append(TopicOffsets(name if asked_id is None else "", asked_id, offsets))
                continue
            if topic is None and by_id and asked.topics is None:
                continue
            topic_id, offsets = asked_id if topic is None else topic.id, []
            answers.append(TopicOffsets(name, topic_id, offsets))
            async for some in turn.spread(in_parts(indexes, FETCHED_AT_ONCE)):
                if topic is None and by_id:
                    offsets += _without_offset(some, ErrorCode.unknown_topic_id)
                else:
                    # Of everything, Kafka gives also what was committed to a topic of that name before this one.
                    its_id = topic_id if asked.topics is not None else None
                    fetched = broker.groups.shard(group_id).offsets.fetch(
                        group_id, name, some, its_id, require_stable=require_stable
                    )
                    offsets += _or_unknown(fetched) if request.version == 0 else fetched
        return GroupOffsets(group_id, answers if asked.topics is None else answers + refused)
    except BrokerError as error:
        return _failed_group(request, asked, error.code)


def _wanted(topics: Sequence[Any], *, by_id: bool) -> Wanted:
    wanted: Wanted = {}
    for topic in topics:
        wanted.setdefault(topic.topic_id if by_id else topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


def _without_offset(partitions: Iterable[int], code: ErrorCode) -> list[CommittedOffset]:
    return [CommittedOffset(index, error_code=code) for index in partitions]


def _or_unknown(offsets: Iterable[CommittedOffset]) -> Iterable[CommittedOffset]:
    """Error of brokers with ZooKeeper, which had no node for it."""
    for one in offsets:
        nothing = one.committed_offset == -1 and one.error_code == ErrorCode.none
        yield one._replace(error_code=ErrorCode.unknown_topic_or_partition) if nothing else one


def _failed_group(request: Request, asked: Any, code: ErrorCode) -> GroupOffsets:
    if request.version >= _ERROR_FROM:
        return GroupOffsets(asked.group_id, [], code)
    wanted = _wanted(asked.topics, by_id=False)
    topics = [TopicOffsets(str(name), None, _without_offset(indexes, code)) for name, indexes in wanted.items()]
    return GroupOffsets(asked.group_id, topics)


DELETED_AT_ONCE = 200  # partitions whose offsets are forgotten, in 2 ms, before others have their turn


@api(47, 0, 0)
async def offset_delete(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    known: dict[tuple[str, int], ErrorCode] = {}
    refused: dict[str, ErrorCode] = {}
    for wanted in asked.topics:
        topic = broker.topics.get(wanted.name)
        code = request.refused(wanted.name)
        if code is not ErrorCode.none:
            refused[wanted.name] = code
            continue
        for part in wanted.partitions:
            if topic is not None and 0 <= part.partition_index < topic.partitions:
                known[wanted.name, part.partition_index] = ErrorCode.none
    try:
        if not known:
            broker.groups.named_shard(asked.group_id).delete_offsets(asked.group_id, [])
        async for some in turn.spread(in_parts(list(known), DELETED_AT_ONCE)):
            codes = broker.groups.named_shard(asked.group_id).delete_offsets(asked.group_id, some)
            known.update(zip(some, codes, strict=True))
    except BrokerError as error:
        return error_response(request, coordinator_error_code(error.code))

    def answer(topic: Any, partition: Any) -> dict[str, Any]:
        code = refused.get(topic.name) or known.get((topic.name, partition.partition_index))
        return {"error_code": ErrorCode.unknown_topic_or_partition if code is None else code}

    return await respond_by_partition(request, answer)
