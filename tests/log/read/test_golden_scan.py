"""What real Kafka wrote is read as its own consumers read it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_spark.format.layout import Codec
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.format.transaction_index import load_transaction_index
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from kafkalog_spark.store.local_store import LOCAL
from tests.golden_data import GoldenLog, golden_logs
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows

LOGS = golden_logs()
every_log = pytest.mark.parametrize("golden_log", LOGS, ids=str)


def open_log(golden_log: GoldenLog) -> PartitionLog:
    parent = golden_log.directory.parent
    return LogDirs.open(parent).partition(golden_log.topic, golden_log.partition)


def without_committed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "committed"} for row in rows]


@every_log
def test_records_equal_those_of_kafkas_consumer(golden_log: GoldenLog) -> None:
    log = open_log(golden_log)
    batches = scan_partition(log, log.log_start_offset, log.log_end_offset, ScanRequest(columns=ALL_COLUMNS))
    assert plain_rows(batches) == without_committed(golden_log.records())


@every_log
def test_read_committed_records_equal_those_of_kafkas_consumer(golden_log: GoldenLog) -> None:
    log = open_log(golden_log)
    request = ScanRequest(columns=ALL_COLUMNS, read_committed=True)
    batches = scan_partition(log, log.log_start_offset, last_stable_offset(log), request)
    assert plain_rows(batches) == without_committed(golden_log.records(committed_only=True))


@every_log
def test_log_start_and_end_offsets_equal_the_brokers(golden_log: GoldenLog) -> None:
    log = open_log(golden_log)
    assert (log.log_start_offset, log.log_end_offset) == (golden_log.log_start_offset, golden_log.high_watermark)


@every_log
def test_batch_headers_equal_those_of_dump_log_segments(golden_log: GoldenLog) -> None:
    for path in golden_log.segments():
        dumped = golden_log.batches(path)
        base = int(path.name[:20])
        with SegmentFile.open(LOCAL, str(path.parent), SegmentFiles(base, path.name)) as file:
            headers = list(file.headers())
        assert [(h.position, h.size, h.last_offset, h.magic, h.crc) for h in headers] == [
            (d.position, d.size, d.last_offset, d.magic, d.crc) for d in dumped
        ]
        assert [Codec(h.codec).name.lower() for h in headers] == [d.codec for d in dumped]
        assert [(h.max_timestamp, int(h.timestamp_type)) for h in headers] == [
            (d.timestamp, d.timestamp_type) for d in dumped
        ]
        for header, batch in zip(headers, dumped, strict=True):
            if header.magic == 2:
                assert (header.base_offset, header.record_count, header.base_sequence) == (
                    batch.base_offset,
                    batch.count,
                    batch.base_sequence,
                )
                assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.leader_epoch,
                )
                assert (header.is_transactional, header.is_control) == (batch.transactional, batch.control)


@every_log
def test_offset_for_timestamp_is_the_first_record_at_or_after_it(golden_log: GoldenLog) -> None:
    """Transaction markers are records too: ListOffsets finds them by the time at which they were written."""
    log = open_log(golden_log)
    markers = [
        {"offset": batch.base_offset, "timestamp": batch.timestamp}
        for path in golden_log.segments()
        for batch in golden_log.batches(path)
        if batch.control and batch.count and (batch.base_offset or 0) >= golden_log.log_start_offset
    ]
    assert bool(markers) == (golden_log.topic == "transactions")
    rows = sorted([*golden_log.records(), *markers], key=lambda row: row["offset"])
    timestamps = sorted({row["timestamp"] for row in rows if row["timestamp"] >= 0})
    probes = {0, *timestamps[:2], *timestamps[-2:], *timestamps[:: max(1, len(timestamps) // 7)]}
    probes |= {timestamp + 1 for timestamp in probes}
    for probe in sorted(probes):
        expected = next((row["offset"] for row in rows if row["timestamp"] >= probe), None)
        assert offset_for_timestamp(log, probe) == expected, probe


@pytest.mark.parametrize("golden_log", golden_logs(topic="transactions"), ids=str)
def test_aborted_transactions_equal_the_transaction_index(golden_log: GoldenLog) -> None:
    log = open_log(golden_log)
    indexed = []
    for path in sorted(golden_log.directory.glob("*.txnindex")):
        indexed += load_transaction_index(path, int(path.name[:20]))
    assert indexed, "the golden log has aborted transactions"
    found = aborted_transactions(log, log.log_start_offset, log.log_end_offset)
    assert found.aborted == indexed


def test_range_may_start_and_end_inside_batches_and_segments() -> None:
    golden_log = golden_logs(topic="segments", crashed=False)[0]
    log = open_log(golden_log)
    rows = without_committed(golden_log.records())
    for start, end in [(0, 1), (1, 2), (599, 601), (1234, 4321), (5999, 6000), (0, 6000)]:
        batches = scan_partition(log, start, end, ScanRequest(columns=ALL_COLUMNS))
        assert plain_rows(batches) == [row for row in rows if start <= row["offset"] < end]
