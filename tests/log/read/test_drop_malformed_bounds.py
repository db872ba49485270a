"""mode=DROPMALFORMED where a read looks for its ends: offsets by timestamp, the last stable offset, aborted
transactions. Damage there is passed over too, and hides nothing but itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_lookup import largest_timestamp
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from tests.log.helpers.batch_builder import ABORT, TRANSACTIONAL, batch, control
from tests.log.helpers.damaged_log import TIME, check_place, open_log, patched, records, write_segments
from tests.log.helpers.rows import plain_rows

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a byte of the records": lambda data: data[:-1] + bytes([data[-1] ^ 0xFF]),
    "length 0": lambda data: patched(data, 8, bytes(4)),
    "length 2 GB": lambda data: patched(data, 8, b"\x7f\xff\xff\xff"),
    "magic": lambda data: patched(data, 16, b"\x07"),
    "zeros": lambda data: bytes(len(data)),
    "base offset": lambda data: patched(data, 2, b"\x01"),
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def forgiving(directory: Path) -> PartitionLog:
    return PartitionLog(PartitionLocation("orders", 0, str(directory)), hints=OpenHints(pass_over_damage=True))


@every_damage
@pytest.mark.parametrize("closed", [False, True])
def test_offset_for_timestamp_skips_damage(closed: bool, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    parts = [batch(at, records(at)) for at in range(0, 50, 5)]
    parts[2] = damage(parts[2])
    segments = {0: b"".join(parts)} | ({50: batch(50, records(50))} if closed else {})
    directory = write_segments(tmp_path, segments)
    log = forgiving(directory)
    assert log.log_end_offset == (55 if closed else 50)
    found = [offset_for_timestamp(log, TIME + wanted) for wanted in (3, 12, 30, 49)]
    assert found == [3, 15, 30, 49]
    assert offset_for_timestamp(log, TIME + 52) == (52 if closed else None)
    with log.open_segment(0) as file:
        assert largest_timestamp(file) == TIME + 49
    if closed:
        with pytest.raises(KafkalogError):
            offset_for_timestamp(open_log(directory), TIME + 30)


def transaction(first: int, producer: int = 7, size: int = 10) -> bytes:
    return batch(
        first,
        records(first, 5, size),
        attributes=TRANSACTIONAL,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )


@every_damage
@pytest.mark.parametrize("size", [1, 400])
def test_transactions_are_tracked_past_damaged_records(
    size: int, damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Of the open transaction, and of the one that was aborted, one batch each is left."""
    parts = [
        transaction(0, 7, size),
        damage(transaction(5, 7, size)),
        control(10, ABORT, TIME, 7),
        DAMAGES["a byte of the records"](transaction(11, 8, size)),
        transaction(16, 8, size),
        batch(21, records(21)),
    ]
    directory = write_segments(tmp_path, {0: b"".join(parts)})
    log = forgiving(directory)
    assert (last_stable_offset(log), log.log_end_offset) == (16, 26)
    state = aborted_transactions(log, 0, 16)
    assert [(found.producer_id, found.first_offset, found.last_offset) for found in state.aborted] == [(7, 0, 10)]
    statistics = ScanStatistics()
    request = ScanRequest(read_committed=True, drop_malformed=True)
    rows = plain_rows(scan_partition(log, 0, 26, request, statistics=statistics))
    assert [row["offset"] for row in rows] == [*range(16, 26)]
    positions = [len(parts[0]), sum(map(len, parts[:3]))]
    assert [error.position for error in statistics.dropped] == positions, "each once"


@pytest.mark.parametrize("damage", list(DAMAGES.values())[1:], ids=list(DAMAGES)[1:])
def test_damage_after_the_range_that_hides_a_marker_is_counted(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    parts = [transaction(0), damage(batch(5, records(5))), control(10, ABORT, TIME, 7), batch(11, records(11))]
    log = forgiving(write_segments(tmp_path, {0: b"".join(parts)}))
    statistics = ScanStatistics()
    request = ScanRequest(read_committed=True, drop_malformed=True)
    assert plain_rows(scan_partition(log, 0, 3, request, statistics=statistics)) == []
    assert [error.position for error in statistics.dropped] == [len(parts[0])]
    assert {error.topic_partition for error in statistics.dropped} == {"orders-0"}


def test_damaged_length_after_the_range_hides_no_abort_marker(tmp_path: Path) -> None:
    """The file seems to end there: what the transaction came to lies behind it."""
    parts = [transaction(0), DAMAGES["length 2 GB"](batch(5, records(5))), control(10, ABORT, TIME, 7)]
    directory = write_segments(tmp_path, {0: b"".join(parts), 11: batch(11, records(11))})
    with pytest.raises(CorruptBatch, match=r"a batch of \d+ bytes begins here, the file ends after \d+") as raised:
        list(scan_partition(open_log(directory), 0, 5, ScanRequest(read_committed=True)))
    check_place(raised.value, directory, len(parts[0]), 5)


@every_damage
def test_damaged_marker_leaves_only_its_transaction_open(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    parts = [transaction(0), damage(control(5, ABORT, TIME, 7)), batch(6, records(6))]
    directory = write_segments(tmp_path, {0: b"".join(parts)})
    log = forgiving(directory)
    assert last_stable_offset(log) == 0
    assert aborted_transactions(log, 0, 11).open == {7: 0}
    with pytest.raises(KafkalogError):
        last_stable_offset(open_log(directory))


def test_closed_segment_ending_inside_a_batch_is_never_skipped_by_timestamp(tmp_path: Path) -> None:
    """Left out of a search for a timestamp, it would hide its damage, and records with it."""
    directory = write_segments(
        tmp_path, {0: batch(0, records(0)) + batch(5, records(5))[:-1], 10: batch(10, records(10))}
    )
    log = open_log(directory)
    with log.open_segment(0) as file:
        assert largest_timestamp(file) == MAX_INT64
    with pytest.raises(CorruptBatch, match="the file ends after"):
        offset_for_timestamp(log, TIME + 9)
    assert offset_for_timestamp(forgiving(directory), TIME + 9) == 10
