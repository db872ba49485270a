"""The mirror's own encoding and decoding of Fetch equal those of kio in every version."""

from __future__ import annotations

import datetime
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.mirror_fetch_messages import (
    FIRST_SESSION_VERSION,
    FIRST_TOPIC_ID_VERSION,
    SourceFetchPartition,
    SourceFetchRequest,
    decode_fetch,
    encode_fetch,
)
from kafkalog_broker.protocol.mirror_messages import FETCH
from kafkalog_broker.protocol.mirror_messages import VERSIONS as SPOKEN
from tests.broker.protocol.helpers.drawn_messages import integers
from tests.broker.protocol.helpers.kio_messages import encode_with_kio, kio_request_class, kio_response_class, kio_value

VERSIONS = range(SPOKEN[FETCH][0], SPOKEN[FETCH][1] + 1)
IDS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("a", "orders", "täglich")}
keys = st.tuples(st.sampled_from(sorted(IDS)), st.integers(0, 5))


def module_of(made):
    return sys.modules[made.__module__]


calls = st.builds(
    SourceFetchRequest,
    session=st.tuples(integers(32), integers(32)),
    partitions=st.dictionaries(
        keys, st.tuples(integers(64), integers(32), integers(32), integers(32)), max_size=8
    ).map(lambda found: [(key, SourceFetchPartition(IDS[key[0]], key[1], *values)) for key, values in found.items()]),
    forgotten=st.sets(keys, max_size=5).map(lambda found: [(key, IDS[key[0]]) for key in sorted(found)]),
    max_wait_ms=integers(32),
    min_bytes=integers(32),
    max_bytes=integers(32),
)  # fmt: skip


def grouped(pairs):
    topics: dict = {}
    for (name, partition), value in pairs:
        topics.setdefault(name, []).append((partition, value))
    return topics.items()


@pytest.mark.parametrize("version", VERSIONS)
@given(call=calls)
def test_fetch_request_equals_the_encoding_of_kio(version, call):
    made = kio_request_class(FETCH, version)
    of = module_of(made)
    topics = [
        kio_value(of.FetchTopic, topic=name, topic_id=IDS[name], partitions=tuple(
            kio_value(of.FetchPartition, partition=partition, current_leader_epoch=one.current_leader_epoch,
                   fetch_offset=one.fetch_offset, last_fetched_epoch=one.last_fetched_epoch, log_start_offset=-1,
                   partition_max_bytes=one.partition_max_bytes)
            for partition, one in partitions))
        for name, partitions in grouped(call.partitions)
    ]  # fmt: skip
    fields = {}
    if version >= FIRST_SESSION_VERSION:
        fields["forgotten_topics_data"] = tuple(
            kio_value(of.ForgottenTopic, topic=name, topic_id=IDS[name], partitions=tuple(one for one, _ in partitions))
            for name, partitions in grouped(call.forgotten)
        )
    expected = kio_value(
        made, replica_id=-1, max_wait=_ms(call.max_wait_ms), max_wait_ms=call.max_wait_ms, min_bytes=call.min_bytes,
        max_bytes=call.max_bytes, isolation_level=0, session_id=call.session[0], session_epoch=call.session[1],
        topics=tuple(topics), rack_id="", cluster_id=None, **fields,
    )  # fmt: skip
    assert encode_fetch(call, version) == encode_with_kio(expected)


def _ms(value):
    return datetime.timedelta(milliseconds=value)


parts = st.dictionaries(
    keys,
    st.tuples(
        st.sampled_from([0, 1, 3, 6, 74, 100]), integers(64), integers(64), st.none() | st.binary(max_size=200),
        st.none() | st.tuples(integers(32), integers(64)), st.integers(0, 3),
    ),
    max_size=8,
)  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@given(found=parts, throttle_ms=st.integers(0, 9999), error=st.sampled_from([0, 70, 71]), session=integers(32))
def test_fetch_response_equals_the_decoding_of_kio(version, found, throttle_ms, error, session):
    made = kio_response_class(FETCH, version)
    of = module_of(made)

    def partition(index, values):
        code, high_watermark, start, records, diverging, aborted = values
        more = {}
        if version >= 12 and diverging is not None:
            more["diverging_epoch"] = of.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        return kio_value(
            of.PartitionData, partition_index=index, error_code=ErrorCode(code), high_watermark=high_watermark,
            last_stable_offset=5, log_start_offset=start,
            aborted_transactions=tuple(of.AbortedTransaction(producer_id=9, first_offset=7) for _ in range(aborted)),
            preferred_read_replica=-1, records=records, **more,
        )  # fmt: skip

    responses = tuple(
        kio_value(of.FetchableTopicResponse, topic=name, topic_id=IDS[name],
               partitions=tuple(partition(index, values) for index, values in partitions))
        for name, partitions in grouped(found.items())
    )  # fmt: skip
    sent = kio_value(
        made, throttle_time=_ms(throttle_ms), error_code=ErrorCode(error), session_id=session, responses=responses
    )
    body = encode_with_kio(sent)
    answer = decode_fetch(memoryview(body), version, len(found))
    has_session = version >= FIRST_SESSION_VERSION
    assert (answer.throttle_ms, answer.error, answer.session_id) == (
        throttle_ms, error if has_session else 0, session if has_session else 0,
    )  # fmt: skip

    def told(diverging):  # as FetchResponse.isDivergingEpoch
        return diverging if version >= 12 and diverging and diverging[0] >= 0 else None

    expected = {
        (IDS[name] if version >= FIRST_TOPIC_ID_VERSION else name, index): (
            code, high_watermark, start, records or b"", told(diverging),
        )
        for (name, index), (code, high_watermark, start, records, diverging, _) in found.items()
    }  # fmt: skip
    assert {
        (one.topic, one.partition): (
            one.error, one.high_watermark, one.log_start_offset, bytes(one.records), one.diverging,
        )
        for one in answer.partitions
    } == expected  # fmt: skip
    for end in range(0, len(body) - 1, 7):
        with pytest.raises(MalformedRequest):
            decode_fetch(memoryview(body)[:end], version, len(found))


def test_records_of_a_fetch_response_are_not_copied():
    made = kio_response_class(FETCH, 12)
    of = module_of(made)
    one = of.PartitionData(
        partition_index=0, error_code=ErrorCode.none, high_watermark=1, last_stable_offset=1, log_start_offset=0,
        aborted_transactions=None, preferred_read_replica=-1, records=bytes(range(100)),
    )  # fmt: skip
    body = encode_with_kio(
        made(
            throttle_time=_ms(0), error_code=ErrorCode.none, session_id=1,
            responses=(of.FetchableTopicResponse(topic="a", partitions=(one,)),),
        )
    )  # fmt: skip
    assert decode_fetch(memoryview(body), 12, 1).partitions[0].records.obj is body
