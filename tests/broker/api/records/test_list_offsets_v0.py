"""ListOffsets 0: segment starts, newest first. What a Kafka 2.8.2 answered to the same questions is in the tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.partition.segment_start_offsets import OffsetAndTime, offsets_before
from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.legacy_builder import message

LATEST, EARLIEST = -1, -2
CANDIDATES = [OffsetAndTime(*pair) for pair in ((0, 100), (10, 200), (20, 300), (25, 400))]  # three segments, the end


@pytest.mark.parametrize(
    ("timestamp", "most", "found"),
    [
        (LATEST, 1, [25]),
        (LATEST, 3, [25, 20, 10]),
        (LATEST, 100, [25, 20, 10, 0]),
        (LATEST, 0, []),
        (EARLIEST, 0, []),
        (EARLIEST, 1, [0]),
        (EARLIEST, 5, [0]),
        (250, 5, [10, 0]),
        (200, 1, [10]),
        (99, 5, []),
        (400, 2, [25, 20]),
        (10**15, 2, [25, 20]),
    ],
)
def test_offsets_before_a_timestamp_are_the_newest_ones_in_descending_order(
    timestamp: int, most: int, found: list[int]
) -> None:
    assert offsets_before(CANDIDATES, timestamp, most, high_watermark=25) == found


def test_offsets_above_the_high_watermark_are_replaced_by_it() -> None:
    assert offsets_before(CANDIDATES, LATEST, 2, high_watermark=22) == [22, 20]
    assert offsets_before(CANDIDATES, LATEST, 1, high_watermark=22) == [22]


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    with AdminBroker(tmp_path / "data") as broker:
        key, _, values = create(new_topic("t", 2))
        broker.ask(request_entity(key, 7, values, {}))
        yield broker


def ask(broker: Any, *asked: tuple[str, int, int, int]) -> list[tuple[str, int, str, list[int]]]:
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "timestamp": time, "max_num_offsets": most}]}
        for name, index, time, most in asked
    ]
    answer = plain(broker.ask(request_entity(2, 0, {"replica_id": -1, "topics": topics}, {})))
    return [
        (topic["name"], one["partition_index"], one["error_code"], one["old_style_offsets"])
        for topic in answer["topics"]
        for one in topic["partitions"]
    ]


def append(broker: Any, time: int) -> None:
    log = broker.log("t", 0)
    log.append(validate_batch(batch(0, [V2Record(0, time, None, b"v")], leader_epoch=-1), log.config, time), time)


def test_empty_log_has_offset_0_as_earliest_and_latest(broker: Any) -> None:
    assert ask(broker, ("t", 0, LATEST, 5)) == [("t", 0, "none", [0])]
    assert ask(broker, ("t", 0, EARLIEST, 5)) == [("t", 0, "none", [0])]
    assert ask(broker, ("t", 0, 1000, 5)) == [("t", 0, "none", [])]


def test_offsets_before_a_timestamp_use_the_modification_times_of_segments(broker: Any) -> None:
    log, now = broker.log("t", 0), broker.clock.now_ms()
    for start in range(3):
        append(broker, now)
        append(broker, now)
        os.utime(log.segments[-1].log_path, (1000 * (start + 1),) * 2)
        log.local.roll(now)
    assert ask(broker, ("t", 0, LATEST, 9)) == [("t", 0, "none", [6, 4, 2, 0])]
    assert ask(broker, ("t", 0, 2_000_000, 9)) == [("t", 0, "none", [2, 0])]
    assert ask(broker, ("t", 0, 2_999_999, 1)) == [("t", 0, "none", [2])]
    log.delete_records(3)
    assert ask(broker, ("t", 0, EARLIEST, 9)) == [("t", 0, "none", [3])]


def test_invalid_partition_or_number_of_offsets_has_the_error_code_of_kafka(broker: Any) -> None:
    assert ask(broker, ("x", 0, LATEST, 1), ("t", 7, LATEST, 1)) == [
        ("x", 0, "unknown_topic_or_partition", []),
        ("t", 7, "unknown_topic_or_partition", []),
    ]
    assert ask(broker, ("t", 0, LATEST, -1)) == [("t", 0, "unknown_server_error", [])]
    assert ask(broker, ("t", 0, -3, 5)) == [("t", 0, "none", [])]


def test_repeated_partition_has_one_result(broker: Any) -> None:
    assert ask(broker, ("t", 0, LATEST, 1), ("t", 1, LATEST, 1), ("t", 0, LATEST, 1)) == [
        ("t", 0, "invalid_request", []),
        ("t", 1, "none", [0]),
    ]


def test_offline_partition_is_not_leader_or_follower_in_version_0(broker: Any) -> None:
    broker.log("t", 0).take_offline(OSError("gone"))
    assert ask(broker, ("t", 0, LATEST, 1)) == [("t", 0, "not_leader_or_follower", [])]


@pytest.mark.parametrize(("magic", "code"), [(0, "unsupported_for_message_format"), (1, "none")])
def test_timestamp_is_not_searched_in_messages_without_timestamps(broker: Any, magic: int, code: str) -> None:
    """The guides' UNSUPPORTED_FOR_MESSAGE_FORMAT (43), in their version 1 only: later ones say that there is none."""
    log = broker.log("t", 0)
    log.append(validate_batch(batch(0, [V2Record(0, 5, None, b"v")], leader_epoch=-1), log.config, 5), 5)
    log.local.roll(5)
    old = message(magic, 1, b"k", b"v", 5)
    path = Path(log.segments[-1].log_path)
    path.write_bytes(old)
    log.segments[-1].end = (len(old), 2)
    for version, expected in ((1, code), (2, "none")):
        wanted = {"partition_index": 0, "timestamp": 5, "current_leader_epoch": -1}
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [wanted]}]}
        answer = plain(broker.ask(request_entity(2, version, values, {})))
        assert answer["topics"][0]["partitions"][0]["error_code"] == expected
