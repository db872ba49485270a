"""Option tail: the last records of each partition, at every action those of then."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.description import describe
from kafkalog_spark.source.option_parsing import parse_read_options
from tests.golden_data import KAFKA_4_3, data_dir, golden_logs
from tests.source.helpers.driver import Load, read

ROWS = {log.partition: log.records() for log in golden_logs(KAFKA_4_3, "segments", crashed=False)}


def places(table: object) -> list[tuple[int, int]]:
    columns = [table[name].to_pylist() for name in ("partition", "offset")]  # type: ignore[index]
    return sorted(zip(*columns, strict=True))


def test_tail_returns_the_last_records_of_each_partition() -> None:
    expected = sorted((partition, row["offset"]) for partition, rows in ROWS.items() for row in rows[-20:])
    scan = Load(data_dir(), subscribe="segments", tail=20).scan()
    assert places(scan.read()) == expected
    assert len(scan.splits) == len(ROWS)
    assert str(describe(data_dir(), subscribe="segments", tail=20)).startswith(
        "3 partitions of 1 topic, at most 60 rec"
    )


def test_tail_of_a_range_is_its_last_records() -> None:
    ends = {partition: rows[len(rows) // 2]["offset"] for partition, rows in ROWS.items()}
    ending = '{"segments":{' + ",".join(f'"{partition}":{end}' for partition, end in ends.items()) + "}}"
    expected = sorted(
        (partition, row["offset"])
        for partition, rows in ROWS.items()
        for row in [row for row in rows if row["offset"] < ends[partition]][-5:]
    )
    assert places(read(data_dir(), subscribe="segments", tail=5, endingOffsets=ending)) == expected


def test_tail_of_a_second_action_includes_new_records(tmp_path: Path) -> None:
    shutil.copytree(data_dir() / "segments-0", tmp_path / "segments-0")
    newest = max((tmp_path / "segments-0").glob("*.log"))
    later = newest.read_bytes()
    (log,) = [log for log in golden_logs(KAFKA_4_3, "segments", crashed=False) if log.partition == 0]
    last_batch = log.batches(log.directory / newest.name)[-1]
    newest.write_bytes(later[: last_batch.position])
    scan = Load(tmp_path, subscribe="segments", tail=3, columns="offset").scan()
    before = scan.read()["offset"].to_pylist()
    newest.write_bytes(later)
    after = scan.read()["offset"].to_pylist()
    assert after == [row["offset"] for row in ROWS[0]][-3:]
    assert max(before) < max(after)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tail": "0"}, "tail must be positive; got 0"),
        ({"tail": "5", "maxScanBytes": "1g"}, "options 'tail' and 'maxScanBytes' are both given; leave 'maxScanBytes'"),
        ({"tail": "5", "maxRecordsPerPartition": "1"}, "options 'tail' and 'maxRecordsPerPartition' are both given"),
        (
            {"tail": "5", "minPartitions": "4"},
            "options 'tail' and 'minPartitions' are both given; leave 'minPartitions'",
        ),
        ({"tail": "5", "table": "batches"}, "option 'tail' applies to records, not to the table 'batches'"),
    ],
)
def test_tail_with_incompatible_options_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options({"path": "/logs", "subscribe": "t", **options})
    assert str(caught.value).startswith(message)


def test_tail_of_a_stream_is_refused() -> None:
    with pytest.raises(OptionError, match="'tail' applies to batch queries only: a stream has no last records"):
        parse_read_options({"path": "/logs", "subscribe": "t", "tail": "5"}, streaming=True)
