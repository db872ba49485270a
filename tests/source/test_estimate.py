"""kafkalog-check --estimate: segments and bytes that a read would scan."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.cli.check import main
from kafkalog_spark.errors import OptionError
from kafkalog_spark.exit_codes import OK, WRONG_USAGE
from kafkalog_spark.source.estimate import estimate
from tests.golden_data import KAFKA_4_3, data_dir, golden_logs
from tests.source.helpers.driver import Load, read

LOGS = golden_logs(KAFKA_4_3, "segments", crashed=False)


def test_estimate_of_whole_logs_equals_their_content() -> None:
    found = estimate([data_dir()], {"subscribe": "segments"})
    assert [(one.partition, one.start, one.end) for one in found.partitions] == [
        (log.partition, log.log_start_offset, log.high_watermark) for log in LOGS
    ]
    assert [one.segments for one in found.partitions] == [len(log.segments()) for log in LOGS]
    assert [one.size for one in found.partitions] == [sum(p.stat().st_size for p in log.segments()) for log in LOGS]
    assert found.as_json()["records"] == sum(log.high_watermark - log.log_start_offset for log in LOGS)
    every = estimate([data_dir()], {})
    logs = golden_logs(KAFKA_4_3, crashed=False)
    assert [(one.topic, one.partition) for one in every.partitions] == sorted(
        (log.topic, log.partition) for log in logs
    )


def test_estimated_bytes_equal_those_that_max_scan_bytes_limits() -> None:
    middle = sorted(row["timestamp"] for log in LOGS for row in log.records())[-500]
    asked = {"subscribe": "segments", "startingTimestamp": str(middle), "startingOffsetsByTimestampStrategy": "latest"}
    found = estimate([data_dir()], asked)
    assert found.size == sum(split.size for split in Load(data_dir(), **asked).scan().splits)
    assert 0 < found.segments < sum(len(log.segments()) for log in LOGS)
    rows = read(data_dir(), **asked).num_rows
    assert 0 < rows <= found.records
    with pytest.raises(OptionError, match=f"would read {found.size} bytes"):
        Load(data_dir(), maxScanBytes=found.size - 1, **asked).scan()


@pytest.mark.local_only("it writes to its source")
def test_estimate_of_a_damaged_log_is_given(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (log,) = golden_logs(KAFKA_4_3, "codec-none", crashed=False)
    data = bytearray(log.segments()[0].read_bytes())
    data[100] ^= 1
    (tmp_path / "orders-0" / log.segments()[0].name).write_bytes(data)
    assert estimate([tmp_path], {}).size == len(data)
    assert estimate([tmp_path], {"Mode": "PERMISSIVE"}).size == len(data)


def test_estimate_command_prints_partitions_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--estimate", "--option", "subscribe=segments", str(data_dir())]) == OK
    *lines, summary = capsys.readouterr().out.splitlines()
    sizes = [path.stat().st_size for path in LOGS[0].segments()]
    assert lines[0] == (
        f"segments-0: offsets 0 to {LOGS[0].high_watermark}, {len(sizes)} segments, {sum(sizes)} bytes of .log files "
        f"({sum(sizes) / 1e9:.3f} GB), at most {LOGS[0].high_watermark} records"
    )
    assert summary.startswith("3 partitions: ")
    for wrong, what in (("tail=5", "option 'tail' has no meaning"), ("colour", "takes NAME=VALUE, got 'colour'")):
        assert main(["--estimate", "--option", wrong, str(data_dir())]) == WRONG_USAGE
        assert what in capsys.readouterr().err
    for option in ("--records", "--closed", "--quiet"):
        assert main(["--estimate", option, str(data_dir())]) == WRONG_USAGE
        assert f"--estimate and {option} are both given" in capsys.readouterr().err
