"""A Metadata response of 2013 that an Erlang developer printed byte by byte when he wrote a client: version 0, three
brokers, three topics of two partitions, replicas in the order of preference."""

from __future__ import annotations

import struct
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from kafkalog_broker import api
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.metadata_messages import ZERO_ID, NodeEndpoint, PartitionMetadata, TopicMetadata
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.protocol.responses import build_response

HOST = "vagrant-ubuntu-precise-64"
BROKERS = [NodeEndpoint(3, HOST, 9093), NodeEndpoint(1, HOST, 9091), NodeEndpoint(2, HOST, 9092)]
TOPICS = [
    TopicMetadata("a1", ZERO_ID, [PartitionMetadata(0, 3, [3], [3]), PartitionMetadata(1, 1, [1], [1])]),
    TopicMetadata("a2", ZERO_ID, [PartitionMetadata(0, 1, [1], [1]), PartitionMetadata(1, 2, [2], [2])]),
    TopicMetadata("a3", ZERO_ID, [PartitionMetadata(0, 3, [2, 3], [2, 3]), PartitionMetadata(1, 1, [1, 2], [1, 2])]),
]
PRINTED = bytes.fromhex(
    "00000000"  # correlation id
    "00000003"
    "00000003 0019 76616772616e742d7562756e74752d707265636973652d3634 00002385"
    "00000001 0019 76616772616e742d7562756e74752d707265636973652d3634 00002383"
    "00000002 0019 76616772616e742d7562756e74752d707265636973652d3634 00002384"
    "00000003"
    "0000 0002 6131 00000002"
    "0000 00000000 00000003 00000001 00000003 00000001 00000003"
    "0000 00000001 00000001 00000001 00000001 00000001 00000001"
    "0000 0002 6132 00000002"
    "0000 00000000 00000001 00000001 00000001 00000001 00000001"
    "0000 00000001 00000002 00000001 00000002 00000001 00000002"
    "0000 0002 6133 00000002"
    "0000 00000000 00000003 00000002 00000002 00000003 00000002 00000002 00000003"
    "0000 00000001 00000001 00000002 00000001 00000002 00000002 00000001 00000002"
)


def test_encoded_response_equals_the_printed_bytes() -> None:
    assert len(PRINTED) == 319
    request = Request(3, 0, 0, None, object(), ConnectionInfo())
    assert b"".join(encode_response(request, build_response(request, brokers=BROKERS, topics=TOPICS)))[4:] == PRINTED


def test_request_of_its_client_gets_the_printed_response() -> None:
    """encode_metadata_request(CorrelationId, ClientId, Topics): an array of strings after the common header."""
    frame = struct.pack(">hhih", 3, 0, 0, 6) + b"ekafka" + struct.pack(">i", 3)
    for topic in (b"a1", b"a2", b"a3"):
        frame += struct.pack(">h", len(topic)) + topic
    api.load_all()
    request = decode_request(frame)
    assert (request.correlation_id, request.client_id) == (0, "ekafka")
    assert [topic.name for topic in request.entity.topics] == ["a1", "a2", "a3"]
    answer = build_response(request, brokers=BROKERS, topics=TOPICS)
    assert b"".join(encode_response(request, answer)) == struct.pack(">i", 319) + PRINTED


def test_printed_response_is_decoded_to_the_values_of_its_author() -> None:
    read = entity_reader(load_response_schema(3, 0))
    answer: Any
    answer, size = read(PRINTED, 4)
    assert size == 315
    assert [(node.node_id, node.port) for node in answer.brokers] == [(3, 9093), (1, 9091), (2, 9092)]
    leaders = {
        (topic.name, one.partition_index): (one.leader_id, one.replica_nodes, one.isr_nodes)
        for topic in answer.topics
        for one in topic.partitions
    }
    assert leaders == {
        ("a3", 1): (1, (1, 2), (1, 2)),
        ("a3", 0): (3, (2, 3), (2, 3)),
        ("a2", 1): (2, (2,), (2,)),
        ("a2", 0): (1, (1,), (1,)),
        ("a1", 1): (1, (1,), (1,)),
        ("a1", 0): (3, (3,), (3,)),
    }
