"""What clients of the protocol guides' versions are given: compared with a Kafka in tests/broker/old_versions, and here
with what lies in the log: transactions, old segments, limits, damage."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching import converted_read, down_conversion
from kafkalog_broker.fetching.converted_read import CONVERTED_BYTES, read_converted
from kafkalog_broker.fetching.down_conversion import Asked, convert
from kafkalog_broker.fetching.fetch_session import FetchPartition
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.append.message_sets import validate_message_set
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_broker.turn import Turn
from kafkalog_spark.log.format.layout import ControlType
from tests.broker.old_versions.helpers.old_client import whole
from tests.broker.storage.helpers.stored_logs import IDENTITY, NOW, log_config, new_log
from tests.log.helpers.batch_builder import CODECS, TRANSACTIONAL, ZSTD, V2Record, batch
from tests.log.helpers.legacy_builder import GZIP, LZ4, NONE, SNAPPY, LegacyRecord, message, message_set, wrapper
from tests.log.helpers.plain_decoder import Record
from tests.searches import examples

OLD_CODECS = (NONE, GZIP, SNAPPY, LZ4)
PRODUCER, EPOCH = 9, 0


def append(log: Log, records: list[V2Record], **fields: Any) -> None:
    log.append(validate_batch(batch(0, records, leader_epoch=-1, **fields), log.config, NOW), NOW)


def some(count: int = 3, size: int = 5, start: int = 0) -> list[V2Record]:
    headers = ((b"h", b"x"),)
    return [V2Record(n, NOW + n, b"k%d" % (start + n), bytes([97 + n % 26]) * size, headers) for n in range(count)]


def log_of(directory: Path, *files: tuple[int, bytes]) -> Log:
    """A log with these bytes as its segments, as brokers before 0.11 left them."""
    directory.mkdir()
    for base_offset, data in files:
        (directory / f"{base_offset:020}.log").write_bytes(data)
    return Log(IDENTITY, log_config(), load_log(LoadRequest(directory=directory, clean=False)), NOW)


def read(log: Log, version: int, offset: int = 0, most: int = 1 << 20, **changes: Any) -> Any:
    """One pass over one partition."""

    async def run(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    async def pass_() -> Any:
        settings_: dict[str, Any] = {"max_bytes": 1 << 30, "begin": 0, "is_over": lambda: False, **changes}
        return await read_converted(
            [FetchPartition("t", 0, offset, most, -1)], lambda _: log, run, version=version, turn=Turn(), **settings_
        )

    return asyncio.run(pass_())


def data_of(log: Log, version: int, offset: int = 0, most: int = 1 << 20, **changes: Any) -> bytes:
    (one,) = read(log, version, offset, most, **changes).partitions
    assert one.answer.error_code == 0
    return b"".join(bytes(piece) for piece in one.answer.records)


def records_of(log: Log, version: int, offset: int = 0, most: int = 1 << 20) -> list[Record]:
    """From `offset` to the end, as a consumer reads them."""
    found: list[Record] = []
    while offset < log.high_watermark:
        records = [one for b in whole(data_of(log, version, offset, most)) for one in b.records if one.offset >= offset]
        if not records:
            return found
        found += records
        offset = records[-1].offset + 1
    return found


RECORDS = st.lists(
    st.builds(
        LegacyRecord,
        offset=st.just(0),
        key=st.none() | st.binary(max_size=40),
        value=st.none() | st.binary(max_size=400),
        timestamp=st.integers(0, NOW),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=examples(120))
@given(
    sets=st.lists(st.tuples(RECORDS, st.sampled_from(OLD_CODECS)), min_size=1, max_size=5),
    magic=st.sampled_from((0, 1)),
    most=st.sampled_from((1000, 3000, 1 << 20)),
    offset=st.integers(0, 30),
)
def test_what_a_producer_of_old_messages_sent_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, sets: Any, magic: int, most: int, offset: int
) -> None:
    log = new_log(tmp_path_factory.mktemp("log"))
    sent: list[LegacyRecord] = []
    for records, codec in sets:
        numbered = [LegacyRecord(n, one.key, one.value, one.timestamp) for n, one in enumerate(records)]
        data = message_set(magic, numbered) if codec == NONE else wrapper(magic, codec, numbered)
        made = validate_message_set(memoryview(data), log.config, NOW)
        assert made is not None
        log.append(made, NOW)
        sent += numbered
    offset = min(offset, len(sent))
    for version in (0, 1, 2, 3):
        as_v1 = magic == 1 and version >= 2
        assert [(r.offset, r.key, r.value, r.timestamp) for r in records_of(log, version, offset, most)] == [
            (n, one.key, one.value, one.timestamp if as_v1 else -1) for n, one in enumerate(sent) if n >= offset
        ]
    log.discard()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", [code for code in CODECS.values() if code != ZSTD])
def test_headers_go_and_everything_else_stays(tmp_path: Path, codec: int, version: int) -> None:
    log = new_log(tmp_path)
    append(log, some(30), codec=codec)
    batches = whole(data_of(log, version))
    assert {(one.magic, one.codec) for one in batches} == {(int(version >= 2), codec)}
    found = [one for b in batches for one in b.records]
    assert [(one.offset, one.key, one.value) for one in found] == [(n, r.key, r.value) for n, r in enumerate(some(30))]
    assert [one.timestamp for one in found] == [NOW + n if version >= 2 else -1 for n in range(30)]
    log.discard()


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_times_stay_append_times(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")
    append(log, some(3), codec=codec)
    assert [(one.timestamp, one.timestamp_type) for one in records_of(log, 2)] == [(NOW, 1)] * 3
    log.discard()


def transaction(log: Log, end: ControlType, *, count: int = 2, sequence: int = 0, producer: int = PRODUCER) -> None:
    made = batch(
        0, some(count, start=log.log_end_offset), leader_epoch=-1, attributes=TRANSACTIONAL, producer_id=producer,
        producer_epoch=EPOCH, base_sequence=sequence,
    )  # fmt: skip
    log.append(validate_batch(made, log.config, NOW), NOW)
    log.append_control(end, producer, EPOCH, 0, NOW)


@pytest.mark.parametrize("version", [0, 3])
def test_markers_and_aborted_records_are_left_out_and_offsets_stay(tmp_path: Path, version: int) -> None:
    log = new_log(tmp_path)
    transaction(log, ControlType.COMMIT)  # 0, 1, marker 2
    transaction(log, ControlType.ABORT, sequence=2)  # 3, 4, marker 5
    append(log, some(1))  # 6
    transaction(log, ControlType.COMMIT, sequence=4)  # 7, 8, marker 9
    assert [one.offset for one in records_of(log, version)] == [0, 1, 6, 7, 8]
    assert [one.offset for one in records_of(log, version, 2)] == [6, 7, 8]
    assert [one.offset for one in records_of(log, version, 4)] == [6, 7, 8]
    assert data_of(log, version, 9) == b""
    log.discard()


def test_open_transactions_are_read_as_kafka_has_these_clients_read_them(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    made = batch(
        0, some(2), leader_epoch=-1, attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0
    )
    log.append(validate_batch(made, log.config, NOW), NOW)
    assert [one.offset for one in records_of(log, 2)] == [0, 1]
    log.discard()


def test_no_consumer_stands_still_in_front_of_much_that_it_does_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "READ_BYTES", 1000)
    log = new_log(tmp_path)
    for number in range(40):
        transaction(log, ControlType.ABORT, sequence=2 * number)
        if number % 10 == 0:
            log.roll(NOW)
    append(log, some(1))
    (found,) = records_of(log, 1)
    assert found.offset == 120
    fetched = read(log, 1)
    assert fetched.size == len(data_of(log, 1)) > 0
    log.discard()


def test_what_waits_for_data_does_not_count_what_it_does_not_see(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    transaction(log, ControlType.ABORT)
    fetched = read(log, 1)
    assert (fetched.size, fetched.has_errors, fetched.partitions[0].is_full) == (0, False, False)
    log.discard()


OLD = [LegacyRecord(n, b"k%d" % n, b"v" * 30, NOW + n) for n in range(6)]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_old_segments_go_out_unconverted_to_those_who_can_read_them(tmp_path: Path, codec: int) -> None:
    def of(magic: int, records: list[LegacyRecord]) -> bytes:
        return message_set(magic, records) if codec == NONE else wrapper(magic, codec, records)

    v0, v1 = of(0, OLD[:3]), of(1, OLD[3:])
    log = log_of(tmp_path / "log", (0, v0), (3, v1))
    append(log, some(1))
    for version in (2, 3):
        assert data_of(log, version)[: len(v0 + v1)] == v0 + v1
        assert [one.offset for one in records_of(log, version)] == list(range(7))
    for version in (0, 1):
        data = data_of(log, version)
        assert data[: len(v0)] == v0
        assert {one.magic for one in whole(data)} == {0}
        found = records_of(log, version)
        assert [(one.offset, one.key, one.value) for one in found[:6]] == [(r.offset, r.key, r.value) for r in OLD]
    log.discard()


@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_relative_offsets_with_gaps_stay_what_they_are(tmp_path: Path, codec: int) -> None:
    """As compaction leaves them."""
    kept = [OLD[1], OLD[4], OLD[5]]
    log = log_of(tmp_path / "log", (0, wrapper(1, codec, kept, relative_to=0)))
    assert [one.offset for one in records_of(log, 0)] == [1, 4, 5]
    assert [one.offset for one in records_of(log, 0, 3)] == [4, 5]
    log.discard()


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_up_to_version_2_a_message_that_is_too_large_comes_cut_off(tmp_path: Path, codec: int, version: int) -> None:
    log = new_log(tmp_path)
    large = random.Random(3).randbytes(5_000)  # no codec makes it smaller
    append(log, [V2Record(0, NOW, b"k", large), V2Record(1, NOW, b"k", b"small")], codec=codec)
    for most in (12, 100, 4_000):
        data = data_of(log, version, most=most)
        assert len(data) == most
        assert whole(data) == []
    assert next(one.value for b in whole(data_of(log, version, most=6_000)) for one in b.records) == large
    assert [one.value for b in whole(data_of(log, version, 1, most=200)) for one in b.records] == [b"small"]
    assert data_of(log, version, most=0) == b""
    assert data_of(log, version, most=-1) == b""
    log.discard()


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_from_version_3_on_the_first_message_comes_whole(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path)
    append(log, some(2, size=5_000), codec=codec)
    for most in (0, 12, 100):
        (found,) = [one for b in whole(data_of(log, 3, most=most)) for one in b.records]
        assert found.offset == 0
    log.discard()


def test_a_batch_larger_than_the_limit_is_given_in_parts(tmp_path: Path) -> None:
    draw = random.Random(5)
    log = new_log(tmp_path)
    append(log, [V2Record(n, NOW, b"k", draw.randbytes(500)) for n in range(100)], codec=GZIP)
    for version in (0, 2, 3):
        offset, rounds = 0, 0
        while offset < 100:
            data = data_of(log, version, offset, 2_000)
            assert 0 < len(data) <= 2_000
            offset = whole(data)[-1].last_offset + 1
            rounds += 1
        assert 25 <= rounds <= 50
    log.discard()


def test_a_response_is_bounded_whatever_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONVERTED_BYTES == 4 << 20
    monkeypatch.setattr(converted_read, "CONVERTED_BYTES", 10_000)
    log = new_log(tmp_path)
    for _ in range(40):
        append(log, some(1, size=1_000))
    for version in (1, 3):
        fetched = read(log, version, most=1 << 30)
        assert 8_000 < len(data_of(log, version, most=1 << 30)) <= 10_000
        assert fetched.partitions[0].is_full
    assert len(whole(data_of(log, 3, most=1 << 30, max_bytes=3_000))) == 2
    log.discard()


def test_the_partition_that_is_read_first_is_another_one_each_time(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(5):
        append(log, some(1, size=1_000))

    async def run(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    async def sizes(begin: int) -> list[int]:
        asked = [FetchPartition("t", index, 0, 1 << 20, -1) for index in range(3)]
        fetched = await read_converted(
            asked, lambda _: log, run, version=2, max_bytes=4_000, begin=begin, turn=Turn(), is_over=lambda: False
        )
        assert [one.asked.partition for one in fetched.partitions] == [0, 1, 2]
        return [one.size > 0 for one in fetched.partitions]

    assert [asyncio.run(sizes(begin)) for begin in (0, 1, 2, -1)] == [
        [True, False, False], [False, True, False], [False, False, True], [False, False, True],
    ]  # fmt: skip
    log.discard()


def test_zstd_is_not_converted(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, some(1))
    append(log, some(1), codec=ZSTD)
    assert [one.offset for b in whole(data_of(log, 2)) for one in b.records] == [0]
    (one,) = read(log, 2, 1).partitions
    assert one.answer.error_code == ErrorCode.unsupported_compression_type
    log.discard()


@pytest.mark.parametrize("size", [50, 5_000])
def test_damage_is_said_and_what_lies_in_front_of_it_is_given(tmp_path: Path, size: int) -> None:
    log = new_log(tmp_path)
    append(log, some(1))
    end = log.segments[-1].size
    append(log, some(1, size=size))
    with open(log.segments[-1].log_path, "r+b") as file:
        file.seek(end + 70)
        file.write(b"\xff\xfe")
    assert [one.offset for b in whole(data_of(log, 1)) for one in b.records] == [0]
    fetched = read(log, 1, 1)
    assert fetched.partitions[0].answer.error_code == ErrorCode.corrupt_message
    assert fetched.has_errors
    log.discard()


def test_a_partition_that_is_offline_has_no_leader_for_these_clients(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.take_offline(OSError("gone"))
    assert read(log, 0).partitions[0].answer.error_code == ErrorCode.not_leader_or_follower


def test_nothing_is_read_for_who_has_gone(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, some(1))
    assert read(log, 1, is_over=lambda: True).size == 0
    log.discard()


def test_one_call_ends_when_it_has_taken_its_time_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "AT_ONCE_S", 0.0)
    log = new_log(tmp_path)
    for _ in range(10):
        append(log, some(1), codec=GZIP)
    found = convert(log.reader, Asked(0, 10, 1, 1 << 20, whole=False, cut=False))
    assert (found.next_offset, found.is_full) == (1, False)
    assert [one.offset for one in records_of(log, 2)] == list(range(10))
    log.discard()


def test_a_batch_that_is_too_large_to_be_taken_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "MOST_BATCH", 500)
    log = new_log(tmp_path)
    append(log, some(1, size=1_000))
    with pytest.raises(BrokerError) as caught:
        convert(log.reader, Asked(0, 1, 0, 1 << 20, whole=False, cut=True))
    assert caught.value.code is ErrorCode.message_too_large
    log.discard()


def test_plain_messages_and_wrappers_side_by_side(tmp_path: Path) -> None:
    data = (
        message(1, 0, b"a", b"x", NOW)
        + wrapper(1, GZIP, OLD[1:3])
        + message(0, 3, b"b", b"y")
        + wrapper(0, LZ4, OLD[4:6])
    )
    log = log_of(tmp_path / "log", (0, data))
    append(log, some(2), codec=SNAPPY)
    for version in (0, 1, 2, 3):
        assert [one.offset for one in records_of(log, version)] == list(range(8))
        assert [one.offset for one in records_of(log, version, most=150)] == list(range(8))
    log.discard()
