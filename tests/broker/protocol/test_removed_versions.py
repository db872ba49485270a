"""Versions that Kafka 4.0 removed, compared byte for byte with the grammar of the protocol guides."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import reader, request_class, response_class, writer
from tests.broker.api.helpers.plain_entities import plain
from tests.broker.protocol.helpers.guide_classes import VERSIONS

TOPIC = struct.pack(">h1s", 1, b"t")


def array(*elements: bytes) -> bytes:
    return struct.pack(">i", len(elements)) + b"".join(elements)


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


ONE_PARTITION = array(TOPIC + array(struct.pack(">i", 3)))
TO_FETCH = array(TOPIC + array(struct.pack(">iqi", 3, 7, 100)))
FETCHED = array(TOPIC + array(struct.pack(">ihq", 3, 0, 9) + sized(b"set")))
PARTITION_TO_FETCH = {"partition": 3, "fetch_offset": 7, "partition_max_bytes": 100}
FETCH = {"replica_id": -1, "max_wait": 1000, "min_bytes": 1}
FETCHED_PARTITION = {"partition_index": 3, "error_code": "none", "high_watermark": 9, "records": b"set"}
FETCHED_TOPIC = {"responses": [{"topic": "t", "partitions": [FETCHED_PARTITION]}]}
PRODUCED = {"index": 3, "error_code": "none", "base_offset": 9}
TOPICS_TO_FETCH = {"topics": [{"topic": "t", "partitions": [PARTITION_TO_FETCH]}]}
PRODUCE = struct.pack(">hi", -1, 1000) + array(TOPIC + array(struct.pack(">i", 3) + sized(b"set")))
PRODUCE_VALUES = {
    "acks": -1,
    "timeout": 1000,
    "topic_data": [{"name": "t", "partition_data": [{"index": 3, "records": b"set"}]}],
}
COMMITTED = (
    array(TOPIC + array(struct.pack(">ih", 3, 12))),
    {"topics": [{"name": "t", "partitions": [{"partition_index": 3, "error_code": "offset_metadata_too_large"}]}]},
)


def produced(**more: Any) -> dict[str, Any]:
    return {"responses": [{"name": "t", "partition_responses": [{**PRODUCED, **more}]}]}


REQUESTS: dict[tuple[int, int], tuple[bytes, dict[str, Any]]] = {
    **{(0, version): (PRODUCE, PRODUCE_VALUES) for version in (0, 1, 2)},
    **{(1, old): (struct.pack(">iii", -1, 1000, 1) + TO_FETCH, {**FETCH, **TOPICS_TO_FETCH}) for old in (0, 1, 2)},
    (1, 3): (struct.pack(">iiii", -1, 1000, 1, 50) + TO_FETCH, {**FETCH, "max_bytes": 50, **TOPICS_TO_FETCH}),
    (2, 0): (
        struct.pack(">i", -1) + array(TOPIC + array(struct.pack(">iqi", 3, -1, 5))),
        {
            "replica_id": -1,
            "topics": [
                {"name": "t", "partitions": [{"partition_index": 3, "timestamp": -1, "max_num_offsets": 5}]}
            ],
        },
    ),
    (8, 0): (
        struct.pack(">h1s", 1, b"g") + array(TOPIC + array(struct.pack(">iqh2s", 3, 9, 2, b"at"))),
        {
            "group_id": "g",
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": 3, "committed_offset": 9, "committed_metadata": "at"}],
                }
            ],
        },
    ),
    (8, 1): (
        struct.pack(">h1sih1s", 1, b"g", 4, 1, b"m") + array(TOPIC + array(struct.pack(">iqqh", 3, 9, 1234, -1))),
        {
            "group_id": "g",
            "generation_id_or_member_epoch": 4,
            "member_id": "m",
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {
                            "partition_index": 3,
                            "committed_offset": 9,
                            "commit_timestamp": 1234,
                            "committed_metadata": None,
                        }
                    ],
                }
            ],
        },
    ),
    (9, 0): (
        struct.pack(">h1s", 1, b"g") + ONE_PARTITION,
        {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [3]}]},
    ),
}  # fmt: skip
RESPONSES: dict[tuple[int, int], tuple[bytes, dict[str, Any]]] = {
    (0, 0): (array(TOPIC + array(struct.pack(">ihq", 3, 0, 9))), produced()),
    (0, 1): (array(TOPIC + array(struct.pack(">ihq", 3, 0, 9))) + bytes(4), {**produced(), "throttle_time": 0}),
    (0, 2): (
        array(TOPIC + array(struct.pack(">ihqq", 3, 0, 9, -1))) + bytes(4),
        {**produced(log_append_time=None), "throttle_time": 0},
    ),
    (1, 0): (FETCHED, FETCHED_TOPIC),
    **{(1, version): (bytes(4) + FETCHED, {"throttle_time": 0, **FETCHED_TOPIC}) for version in (1, 2, 3)},
    (2, 0): (
        array(TOPIC + array(struct.pack(">ihiqq", 3, 0, 2, 8, 5))),
        {
            "topics": [
                {"name": "t", "partitions": [{"partition_index": 3, "error_code": "none", "old_style_offsets": [8, 5]}]}
            ]
        },
    ),
    (8, 0): COMMITTED,
    (8, 1): COMMITTED,
    (9, 0): (
        array(TOPIC + array(struct.pack(">iqh2sh", 3, 9, 2, b"at", 0))),
        {
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": 3, "committed_offset": 9, "metadata": "at", "error_code": "none"}
                    ],
                }
            ]
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", REQUESTS, ids=str)
def test_request_equals_the_bytes_of_the_guides(pair: tuple[int, int]) -> None:
    _holds(request_class(*pair), *REQUESTS[pair])


@pytest.mark.parametrize("pair", RESPONSES, ids=str)
def test_response_equals_the_bytes_of_the_guides(pair: tuple[int, int]) -> None:
    _holds(response_class(*pair), *RESPONSES[pair])


def _holds(kind: Any, data: bytes, values: dict[str, Any]) -> None:
    entity, size = reader(kind)(data, 0)
    assert size == len(data)
    assert plain(entity) == values
    assert b"".join(writer(kind)(entity, bytearray())) == data
    assert not kind._struct.is_flexible


def test_every_removed_version_is_covered() -> None:
    named = {(key, version) for key, versions in VERSIONS.items() for version in versions}
    assert named == set(REQUESTS) == set(RESPONSES)


def test_message_class_is_cached_and_has_our_error_codes() -> None:
    assert response_class(2, 0) is response_class(2, 0)
    entity, _ = reader(response_class(8, 0))(COMMITTED[0], 0)
    assert entity.topics[0].partitions[0].error_code is ErrorCode.offset_metadata_too_large
