"""What is read and written in steps is what kio reads and writes at once."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Generator
from io import BytesIO
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.describe_client_quotas.v1 import response as quotas_module
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v2 import response as response_module
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import f64, i32, i64

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.codec import decode_in_steps, decode_request, request_class, response_class
from kafkalog_broker.protocol.request_steps import (
    FREED_AT_ONCE,
    MAX_VALUES,
    STEP_VALUES,
    given_up,
    read_in_steps,
    taken,
)
from kafkalog_broker.protocol.response_entity import NO_THROTTLE
from kafkalog_broker.protocol.response_steps import LARGE_ELEMENTS, STEP_ELEMENTS, is_large, write_in_steps
from tests.broker.protocol.helpers.drawn_entities import (
    REQUEST_VERSIONS,
    encode,
    encode_request,
    entities,
    requests_of,
    served_first,
    versions_with,
)
from tests.searches import examples

RESPONSE_VERSIONS = versions_with(EntityType.response)
T = TypeVar("T")


def all_steps(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What the generator returns, and how often it yielded."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


@pytest.mark.parametrize("key", served_first(REQUEST_VERSIONS), ids=str)
@settings(max_examples=examples(5))
@given(data=st.data())
def test_a_request_is_the_same_in_steps(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(REQUEST_VERSIONS[key]))
    _, _, entity = data.draw(requests_of(key, version))
    body = encode(entity, data.draw(st.none() | st.binary(max_size=200)))
    read, _ = all_steps(read_in_steps(request_class(key, version), b"head" + body, 4))
    assert read == entity


@pytest.mark.usefixtures("everything_served")
@pytest.mark.parametrize("key", served_first(key for key in REQUEST_VERSIONS if key != 0), ids=str)
@settings(max_examples=examples(8))
@given(data=st.data())
def test_what_is_refused_at_once_is_refused_in_steps(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(REQUEST_VERSIONS[key]))
    _, _, entity = data.draw(requests_of(key, version))
    frame = bytearray(encode_request(key, version, entity))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(10, len(frame) - 1))
        frame[at : at + 1] = data.draw(st.binary(max_size=2) | st.sampled_from([b"\0", b"\1", b"\2", b"\xff"]))
    told = []
    for decode in (decode_request, lambda frame: all_steps(decode_in_steps(frame))[0]):
        try:
            told.append(repr(decode(bytes(frame)).entity))
        except MalformedRequest:
            told.append("malformed")
    assert told[0] == told[1]


@pytest.mark.parametrize("key", served_first(RESPONSE_VERSIONS), ids=str)
@settings(max_examples=examples(5))
@given(data=st.data())
def test_a_response_is_the_same_in_steps(key: int, data: st.DataObject) -> None:
    kind = response_class(key, data.draw(st.sampled_from(RESPONSE_VERSIONS[key])))
    response = data.draw(entities(kind))
    expected, written = BytesIO(), BytesIO()
    entity_writer(kind)(expected, response)
    all_steps(write_in_steps(response, written))
    assert written.getvalue() == expected.getvalue()


@pytest.mark.usefixtures("everything_served")
def test_a_large_request_is_cut_into_many_steps() -> None:
    count = 50_000
    frame = struct.pack(">hhih", 2, 2, 1, -1) + struct.pack(">ibih1si", -1, 0, 1, 1, b"t", count)
    frame += b"".join(struct.pack(">iq", index, -1) for index in range(count))
    request, steps = all_steps(decode_in_steps(frame))
    assert len(request.entity.topics[0].partitions) == count
    assert steps >= count * 2 / STEP_VALUES


@pytest.mark.usefixtures("everything_served")
@pytest.mark.parametrize("count", [STEP_VALUES, STEP_VALUES + 1, 5_000])
def test_large_arrays_of_numbers_are_those_that_kio_reads(count: int) -> None:
    """OffsetFetch 1 with int32s. Half a million of them as a tuple took 20 MB."""
    numbers = [(number * 7_919 - 2**31) % 2**32 - 2**31 for number in range(count)]
    frame = struct.pack(">hhih", 9, 1, 1, -1) + struct.pack(">h1sih1si", 1, b"g", 1, 1, b"t", count)
    frame += struct.pack(f">{count}i", *numbers)
    request, _ = all_steps(decode_in_steps(frame))
    (topic,) = request.entity.topics
    assert tuple(topic.partition_indexes) == decode_request(frame).entity.topics[0].partition_indexes
    assert isinstance(topic.partition_indexes, array if count > STEP_VALUES else tuple)


@pytest.mark.usefixtures("everything_served")
def test_a_large_request_is_taken_apart_in_steps() -> None:
    """To free a million values at once took 57 ms, in which nobody was served."""
    count = 10 * FREED_AT_ONCE
    frame = struct.pack(">hhih", 2, 2, 1, -1) + struct.pack(">ibih1si", -1, 0, 1, 1, b"t", count)
    frame += b"".join(struct.pack(">iq", index, -1) for index in range(count))
    request, _ = all_steps(decode_in_steps(frame))
    _, steps = all_steps(given_up(request.entity))
    assert len(request.entity.topics[0].partitions) == 0
    assert steps == 10


@pytest.mark.usefixtures("everything_served")
def test_many_small_structs_in_one_request_are_taken_apart_too() -> None:
    frame = struct.pack(">hhih", 2, 2, 1, -1) + struct.pack(">ibi", -1, 0, 5_000)
    frame += struct.pack(">h1siiqiq", 1, b"t", 2, 0, -1, 1, -1) * 5_000
    request, _ = all_steps(decode_in_steps(frame))
    partitions = request.entity.topics[0].partitions
    all_steps(given_up(request.entity))
    assert len(request.entity.topics) == 0
    assert len(partitions) == 2, "what is small stays as it is"


@pytest.mark.parametrize("kind", [list, tuple])
def test_elements_are_taken_in_their_order(kind: Any) -> None:
    values = kind(range(10))
    assert [tuple(some) for some in taken(values, 4)] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    assert len(values) == (0 if kind is list else 10)


@pytest.mark.usefixtures("everything_served")
def test_more_values_than_a_request_may_have_are_refused_before_one_is_made() -> None:
    body = b"\2\2g\2\2t" + b"\x81\x89\x7a" + bytes(4 * 2_000_000)  # OffsetFetch 8: 2,000,000 partitions
    steps = decode_in_steps(struct.pack(">hhih", 9, 8, 1, -1) + b"\0" + body)
    with pytest.raises(MalformedRequest, match=f"OffsetFetch version 8: more than {MAX_VALUES} values"):
        next(steps)


@pytest.mark.usefixtures("everything_served")
def test_a_large_response_is_cut_into_many_steps() -> None:
    one = response_module.ListOffsetsPartitionResponse(
        partition_index=i32(1), error_code=ErrorCode.none, timestamp=i64(-1), offset=i64(5)
    )

    def response(count: int) -> Any:
        topic = response_module.ListOffsetsTopicResponse(name=TopicName("t"), partitions=(one,) * count)
        return response_module.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))

    assert not is_large(response(LARGE_ELEMENTS - 1))
    assert is_large(response(LARGE_ELEMENTS))
    _, steps = all_steps(write_in_steps(response(2000), BytesIO()))
    assert steps == 2000 // STEP_ELEMENTS


@pytest.mark.usefixtures("everything_served")
def test_a_list_in_a_large_response_is_taken_apart_while_it_is_written() -> None:
    """To free the answer about 50,000 quotas at once took 11 ms, in which nobody was served."""

    def response(kind: Any) -> Any:
        entries = kind(
            quotas_module.EntryData(
                entity=(quotas_module.EntityData(entity_type="user", entity_name=f"u{number}"),),
                values=(quotas_module.ValueData(key="producer_byte_rate", value=f64(float(number))),),
            )
            for number in range(1000)
        )
        return quotas_module.DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message="", entries=entries
        )

    as_tuple, as_list = BytesIO(), BytesIO()
    all_steps(write_in_steps(response(tuple), as_tuple))
    answer = response(list)
    left = []
    for _ in write_in_steps(answer, as_list):
        left.append(len(answer.entries))
    assert as_list.getvalue() == as_tuple.getvalue()
    assert answer.entries == []
    assert left == sorted(left, reverse=True)
    assert len(set(left)) == 1000 // STEP_ELEMENTS
