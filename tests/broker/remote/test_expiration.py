"""Remote segments that total retention expires, for the reasons of Kafka and in its order."""

from __future__ import annotations

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.remote.remote_retention import ExpiredSegments, expired_segments
from kafkalog_spark.format.checkpoint import EpochEntry
from tests.broker.remote.test_remote_log_metadata_cache import cache_of, segment

NOW = 10_000


def expired(*segments, start=0, end=1000, only_local=0, lineage=((0, 0),), **configs) -> ExpiredSegments:
    config = LogConfig.of(
        BrokerConfig.from_properties({"log.dirs": "/x", "remote.log.storage.system.enable": "true"}),
        {"remote.storage.enable": "true", **{name.replace("_", "."): str(value) for name, value in configs.items()}},
    )
    epochs = [EpochEntry(*entry) for entry in lineage]
    return expired_segments(
        cache_of(*segments), config, epochs, NOW, log_start_offset=start, log_end_offset=end,
        only_local_bytes=only_local,
    )  # fmt: skip


def starts(found: ExpiredSegments) -> list[int]:
    return [one.start_offset for one in found.segments]


THREE = (segment(0, 99), segment(100, 199), segment(200, 299))  # of 100 bytes; the newest record is at their end, in ms


def test_retention_ms_expires_remote_segments_from_the_oldest_to_the_first_retained() -> None:
    found = expired(*THREE, retention_ms=NOW - 199)
    assert (starts(found), found.log_start_offset) == ([0, 100], 200)
    assert expired(*THREE, retention_ms=NOW) == ExpiredSegments()
    assert expired(*THREE, retention_ms=-1) == ExpiredSegments()


def test_log_start_offset_is_after_the_last_of_overlapping_expired_segments() -> None:
    """Otherwise offsets between would belong to the log without being readable."""
    found = expired(segment(0, 199), segment(50, 99), segment(200, 299), retention_ms=NOW - 199)
    assert (starts(found), found.log_start_offset) == ([0, 50], 200)


@pytest.mark.parametrize(
    ("size", "gone"), [(350, []), (349, []), (250, [0]), (151, [0]), (150, [0, 100]), (0, [0, 100, 200])]
)
def test_retention_bytes_of_a_tiered_log_counts_local_only_bytes(size: int, gone: list[int]) -> None:
    found = expired(*THREE, only_local=50, retention_ms=-1, retention_bytes=size)
    assert starts(found) == gone
    assert found.log_start_offset == (100 * len(gone) if gone else None)


def test_remote_segment_below_the_log_start_offset_expires_without_moving_it() -> None:
    found = expired(*THREE, start=150, retention_ms=-1)
    assert (starts(found), found.log_start_offset) == ([0], None)


def test_remote_segment_beyond_the_log_end_is_retained_and_does_not_block_expiration() -> None:
    stray = segment(100, 400)  # it ends after the log
    found = expired(segment(0, 99), stray, end=300, retention_ms=1)
    assert starts(found) == [0]


def test_remote_segment_of_an_epoch_before_the_log_expires() -> None:
    old = segment(0, 49, (0, 0))
    found = expired(old, segment(50, 99, (3, 50)), start=50, lineage=((3, 50),), retention_ms=-1)
    assert (starts(found), found.log_start_offset) == ([0], None)
