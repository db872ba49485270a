"""Responses encoded from tuples equal kio's encoding byte for byte."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.api_messages import writer as our_writer
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.fetch_messages import EpochEnd, FetchResponse, PartitionFetchResponse, TopicFetchResponse
from kafkalog_broker.protocol.metadata_messages import NodeEndpoint, PartitionMetadata, TopicMetadata
from kafkalog_broker.protocol.produce_messages import (
    PartitionProduceResponse,
    ProduceResponse,
    RecordError,
    TopicProduceResponse,
)
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.protocol.responses import build_response
from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.transaction_index import AbortedTransaction
from tests.broker.protocol.helpers.guide_classes import guide_classes
from tests.broker.protocol.helpers.kio_messages import encode_with_kio, kio_response_class

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
ERRORS = st.sampled_from(ErrorCode)
NAMES = st.text(max_size=250)
IDS = st.uuids()
ENDPOINTS = st.lists(st.builds(NodeEndpoint, I32, NAMES, I32, st.none() | NAMES), max_size=3)


def kio(key: int, version: int) -> Any:
    """The module of kio's response classes, or what stands for it."""
    found = guide_classes(key, version, EntityType.response)
    return found or sys.modules[kio_response_class(key, version).__module__]


def topic_key(version: int, first_id_version: int, topic: Any, name_field: str) -> dict[str, Any]:
    if version >= first_id_version:
        return {"topic_id": topic if topic.int else None}
    return {name_field: topic}


def lists_of_topics(keys: st.SearchStrategy[Any], partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(keys, st.lists(partitions, max_size=4)), max_size=3) | st.just([])


def ours(key: int, version: int, response: Any) -> bytes:
    kind: Any = response_class(key, version)
    return b"".join(our_writer(kind)(response, bytearray()))


PRODUCE_PARTITIONS = st.builds(
    PartitionProduceResponse,
    index=I32,
    error_code=ERRORS,
    base_offset=I64,
    log_append_time=st.just(-1) | st.integers(0, 2**32).map(lambda s: s * 1000),
    log_start_offset=I64,
    record_errors=st.just(()) | st.lists(st.builds(RecordError, I32, st.none() | NAMES), max_size=3),
    error_message=st.none() | NAMES,
)


@given(version=st.integers(0, 13), throttle=I32, data=st.data())
def test_produce_response_equals_the_encoding_of_kio(version: int, throttle: int, data: st.DataObject) -> None:
    topics = data.draw(lists_of_topics(IDS if version >= 13 else NAMES, PRODUCE_PARTITIONS))
    module = kio(0, version)

    def partition(p: PartitionProduceResponse) -> Any:
        time = p.log_append_time
        fields: dict[str, Any] = {
            "index": p.index,
            "error_code": p.error_code,
            "base_offset": p.base_offset,
        }
        if version == 2:
            fields["log_append_time"] = time
        if version >= 3:
            fields["log_append_time"] = None if time == -1 else datetime.fromtimestamp(time // 1000, tz=UTC)
        if version >= 5:
            fields["log_start_offset"] = p.log_start_offset
        if version >= 8:
            fields["error_message"] = p.error_message
            fields["record_errors"] = tuple(
                module.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=m) for i, m in p.record_errors
            )
        return module.PartitionProduceResponse(**fields)

    fields: dict[str, Any] = {}
    if version >= 1:
        fields["throttle_time"] = timedelta(milliseconds=throttle)
    expected = module.ProduceResponse(
        responses=tuple(
            module.TopicProduceResponse(
                **topic_key(version, 13, topic, "name"), partition_responses=tuple(map(partition, partitions))
            )
            for topic, partitions in topics
        ),
        **fields,
    )
    answer = ProduceResponse([TopicProduceResponse(*topic) for topic in topics], throttle)
    assert ours(0, version, answer) == encode_with_kio(expected)


FETCH_PARTITIONS = st.builds(
    PartitionFetchResponse,
    partition_index=I32,
    error_code=ERRORS,
    high_watermark=I64,
    last_stable_offset=I64,
    log_start_offset=I64,
    records=st.none() | st.lists(st.binary(max_size=200), max_size=3),
    aborted_transactions=st.none() | st.lists(st.builds(AbortedTransaction, I64, I64, I64, I64), max_size=3),
    diverging_epoch=st.none() | st.builds(EpochEnd, st.integers(0, 2**31 - 1), I64),
)


@given(version=st.integers(0, 18), throttle=I32, error=ERRORS, session=I32, data=st.data())
def test_fetch_response_equals_the_encoding_of_kio(
    version: int, throttle: int, error: ErrorCode, session: int, data: st.DataObject
) -> None:
    topics = data.draw(lists_of_topics(IDS if version >= 13 else NAMES, FETCH_PARTITIONS))
    module = kio(1, version)

    def partition(p: PartitionFetchResponse) -> Any:
        fields: dict[str, Any] = {
            "partition_index": p.partition_index,
            "error_code": p.error_code,
            "high_watermark": p.high_watermark,
            "records": None if p.records is None else b"".join(p.records),
        }
        if version >= 4:
            aborted = p.aborted_transactions
            fields["last_stable_offset"] = p.last_stable_offset
            fields["aborted_transactions"] = (
                None
                if aborted is None
                else tuple(module.AbortedTransaction(producer_id=i, first_offset=o) for i, o, *_ in aborted)
            )
        if version >= 5:
            fields["log_start_offset"] = p.log_start_offset
        if version >= 11:
            fields["preferred_read_replica"] = p.preferred_read_replica
        if version >= 12 and p.diverging_epoch is not None:
            epoch, end = p.diverging_epoch
            fields["diverging_epoch"] = module.EpochEndOffset(epoch=epoch, end_offset=end)
        return module.PartitionData(**fields)

    fields: dict[str, Any] = {"error_code": error, "session_id": session} if version >= 7 else {}
    if version >= 1:
        fields["throttle_time"] = timedelta(milliseconds=throttle)
    expected = module.FetchResponse(
        responses=tuple(
            module.FetchableTopicResponse(
                **topic_key(version, 13, topic, "topic"), partitions=tuple(map(partition, partitions))
            )
            for topic, partitions in topics
        ),
        **fields,
    )
    answer = FetchResponse([TopicFetchResponse(*topic) for topic in topics], error, session, throttle)
    assert ours(1, version, answer) == encode_with_kio(expected)


def test_records_of_a_fetch_response_are_not_copied() -> None:
    batches = [b"first batch", memoryview(b"second batch")]
    partitions = [PartitionFetchResponse(0, records=batches), PartitionFetchResponse(1, records=[b"third"])]
    kind: Any = response_class(1, 12)
    pieces = our_writer(kind)(FetchResponse([TopicFetchResponse("t", partitions)]), bytearray())
    assert pieces[1] is batches[0]
    assert pieces[2] is batches[1]
    assert pieces[4] == b"third"


NODES = st.lists(I32, max_size=3)
METADATA_PARTITIONS = st.builds(
    PartitionMetadata,
    partition_index=I32,
    leader_id=I32,
    replica_nodes=NODES | st.lists(I32, min_size=100, max_size=200),
    isr_nodes=NODES,
    leader_epoch=I32,
    offline_replicas=NODES,
    error_code=ERRORS,
)


@given(
    version=st.integers(0, 13),
    brokers=ENDPOINTS,
    cluster_id=st.none() | NAMES,
    numbers=st.tuples(I32, I32, I32),
    error=ERRORS,
    data=st.data(),
)
def test_metadata_response_equals_the_encoding_of_kio(
    version: int,
    brokers: list[NodeEndpoint],
    cluster_id: str | None,
    numbers: tuple[int, int, int],
    error: ErrorCode,
    data: st.DataObject,
) -> None:
    names = st.none() | NAMES if version >= 12 else NAMES
    partitions = st.lists(METADATA_PARTITIONS, max_size=3)
    topics = data.draw(
        st.lists(st.builds(TopicMetadata, names, IDS, partitions, ERRORS, st.booleans(), I32), max_size=3)
    )
    controller, operations, throttle = numbers
    module = kio(3, version)

    def since(first: int, **fields: Any) -> dict[str, Any]:
        return fields if version >= first else {}

    def partition(p: PartitionMetadata) -> Any:
        return module.MetadataResponsePartition(
            error_code=p.error_code,
            partition_index=p.partition_index,
            leader_id=p.leader_id,
            replica_nodes=tuple(p.replica_nodes),
            isr_nodes=tuple(p.isr_nodes),
            **since(5, offline_replicas=tuple(p.offline_replicas)),
            **since(7, leader_epoch=p.leader_epoch),
        )

    def topic(t: TopicMetadata) -> Any:
        return module.MetadataResponseTopic(
            error_code=t.error_code,
            name=t.name,
            partitions=tuple(map(partition, t.partitions)),
            **since(1, is_internal=t.is_internal),
            **since(8, topic_authorized_operations=t.topic_authorized_operations),
            **since(10, topic_id=t.topic_id),
        )

    expected = module.MetadataResponse(
        brokers=tuple(
            module.MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, **since(1, rack=b.rack))
            for b in brokers
        ),
        topics=tuple(map(topic, topics)),
        **since(1, controller_id=controller),
        **since(2, cluster_id=cluster_id),
        **since(3, throttle_time=timedelta(milliseconds=throttle)),
        **(since(8, cluster_authorized_operations=operations) if version <= 10 else {}),
        **since(13, error_code=error),
    )
    request = Request(3, version, 1, None, object(), ConnectionInfo())
    answer = build_response(
        request, brokers=brokers, topics=topics, cluster_id=cluster_id, controller_id=controller,
        cluster_authorized_operations=operations, throttle_time=timedelta(milliseconds=throttle), error_code=error,
    )  # fmt: skip
    head = 8 + (version >= 9)
    assert b"".join(encode_response(request, answer))[head:] == encode_with_kio(expected)


def test_name_longer_than_its_length_field_raises() -> None:
    with pytest.raises(InvalidRecord, match="40000 bytes of text"):
        ours(0, 3, ProduceResponse([TopicProduceResponse("t" * 40_000, [])]))


def test_zero_topic_id_is_encoded_as_zeros() -> None:
    assert bytes(16) in ours(1, 13, FetchResponse([TopicFetchResponse(UUID(int=0), [])]))
