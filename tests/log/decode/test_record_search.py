"""A search finds the records that filtering all of them finds: every format, codec and damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.decode import run_decoder
from kafkalog_spark.log.decode.scan_request import EVERY_RECORD, RecordPredicate
from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_2_8, KAFKA_4_3, Row, data_dir, golden_logs
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.damaged_log import AFTER, BEFORE, TIME, read_all, write_segments
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows

TOPICS = sorted({(log.release, log.topic) for log in golden_logs(crashed=False)})


def holds(row: Row, wanted: RecordPredicate) -> bool:
    """The oracle: what the conditions mean."""
    key, value = row["key"], row["value"]
    headers = [(name.encode(), data) for name, data in row["headers"]]
    return (
        (wanted.key is None or key == wanted.key)
        and (wanted.key_prefix is None or (key is not None and key.startswith(wanted.key_prefix)))
        and (wanted.value_contains is None or (value is not None and wanted.value_contains in value))
        and (
            wanted.header_name is None
            or any(
                name == wanted.header_name and wanted.header_value in (None, data) for name, data in headers
            )
        )
    )  # fmt: skip


def found(release: str, topic: str, wanted: RecordPredicate, **request: Any) -> list[Row]:
    rows = plain_rows(LogDirs.open(data_dir(release)).scan(topic, columns=ALL_COLUMNS, wanted=wanted, **request))
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def all_rows(release: str, topic: str) -> list[Row]:
    rows = [row for log in golden_logs(release, topic, crashed=False) for row in log.records()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def drawn(rows: list[Row], numbers: random.Random) -> RecordPredicate:
    """Conditions that some record may fulfil, and most do not."""
    row = numbers.choice(rows)
    key, value = row["key"] or b"", row["value"] or b""
    at, size = numbers.randrange(len(value) + 1), numbers.choice((0, 1, 2, 3, 8))
    name, data = numbers.choice([(name.encode(), data) for name, data in row["headers"]] or [(b"", None)])
    chances = (numbers.random() for _ in range(5))
    return RecordPredicate(
        key=numbers.choice((key, key, key + b"x", b"")) if next(chances) < 0.4 else None,
        key_prefix=key[: numbers.randrange(len(key) + 1)] if next(chances) < 0.4 else None,
        value_contains=value[at : at + size] if next(chances) < 0.4 else None,
        header_name=name if (with_header := next(chances) < 0.3) else None,
        header_value=numbers.choice((data, b"")) if with_header and next(chances) < 0.5 else None,
    )


@pytest.mark.parametrize(("release", "topic"), TOPICS)
def test_search_of_every_golden_topic_equals_a_filter(release: str, topic: str) -> None:
    numbers = random.Random(topic)
    rows = all_rows(release, topic)
    hits = 0
    for _ in range(12):
        wanted = drawn(rows, numbers)
        expected = [{name: row[name] for name in ALL_COLUMNS} for row in rows if holds(row, wanted)]
        assert found(release, topic, wanted) == expected, wanted
        hits += bool(expected)
    assert hits


def test_search_returns_only_the_requested_columns() -> None:
    for columns in (("offset",), ("timestamp", "partition"), ("topic",), ()):
        batches = list(LogDirs.open(data_dir()).scan("java-lz4", columns=columns, wanted=EVERY_RECORD))
        assert sum(batch.num_rows for batch in batches) == 800
    some = next(row for row in all_rows(KAFKA_4_3, "java-lz4") if row["key"])
    wanted = RecordPredicate(key=some["key"])
    expected = [row["offset"] for row in all_rows(KAFKA_4_3, "java-lz4") if holds(row, wanted)]
    scanned = LogDirs.open(data_dir()).scan("java-lz4", columns=("offset",), wanted=wanted)
    assert [offset for batch in scanned for offset in batch["offset"].to_pylist()] == expected
    for columns in (("topic",), ("timestampType",)):  # what headers of batches alone would tell
        batches = list(LogDirs.open(data_dir()).scan("java-lz4", columns=columns, wanted=wanted))
        assert sum(batch.num_rows for batch in batches) == len(expected)


def test_search_applies_timestamp_and_offset_conditions() -> None:
    rows = all_rows(KAFKA_4_3, "segments")
    wanted = RecordPredicate(value_contains=b"1")
    middle = sorted(row["timestamp"] for row in rows)[len(rows) // 2]
    offsets = tuple(range(100, 6000, 7))
    got = found(KAFKA_4_3, "segments", wanted, timestamp_from_ms=middle, offset_in=offsets)
    expected = [row for row in rows if holds(row, wanted) and row["timestamp"] >= middle and row["offset"] in offsets]
    assert [(row["partition"], row["offset"]) for row in got] == [(r["partition"], r["offset"]) for r in expected] != []
    nothing = found(KAFKA_4_3, "segments", wanted, offset_in=(10**9,))
    assert nothing == []


def test_search_with_read_committed_hides_aborted_records() -> None:
    rows = [row for row in all_rows(KAFKA_4_3, "transactions") if row["committed"]]
    wanted = RecordPredicate(value_contains=b"1")
    expected = [(row["partition"], row["offset"]) for row in rows if holds(row, wanted)]
    got = found(KAFKA_4_3, "transactions", wanted, read_committed=True)
    assert [(row["partition"], row["offset"]) for row in got] == expected != []


def test_search_grows_its_buffer_for_many_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_decoder, "_INITIAL_MATCHES", 3)
    rows = all_rows(KAFKA_4_3, "codec-zstd")
    wanted = RecordPredicate(key_prefix=b"")
    expected = [row["offset"] for row in rows if row["key"] is not None]
    assert [row["offset"] for row in found(KAFKA_4_3, "codec-zstd", wanted)] == expected != []


def record(offset: int, key: bytes | None, value: bytes | None, *headers: tuple[bytes, bytes | None]) -> V2Record:
    return V2Record(offset, TIME, key, value, headers)


def test_nulls_match_no_pattern_and_empty_patterns_match_all_others(tmp_path: Path) -> None:
    made = [
        record(0, None, None),
        record(1, b"", b""),
        record(2, b"k", None, (b"", None)),
        record(3, None, b"v", (b"h", b""), (b"h", b"x")),
        record(4, b"kk", b"vv" * 300, (b"i", b"x")),
    ]
    directory = write_segments(tmp_path, {0: batch(0, made)})

    def offsets(**wanted: bytes) -> list[int]:
        return [row["offset"] for row in read_all(directory, columns=("offset",), wanted=RecordPredicate(**wanted))]

    assert offsets(key=b"") == [1]
    assert offsets(key_prefix=b"") == [1, 2, 4]
    assert offsets(key_prefix=b"k") == [2, 4]
    assert offsets(key=b"k") == [2]
    assert offsets(value_contains=b"") == [1, 3, 4]
    assert offsets(value_contains=b"vv") == [4]
    assert offsets(header_name=b"") == [2]
    assert offsets(header_name=b"", header_value=b"") == []
    assert offsets(header_name=b"h") == offsets(header_name=b"h", header_value=b"x") == [3]
    assert offsets(header_name=b"h", header_value=b"y") == offsets(header_name=b"i", header_value=b"") == []
    assert offsets(key_prefix=b"k", header_name=b"i", header_value=b"x", value_contains=b"v") == [4]


def malformed(payload_change: Callable[[bytearray], None]) -> bytes:
    """A batch of offsets 5-9 with a valid CRC whose records are not what they should be."""
    from tests.log.helpers.batch_builder import encoded

    payload = bytearray(encoded([record(at, b"key", b"v" * 10) for at in range(5, 10)], 5, TIME))
    payload_change(payload)
    return batch(5, [], payload=bytes(payload), last_offset=9, count=5, max_timestamp=TIME)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda payload: payload.__setitem__(0, 0x7F), "a record runs past the end of the batch"),
        (lambda payload: payload.__setitem__(4, 0x7F), "a varint or field runs past the end of its record"),
        (lambda payload: payload.__setitem__(3, 0x09), "a record's offset does not increase, or is outside the batch"),
        (lambda payload: payload.append(0), "bytes are left after the last record"),
    ],
)
def test_malformed_batch_is_an_error_even_without_matches(
    change: Callable[[bytearray], None], what: str, tmp_path: Path
) -> None:
    directory = write_segments(tmp_path, {0: BEFORE + malformed(change) + AFTER})
    for key in (b"key", b"nobody"):
        with pytest.raises(CorruptBatch, match=what) as caught:
            read_all(directory, wanted=RecordPredicate(key=key))
        assert (caught.value.position, caught.value.offset) == (len(BEFORE), 5)
    rows = read_all(directory, wanted=RecordPredicate(key=b"key"), drop_malformed=True)
    assert [row["offset"] for row in rows] == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("topic", ["v0-none", "v0-gzip", "v1-none", "v1-gzip"])
def test_legacy_messages_never_match_a_header_condition(topic: str) -> None:
    assert found(KAFKA_2_8, topic, RecordPredicate(header_name=b"")) == []
