"""1 Fetch, versions 0 to 18: reads records. This file translates; `fetching/fetch.py` reads and waits.

v0   messages v0; the byte limits are hard: a larger message is truncated
v1   throttle time
v2   messages v1
v3   max_bytes of the response; the first message is returned whole even if it is larger (KIP-74)
v4   v2 batches, isolation level
v5   log start offset
v7   sessions (KIP-227)
v9   current leader epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
v12  flexible; last fetched epoch: if the client's log has diverged, the diverging epoch instead of records (KIP-595)
v13  topics by ID (KIP-516): UNKNOWN_TOPIC_ID
v15  replica state of followers, without effect: this cluster has one node
"""

from __future__ import annotations

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.consumer_quota import limit_bytes, throttle
from kafkalog_broker.fetching.converting_reader import CONVERTED_BYTES
from kafkalog_broker.fetching.fetch import FetchResult
from kafkalog_broker.fetching.fetch_report import report
from kafkalog_broker.fetching.fetch_request import (
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    LegacyFormat,
    MissingPartitions,
    PartitionKey,
    SessionRequest,
    TopicKey,
)
from kafkalog_broker.fetching.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, MAX_PARTITIONS, NO_SESSION
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.fetch_messages import (
    EpochEnd,
    FetchResponse,
    PartitionFetchResponse,
    RefusedPartitions,
    TopicFetchResponse,
)
from kafkalog_broker.protocol.metadata_messages import ZERO_ID
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.log import Log

_LAST_V0_VERSION = 1  # last version with messages v0
_LAST_HARD_VERSION = 2  # last version with hard byte limits
_FIRST_BATCH_VERSION = 4
_FIRST_SESSION_VERSION = 7
_FIRST_TOPIC_ID_VERSION = 13
_LAST_REPLICA_ID_VERSION = 14  # last version with replica_id; later ones have it in replica_state
_UNKNOWN_PARTITION = ErrorCode.unknown_topic_or_partition  # a look-up of an enum member would be slow
_new_tuple = tuple.__new__  # named tuples without the cost of their constructors
_LONG_RESPONSE = 2_000
"""A response with more partitions than this is made in a time slice of its own."""


@api(1, 0, 18)
async def fetch(request: Request, broker: Broker) -> FetchResponse:
    time_slice = TimeSlice()

    def find_log(partition: FetchPartition) -> Log:
        topic = partition.topic
        name = topic if isinstance(topic, str) else broker.topic_name(topic)
        if request.access is not None:
            _check_rights(request, name)
        return broker.log(name, partition.partition)

    remote_reads = None if broker.remote is None else broker.remote.reads
    try:
        result = await broker.fetcher.fetch(
            _fetch_request(request, broker), find_log, request.connection, remote_reads, time_slice
        )
    except BrokerError as error:
        return FetchResponse((), error.code)
    fetched = result.fetched
    throttle_ms = throttle(broker.quotas, request, fetched.size)
    if throttle_ms:
        return FetchResponse((), session_id=result.context.session_id, throttle_time=throttle_ms)
    if broker.traffic is not None:
        broker.traffic.count_fetch(fetched.partitions)
    if len(fetched.partitions) > _LONG_RESPONSE:
        await time_slice.wait_turn()
    return _response(result)


def _fetch_request(request: Request, broker: Broker) -> FetchRequest:
    entity, version = request.entity, request.version
    legacy, read_committed = None, False
    max_bytes = min(entity.max_bytes, broker.config.fetch_max_bytes)
    if version < _FIRST_BATCH_VERSION:
        legacy = LegacyFormat(0 if version <= _LAST_V0_VERSION else 1, hard_limits=version <= _LAST_HARD_VERSION)
        max_bytes = min(max_bytes, CONVERTED_BYTES)
    else:
        read_committed = entity.isolation_level == READ_COMMITTED
        max_bytes = limit_bytes(broker.quotas, request, max_bytes)
    session = _session_request(request)
    partitions, missing = _partitions(request, broker, has_session=session is not None and session.epoch != FINAL_EPOCH)
    min_bytes = min(entity.min_bytes, max_bytes)  # as in Kafka: more could never be returned
    return _new_tuple(FetchRequest, (
        partitions, missing, session, entity.max_wait.total_seconds(), min_bytes, max_bytes, read_committed,
        request.correlation_id, legacy,
    ))  # fmt: skip


def _session_request(request: Request) -> SessionRequest | None:
    if request.version < _FIRST_SESSION_VERSION:
        return None
    entity = request.entity
    by_id = request.version >= _FIRST_TOPIC_ID_VERSION
    session_id, epoch = entity.session_id, entity.session_epoch
    if epoch == FINAL_EPOCH and session_id == NO_SESSION:
        return None
    if epoch == INITIAL_EPOCH and sum(len(topic.partitions) for topic in entity.topics) > MAX_PARTITIONS:
        epoch = FINAL_EPOCH  # above the limit of all sessions together: no session is opened
    forgotten = [
        ((topic.topic_id or ZERO_ID) if by_id else topic.topic, partition)
        for topic in entity.forgotten_topics_data
        for partition in topic.partitions
    ]
    return _new_tuple(SessionRequest, (session_id, epoch, forgotten, by_id))


def _partitions(
    request: Request, broker: Broker, *, has_session: bool
) -> tuple[dict[PartitionKey, FetchPartition], dict[TopicKey, MissingPartitions]]:
    """Return the requested partitions that can be read, and those that cannot.

    With a session, missing partitions count as readable, because they may be created later.
    """
    by_id = request.version >= _FIRST_TOPIC_ID_VERSION
    readable: dict[PartitionKey, FetchPartition] = {}
    missing: dict[TopicKey, MissingPartitions] = {}
    count, code = 0, _UNKNOWN_PARTITION
    for topic in request.entity.topics:
        name = (topic.topic_id or ZERO_ID) if by_id else topic.topic
        if not has_session:
            try:
                count = _count_partitions(name, request, broker)
                code = _UNKNOWN_PARTITION
            except BrokerError as error:
                count = 0
                code = error.code
        for partition in topic.partitions:
            index = partition.partition
            if has_session or 0 <= index < count:
                readable[name, index] = _new_tuple(FetchPartition, (
                    name, index, partition.fetch_offset, partition.partition_max_bytes,
                    partition.current_leader_epoch, partition.last_fetched_epoch,
                ))  # fmt: skip
            else:
                if name not in missing:
                    missing[name] = MissingPartitions(code)
                missing[name].indexes[index] = None
    return readable, missing


def _count_partitions(topic: TopicKey, request: Request, broker: Broker) -> int:
    """Return the number of partitions of a topic. Raises BrokerError if it is unknown or the sender may not read it."""
    name = topic if isinstance(topic, str) else broker.topic_name(topic)
    if request.access is not None:
        _check_rights(request, name)
    existing_topic = broker.topics.get(name)
    if existing_topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition)
    return existing_topic.partitions


def _check_rights(request: Request, topic: str) -> None:
    """Raise BrokerError unless the consumer may read `topic`, or the follower may replicate in the cluster."""
    entity = request.entity
    has_replica_id = request.version <= _LAST_REPLICA_ID_VERSION
    if (entity.replica_id if has_replica_id else entity.replica_state.replica_id) < 0:
        request.authorize(topic)
    elif not request.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        raise BrokerError(ErrorCode.topic_authorization_failed)


def _response(result: FetchResult) -> FetchResponse:
    """Return the response. A topic occurs more than once if other topics come between its partitions in the session."""
    context = result.context
    topics: list[TopicFetchResponse] = []
    partitions: list[PartitionFetchResponse] = []
    for fetched in report(context, result.fetched.partitions):
        topic = fetched.request.topic
        if not topics or topics[-1].topic != topic:
            partitions = []
            topics.append(TopicFetchResponse(topic, partitions))
        diverging = fetched.diverging_epoch
        partitions.append(
            PartitionFetchResponse(
                fetched.request.partition, fetched.error_code, fetched.high_watermark, fetched.last_stable_offset,
                fetched.log_start_offset, fetched.records, fetched.aborted_transactions,
                None if diverging is None else EpochEnd(diverging.epoch, diverging.end_offset),
            )
        )  # fmt: skip
    for topic, missing in context.missing.items():
        refused = RefusedPartitions(missing.error_code)
        refused.indexes = missing.indexes
        topics.append(TopicFetchResponse(topic, refused))
    return FetchResponse(topics, session_id=context.session_id)
