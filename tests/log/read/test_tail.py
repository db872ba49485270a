"""The last records of a partition are those that reading all of it ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.log.decode.scan_request import RecordPredicate, ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read import tail
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.segment_scan import ScanStatistics
from kafkalog_spark.log.read.tail import tail_start
from tests.golden_data import RELEASES, data_dir, golden_logs
from tests.log.helpers.damaged_log import AFTER, BEFORE, HONEST, open_log, patched, write_segments
from tests.log.helpers.random_logs import LogPlan, committed_batches, log_plans, rows_of
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows
from tests.log.read.test_scan_properties import written
from tests.searches import examples

LOGS = [log for release in RELEASES for log in golden_logs(release, crashed=False)]


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_tail_equals_the_end_of_every_golden_log(log: Any) -> None:
    opened = LogDirs.open(data_dir(log.release)).partition(log.topic, log.partition)
    for read_committed in (False, True):
        rows = log.records(committed_only=read_committed)
        end = last_stable_offset(opened) if read_committed else opened.log_end_offset
        request = ScanRequest(columns=ALL_COLUMNS, read_committed=read_committed)
        for count in (1, 10, 2_000):
            start = tail_start(opened, opened.log_start_offset, end, count, request)
            got = plain_rows(scan_partition(opened, start, end, request))
            assert got == [{name: row[name] for name in ALL_COLUMNS} for row in rows[-count:]], count


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(log_plans(12), st.sampled_from((1, 100, 3000)), st.data())
def test_tail_equals_the_end_of_random_logs_with_any_index(plan: LogPlan, step: int, data: st.DataObject) -> None:
    with written(plan) as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "FIRST_STEP", step)
        opened = log.open()
        committed = data.draw(st.booleans())
        last = last_stable_offset(opened) if committed else log.log_end_offset
        start = data.draw(st.integers(log.log_start_offset, last)) if last > log.log_start_offset else last
        batches = committed_batches(log.batches) if committed else log.batches
        offsets = [row["offset"] for row in rows_of(batches) if start <= row["offset"] < last]  # type: ignore[operator]
        count = data.draw(st.integers(1, len(offsets) + 2))
        request = ScanRequest(read_committed=committed)
        found = tail_start(opened, start, last, count, request)
        if count <= len(offsets):
            assert found == offsets[-count]
        else:
            assert found == start


def test_tail_is_read_from_the_log_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[ScanStatistics] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        scans.append(options["statistics"])
        return scan_partition(*arguments, **options)

    monkeypatch.setattr(tail, "scan_partition", watched)
    monkeypatch.setattr(tail, "FIRST_STEP", 4096)
    (log, *_) = golden_logs(topic="codec-none", crashed=False)
    opened = LogDirs.open(data_dir(log.release)).partition(log.topic, log.partition)
    size = sum(path.stat().st_size for path in log.segments())
    tail_start(opened, 0, opened.log_end_offset, 10, ScanRequest())
    assert 0 < sum(scan.bytes_read for scan in scans) < size / 2


def test_scan_conditions_narrow_the_tail_of_each_partition() -> None:
    rows = [
        row for log in golden_logs(topic="segments", release=LOGS[0].release, crashed=False) for row in log.records()
    ]
    last: list[tuple[int, int]] = []
    for partition in sorted({row["partition"] for row in rows}):
        last += [(partition, row["offset"]) for row in rows if row["partition"] == partition][-7:]
    dirs = LogDirs.open(data_dir(LOGS[0].release))

    def places(**options: Any) -> list[tuple[int, int]]:
        found = plain_rows(dirs.scan("segments", columns=("partition", "offset"), tail=7, **options))
        return [(row["partition"], row["offset"]) for row in found]

    assert places() == last
    some = next(row for row in rows if row["key"] and (row["partition"], row["offset"]) == last[2])
    expected = [
        (row["partition"], row["offset"])
        for row in rows
        if row["key"] == some["key"] and (row["partition"], row["offset"]) in last
    ]
    assert places(wanted=RecordPredicate(key=some["key"])) == expected != []
    assert places(offset_in=(last[0][1],)) == [place for place in last if place[1] == last[0][1]]


def test_damage_is_an_error_in_the_tail_and_not_before_it(tmp_path: Path) -> None:
    bad = patched(HONEST, len(HONEST) - 3, b"!")
    log = open_log(write_segments(tmp_path, {0: BEFORE, 5: bad, 10: AFTER}))
    request = ScanRequest(columns=("offset",))
    start = tail_start(log, 0, 15, 3, request)
    assert plain_rows(scan_partition(log, start, 15, request)) == [{"offset": offset} for offset in (12, 13, 14)]
    start = tail_start(log, 0, 15, 8, request)
    assert start == 2
    with pytest.raises(CorruptBatch):
        list(scan_partition(log, start, 15, request))
    passing = ScanRequest(columns=("offset",), drop_malformed=True)
    assert [row["offset"] for row in plain_rows(scan_partition(log, start, 15, passing))] == [2, 3, 4, *range(10, 15)]
