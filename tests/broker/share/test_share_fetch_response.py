"""ShareFetch responses are encoded to the same bytes as by kio."""

from __future__ import annotations

import uuid
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.api_messages import writer as our_writer
from kafkalog_broker.protocol.hot_messages import ShareFetchPartition, ShareFetchResponse, ShareFetchTopic
from kafkalog_broker.share.acquisition import Acquired
from tests.broker.protocol.helpers.kio_messages import kio_response_class, kio_value
from tests.searches import examples

TEXT = st.none() | st.text(max_size=200)
ACQUIRED = st.lists(st.builds(Acquired, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 10)), max_size=4)
PARTITIONS = st.builds(
    ShareFetchPartition, st.integers(0, 2**31 - 1), st.sampled_from([0, 3, 29, 100]), TEXT,
    st.sampled_from([0, 121]), TEXT, st.lists(st.binary(max_size=300), max_size=2), ACQUIRED,
)  # fmt: skip
TOPICS = st.lists(st.tuples(st.uuids(), st.lists(PARTITIONS, max_size=50)), max_size=3)


@pytest.mark.parametrize("version", [1, 2])
@settings(max_examples=examples(200))
@given(topics=TOPICS, message=TEXT, lock=st.integers(0, 60_000))
def test_response_bytes_equal_those_of_kio(version: int, topics: Any, message: Any, lock: int) -> None:
    kind: Any = response_class(78, version)
    answer = ShareFetchResponse(
        [ShareFetchTopic(*topic) for topic in topics], error_message=message, acquisition_lock_timeout=lock
    )
    assert b"".join(our_writer(kind)(answer, bytearray())) == _kios(version, topics, message, lock)


def _kios(version: int, topics: list[tuple[uuid.UUID, list[ShareFetchPartition]]], message: Any, lock: int) -> bytes:
    kind = kio_response_class(78, version)
    module = import_module(kind.__module__)
    responses = tuple(
        kio_value(
            module.ShareFetchableTopicResponse, topic_id=topic,
            partitions=tuple(
                kio_value(
                    module.PartitionData, partition_index=one.partition_index, error_code=ErrorCode(one.error_code),
                    error_message=one.error_message, acknowledge_error_code=one.acknowledge_error_code,
                    acknowledge_error_message=one.acknowledge_error_message,
                    current_leader=kio_value(module.LeaderIdAndEpoch, leader_id=0, leader_epoch=0),
                    records=b"".join(one.records),
                    acquired_records=tuple(
                        kio_value(module.AcquiredRecords, first_offset=first, last_offset=last, delivery_count=count)
                        for first, last, count in one.acquired_records
                    ),
                )
                for one in partitions
            ),
        )
        for topic, partitions in topics
    )  # fmt: skip
    answer = kio_value(
        kind, error_code=ErrorCode.none, error_message=message, responses=responses, node_endpoints=(),
        acquisition_lock_timeout=timedelta(milliseconds=lock), throttle_time=timedelta(0),
    )  # fmt: skip
    out = BytesIO()
    entity_writer(kind)(out, answer)
    return out.getvalue()
