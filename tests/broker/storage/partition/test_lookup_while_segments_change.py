"""Look-ups on a worker thread while retention removes segments, or compaction replaces them, on the event loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.offset_query import TimestampQuery, search
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.timestamp_lookup import MAX_TIMESTAMP, max_timestamp_offset, offset_for_timestamp
from tests.broker.storage.helpers.cleaned_logs import Host, append, compacted_log, request
from tests.broker.storage.helpers.stored_logs import HOUR, NOW, new_log, three_segments, validated


def remove_first_segment(log: Log) -> None:
    log.move_log_start(log.segments[1].base_offset)
    log.local.remove_first(1)


def call_once_before(monkeypatch: pytest.MonkeyPatch, method: str, change: Callable[[], object]) -> list[str]:
    """Call `change` before the first call of this method of a segment. Returns the calls."""
    original = getattr(LogSegment, method)
    calls: list[str] = []

    def changed(segment: LogSegment, *arguments: object) -> object:
        calls.append(segment.log_path)
        if len(calls) == 1:
            change()
        return original(segment, *arguments)

    monkeypatch.setattr(LogSegment, method, changed)
    return calls


def test_offset_for_timestamp_is_searched_again_after_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = three_segments(tmp_path)
    calls = call_once_before(monkeypatch, "locate", lambda: remove_first_segment(log))
    assert offset_for_timestamp(log, NOW) == (NOW + HOUR, 10, 0)
    assert (len(calls), log.failure) == (2, None)
    log.discard()


def test_max_timestamp_is_searched_again_after_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    for timestamp in (NOW + 9, NOW + 5, NOW + 1):
        log.append(validated(timestamp=timestamp), NOW)
        log.local.roll(NOW)
    calls = call_once_before(monkeypatch, "locate", lambda: remove_first_segment(log))
    assert max_timestamp_offset(log) == (NOW + 5, 1, 0)
    assert (len(calls), log.failure) == (2, None)
    log.discard()


@pytest.mark.parametrize("timestamp", [NOW, NOW + 30, MAX_TIMESTAMP])
def test_timestamp_is_searched_again_after_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    log = compacted_log(tmp_path, segment_bytes=1500, index_interval_bytes=100, delete_retention_ms=0)
    while log.log_end_offset < 40 or len(log.segments) < 3:
        append(log, (b"key %d" % (log.log_end_offset % 7), b"v" * 50), timestamp=NOW + log.log_end_offset)
    log.local.roll(NOW)
    log.flush()
    query = TimestampQuery(log, timestamp, log.log_end_offset, needs_timestamps=False)
    calls = call_once_before(
        monkeypatch, "locate", lambda: Cleaner(request(log), Host(log, NOW), 1 << 20, 0.9, 1 << 16).clean()
    )
    [during] = search([("orders", query)])
    assert len(calls) > 1
    [after] = search([("orders", query)])
    assert (during, during.error_code, log.failure) == (after, ErrorCode.none, None)
    log.discard()


def test_message_format_is_read_again_after_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = three_segments(tmp_path)
    log.local.roll(NOW)

    def remove_all() -> None:
        log.move_log_start(log.log_end_offset)
        log.local.remove_first(3)

    calls = call_once_before(monkeypatch, "handle", remove_all)
    query = TimestampQuery(log, NOW, log.log_end_offset, needs_timestamps=True)
    other = TimestampQuery(three_segments(tmp_path / "other"), NOW, 30, needs_timestamps=True)
    results = search([("other", other), ("orders", query)])
    results += search([("other", other)])
    assert [(result.key, result.error_code, result.offset.offset) for result in results][:2] == [
        ("orders", ErrorCode.none, -1), ("other", ErrorCode.none, 0),
    ]  # fmt: skip
    assert calls
    assert log.failure is None
    log.discard()


def test_query_of_a_log_whose_file_is_gone_fails_for_its_partition_only(tmp_path: Path) -> None:
    log, other = three_segments(tmp_path / "orders"), three_segments(tmp_path / "other")
    log.segments[-1].forget_handles()
    Path(log.segments[-1].log_path).unlink()
    queries = [
        (name, TimestampQuery(one, NOW, 30, needs_timestamps=True)) for name, one in (("other", other), ("orders", log))
    ]
    results = []
    while queries:
        results += search(queries)
    assert [(result.key, result.error_code) for result in results] == [
        ("orders", ErrorCode.kafka_storage_error), ("other", ErrorCode.none),
    ]  # fmt: skip
    log.discard()
    other.discard()


def test_look_up_in_a_log_that_is_closed_meanwhile_raises_unknown_topic_or_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = three_segments(tmp_path)

    def delete() -> None:
        log.discard()
        log.directory.rename(log.directory.with_suffix(".deleted"))

    call_once_before(monkeypatch, "locate", delete)
    with pytest.raises(BrokerError) as raised:
        offset_for_timestamp(log, NOW)
    assert raised.value.code is ErrorCode.unknown_topic_or_partition
