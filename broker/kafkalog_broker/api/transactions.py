"""Transactions of producers, and the coordinator's transactional ids (KIP-664).

22 InitProducerId, versions 0 to 5: a producer id and epoch for an idempotent or transactional producer. Without a
transactional id every request gets a new id with epoch 0, also one that names the id it had (KIP-360), as Kafka does.
With one, an open transaction of the id is aborted first: CONCURRENT_TRANSACTIONS, and the producer asks again.
v3  the producer's own id and epoch: it goes on after an error (KIP-360)

25 AddOffsetsToTxn, versions 0 to 4: adds the group's partition of __consumer_offsets to a transaction.
v4  TRANSACTION_ABORTABLE (KIP-890)

26 EndTxn, versions 0 to 5: commit or abort. The markers are written when the answer leaves.
v4  TRANSACTION_ABORTABLE
v5  the epoch is raised, and the answer holds the producer id and epoch to go on with

24 AddPartitionsToTxn, versions 0 to 5: partitions that a transaction is going to write to. One that does not exist
refuses all: it gets its code, the others OPERATION_NOT_ATTEMPTED.
v4  between brokers: several transactions, and those that are only verified (KIP-890)
v5  TRANSACTION_ABORTABLE

PRODUCER_FENCED came with a version of these four; before, it is INVALID_PRODUCER_EPOCH (`responses.known_code`).

27 WriteTxnMarkers, versions 1 and 2: end a transaction in single partitions. The coordinator of this broker writes its
markers itself; who asks here is an administrator who ends a hanging transaction (kafka-transactions.sh abort), or the
coordinator of another broker.
v2  the transaction version (KIP-1228): from 2 on the epoch must be above the transaction's

61 DescribeProducers, version 0: what partitions know of their idempotent and transactional producers (KIP-664).
65 DescribeTransactions, version 0: some of them by name.
66 ListTransactions, versions 0 to 2: all of them, filtered.
v1  open for longer than a time; v2  a regular expression for the id (KIP-1152): INVALID_REGULAR_EXPRESSION
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from kafkalog_broker.admin.responses import answers_by_partition, known_code, respond_by_partition
from kafkalog_broker.api.topics import NO_SUCH_TOPIC
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import TEXTS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.topic import check_topic_name
from kafkalog_broker.transactions.transaction_coordinator import NOT_READY
from kafkalog_broker.transactions.transaction_metadata import (
    BY_LABEL,
    CLASSIC,
    EPOCH_BUMP,
    EndMarker,
    TopicPartition,
    TransactionMetadata,
)
from kafkalog_spark.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafkalog_spark.format.names import OFFSETS_TOPIC, is_internal
from kafkalog_spark.format.producer_snapshot import ProducerEntry

_EPOCH_BUMP_FROM = 5
_NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@api(25, 0, 4)
async def add_offsets_to_txn(request: Request, broker: Broker) -> Any:
    asked = request.entity
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.runtime.partition_for(asked.group_id))
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    broker.transactions.add_partitions(asked.transactional_id, producer, frozenset({partition}), CLASSIC)
    return respond(request)


@api(26, 0, 5)
async def end_txn(request: Request, broker: Broker) -> Any:
    asked = request.entity
    producer = broker.transactions.end(
        asked.transactional_id,
        ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
        commit=asked.committed,
        client_version=EPOCH_BUMP if request.version >= _EPOCH_BUMP_FROM else CLASSIC,
    )
    await broker.transaction_ends.flush(asked.transactional_id)  # else the decision could be lost: an error
    await broker.transaction_ends.complete(asked.transactional_id)
    return _producer(request, ErrorCode.none, producer)


@api(22, 0, 5)
async def init_producer_id(request: Request, broker: Broker) -> Any:
    asked = request.entity
    expected = ProducerIdAndEpoch(
        getattr(asked, "producer_id", NO_PRODUCER_ID), getattr(asked, "producer_epoch", NO_PRODUCER_EPOCH)
    )
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(ErrorCode.invalid_request, f"one of producer id and epoch is missing: {expected}")
    if broker.mirrored is not None:
        # Not POLICY_VIOLATION as for Produce: librdkafka would ask again until its timeout.
        named = asked.transactional_id is not None
        code = ErrorCode.transactional_id_authorization_failed if named else ErrorCode.cluster_authorization_failed
        raise BrokerError(code, f"this broker mirrors {broker.mirrored} and takes no producers")
    await broker.producer_id_is_there()
    if asked.transactional_id is None:
        return _producer(request, ErrorCode.none, ProducerIdAndEpoch(broker.producer_ids.next(), 0))
    timeout_ms = round(asked.transaction_timeout.total_seconds() * 1000)
    try:
        producer = broker.transactions.init_producer_id(
            asked.transactional_id, timeout_ms, None if expected == _NO_PRODUCER else expected
        )
    except BrokerError:
        await broker.transaction_ends.complete(asked.transactional_id)  # what this request has ended by fencing
        raise
    return _producer(request, ErrorCode.none, producer)


@on_error(22)
@on_error(26)
def producer_failed(request: Request, code: ErrorCode) -> Any:
    return _producer(request, known_code(request, code), _NO_PRODUCER)


def _producer(request: Request, code: ErrorCode, producer: ProducerIdAndEpoch) -> Any:
    return respond(request, error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)


_SEVERAL_FROM = 4

Codes = Mapping[TopicPartition, ErrorCode]


@api(24, 0, 5)
async def add_partitions_to_txn(request: Request, broker: Broker) -> Any:
    asked = request.entity
    if request.version < _SEVERAL_FROM:
        producer = ProducerIdAndEpoch(asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch)
        codes = _added(request, broker, asked.v3_and_below_transactional_id, producer, asked.v3_and_below_topics)
        return await respond_by_partition(request, partial(_code, request, codes))
    results = []
    for one in asked.transactions:
        producer = ProducerIdAndEpoch(one.producer_id, one.producer_epoch)
        codes = _added(request, broker, one.transactional_id, producer, one.topics, verify_only=one.verify_only)
        kind = response_module(request).AddPartitionsToTxnTopicResult
        topics = await answers_by_partition(kind, one.topics, partial(_code, request, codes))
        results.append({"transactional_id": one.transactional_id, "topic_results": topics})
    return respond(request, results_by_transaction=results)


def _code(request: Request, codes: Codes, topic: Any, index: int) -> dict[str, ErrorCode]:
    return {"partition_error_code": known_code(request, codes[TopicPartition(topic.name, index)])}


def _added(
    request: Request, broker: Broker, transactional_id: str, producer: ProducerIdAndEpoch, topics: Any, *,
    verify_only: bool = False,
) -> Codes:  # fmt: skip
    codes: dict[TopicPartition, ErrorCode] = {}
    from_client = request.version < _SEVERAL_FROM
    for topic in topics:
        known, code = broker.topics.get(topic.name), ErrorCode.unknown_topic_or_partition
        if from_client and (is_internal(topic.name) or request.refused(topic.name)):  # internal: whatever it may
            known, code = None, ErrorCode.topic_authorization_failed
        for index in topic.partitions:
            is_there = known is not None and 0 <= index < known.partitions
            codes[TopicPartition(topic.name, index)] = ErrorCode.operation_not_attempted if is_there else code
    if set(codes.values()) - {ErrorCode.operation_not_attempted}:
        return codes
    wanted = frozenset(codes)
    try:
        if verify_only:
            return broker.transactions.verify_partitions(transactional_id, producer, wanted)
        version = CLASSIC if from_client else EPOCH_BUMP
        broker.transactions.add_partitions(transactional_id, producer, wanted, version)
        code = ErrorCode.none
    except BrokerError as error:
        code = error.code
    return dict.fromkeys(wanted, code)


@api(27, 1, 2)
async def write_txn_markers(request: Request, broker: Broker) -> Any:
    return await _markers_answered(request, partial(_write, broker))


async def _markers_answered(request: Request, code_of: Callable[[TopicPartition, Any], Awaitable[ErrorCode]]) -> Any:
    """Each marker with its partitions; one that is named twice comes once, as in Kafka. code_of(partition, marker)."""
    turn, markers = TimeSlice(), []
    for marker in request.entity.markers:
        topics = []
        for name, indexes in _once(marker.topics).items():
            partitions = [
                {"partition_index": index, "error_code": await code_of(TopicPartition(name, index), marker)}
                async for index in turn.spread(indexes)
            ]
            topics.append({"name": name, "partitions": partitions})
        markers.append({"producer_id": marker.producer_id, "topics": topics})
    return respond(request, markers=markers)


def _once(topics: Any) -> dict[str, dict[int, None]]:
    """Partitions by topic, each once, of structs of a request."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


async def _write(broker: Broker, partition: TopicPartition, asked: Any) -> ErrorCode:
    if asked.producer_epoch < 0:
        return ErrorCode.unknown_server_error  # Kafka cannot even make such a marker
    marker = EndMarker(
        asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch,
        getattr(asked, "transaction_version", 0),
    )  # fmt: skip
    try:
        broker.write_marker(partition, marker)
        await broker.flush_if_due(broker.log(*partition))
    except BrokerError as error:
        return ErrorCode.not_leader_or_follower if error.code in NOT_READY else error.code
    return ErrorCode.none


@on_error(27)
async def failed(request: Request, code: ErrorCode) -> Any:
    async def code_of(partition: TopicPartition, marker: Any) -> ErrorCode:
        return code

    return await _markers_answered(request, code_of)


MAX_PRODUCERS = 100_000
"""After so many, each of about 400 bytes while the answer is put together, the partitions left in a request are refused
with POLICY_VIOLATION: the client asks for fewer of them."""


@api(61, 0, 0)
async def describe_producers(request: Request, broker: Broker) -> Any:
    """A partition that is named more than once is answered once."""
    turn, state = TimeSlice(), response_module(request).ProducerState
    topics, listed = [], 0
    for name, indexes in _once(request.entity.topics).items():
        partitions = []
        async for index in turn.spread(indexes):
            code, what = ErrorCode.none, None
            producers: list[Any] = []
            try:
                if name not in broker.topics:
                    check_topic_name(name)
                if refused := request.refused(name):
                    raise BrokerError(refused, TEXTS[refused])
                if name not in broker.topics:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition, NO_SUCH_TOPIC)
                if listed > MAX_PRODUCERS:
                    raise BrokerError(ErrorCode.policy_violation, "too many producers for one answer")
                known = broker.log(name, index).producer_state.producers()
                # Structs within the time slice: there may be 100,000.
                producers = [_producer_state(state, one.entry()) async for one in turn.spread(known)]
                listed += len(producers)
            except BrokerError as error:
                # Kafka has no text for a partition that a known topic does not have.
                code, what = error.code, error.what if error.code in TEXTS or name not in broker.topics else None
            partitions.append({
                "partition_index": index, "error_code": code, "error_message": what,
                "active_producers": tuple(producers),
            })  # fmt: skip
        topics.append({"name": name, "partitions": partitions})
    return respond(request, topics=topics)


def _producer_state(kind: Any, entry: ProducerEntry) -> Any:
    return entity(
        kind, producer_id=entry.producer_id, producer_epoch=entry.producer_epoch, last_sequence=entry.last_sequence,
        last_timestamp=entry.timestamp, coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )  # fmt: skip


@api(65, 0, 0)
async def describe_transactions(request: Request, broker: Broker) -> Any:
    states, kind = [], response_module(request).TransactionState
    async for transactional_id in TimeSlice().spread(request.entity.transactional_ids):
        fields: dict[str, Any] = {"transactional_id": transactional_id}
        try:
            request.check(transactional_id)
            fields |= _state(broker.transactions.describe(transactional_id), request)
        except BrokerError as error:  # the start is Kafka's default, not -1 as of a transaction that has not begun
            fields |= {"error_code": error.code, "transaction_start_time": 0, "producer_id": 0, "producer_epoch": 0}
        states.append(entity(kind, **fields))
    return respond(request, transaction_states=states)


def _state(metadata: TransactionMetadata, request: Request) -> dict[str, Any]:
    by_topic = groupby(sorted(metadata.partitions), lambda partition: partition.topic)
    topics = [
        {"topic": name, "partitions": [partition.partition for partition in group]}
        for name, group in by_topic
        if request.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    ]
    return {
        "transaction_state": metadata.state.label, "transaction_timeout": metadata.timeout_ms,
        "transaction_start_time": metadata.start_ms, "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch, "topics": topics,
    }  # fmt: skip


@api(66, 0, 2)
async def list_transactions(request: Request, broker: Broker) -> Any:
    asked = request.entity
    listed = broker.transactions.all()
    if asked.state_filters:
        states = {BY_LABEL[name] for name in asked.state_filters if name in BY_LABEL}
        listed = [metadata for metadata in listed if metadata.state in states]
    if asked.producer_id_filters:
        producer_ids = set(asked.producer_id_filters)
        listed = [metadata for metadata in listed if metadata.producer_id in producer_ids]
    duration_ms = getattr(asked, "duration_filter", -1)
    if duration_ms >= 0:  # as in Kafka, also what has not begun has been open for long
        now_ms = broker.clock.now_ms()
        listed = [metadata for metadata in listed if now_ms - metadata.start_ms > duration_ms]
    if pattern := getattr(asked, "transactional_id_pattern", None):
        listed = _matching(listed, pattern)
    transactions = [
        {"transactional_id": metadata.transactional_id, "producer_id": metadata.producer_id,
         "transaction_state": metadata.state.label}
        for metadata in listed
        if request.access is None or not request.refused(metadata.transactional_id, quiet=True)
    ]  # fmt: skip
    unknown = [name for name in asked.state_filters if name not in BY_LABEL]
    return respond(request, unknown_state_filters=unknown, transaction_states=transactions)


def _matching(transactions: Sequence[TransactionMetadata], pattern: str) -> list[TransactionMetadata]:
    """Those whose whole id matches. By RE2, as in Kafka: a pattern of Python's `re` can take for ever."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array([metadata.transactional_id for metadata in transactions], pa.string())
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)  # by itself: brackets must not close ours
        matches = pc.match_substring_regex(ids, pattern=rf"\A(?:{pattern})\z").to_pylist()
    except pa.ArrowInvalid as error:
        raise BrokerError(ErrorCode.invalid_regular_expression, f"{pattern!r} is no RE2 expression: {error}") from None
    return [metadata for metadata, matched in zip(transactions, matches, strict=True) if matched]
