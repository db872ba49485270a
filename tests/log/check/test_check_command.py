"""kafkalog-check: lines, summary, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_spark.cli.check import main
from kafkalog_spark.exit_codes import BROKEN_PIPE, FAILED, OK, WRONG_USAGE
from tests.log.helpers.batch_builder import GZIP, NONE, ZSTD, batch, encoded
from tests.log.helpers.damaged_log import AFTER, BEFORE, NAME, TIME, log_path, records, write_segments


def test_clean_directory_prints_a_summary_and_exits_with_0(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(golden)]) == OK
    told = capsys.readouterr()
    assert re.fullmatch(
        r"27 partitions, 48 segments, 1175 batches, 2\.2 MB checked in \d+\.\d s \(\d+ MB/s\): 0 errors, 0 notes\n",
        told.out,
    )
    assert told.err == ""


@pytest.mark.local_only("messages name local paths")
def test_each_error_prints_a_line_and_the_exit_code_is_1(
    golden_copy: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = golden_copy("kafka-4.3.0", "codec-none-0")
    (path,) = (root / "codec-none-0").glob("*.log")
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xee" + data[101:])
    (root / "leftover.txt").write_text("")
    assert main([str(root)]) == FAILED
    *lines, summary = capsys.readouterr().out.splitlines()
    assert lines[0] == f"note: {root / 'leftover.txt'}: not a broker file"
    assert lines[1].startswith(f"error: codec-none-0 {path} at byte 0 (offset 0): CRC-32C does not match: the header")
    assert summary.endswith(f"{len(lines) - 1} errors, 1 notes")
    assert main(["--quiet", str(root)]) == FAILED
    assert "note: " not in capsys.readouterr().out


def test_closed_option_reports_crash_leftovers_as_errors(golden_crashed: Path) -> None:
    assert main([str(golden_crashed)]) == OK
    assert main(["--closed", str(golden_crashed)]) == FAILED


def test_records_option_finds_no_error_in_golden_logs(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--records", str(golden)]) == OK
    assert capsys.readouterr().out.endswith("0 errors, 0 notes\n")


@pytest.mark.local_only("messages name local paths")
@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
@pytest.mark.parametrize("filler", [1, 3000])
def test_records_option_reports_undecodable_batches_with_a_valid_crc(
    codec: int, filler: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """filler: few bytes are swept in plain Python, many by a kernel."""
    bad = [batch(at, records(at), codec=codec, payload=encoded(records(at), at, TIME)[:-1]) for at in (5, 15)]
    data = BEFORE + bad[0] + AFTER + bad[1] + b"".join(batch(20 + i, records(20 + i, 1, 400)) for i in range(filler))
    directory = write_segments(tmp_path, {0: data})
    assert main(["--quiet", str(directory)]) == OK
    capsys.readouterr()
    assert main(["--quiet", "--records", str(directory)]) == FAILED
    first, second, summary = capsys.readouterr().out.splitlines()
    for line, position, offset in ((first, len(BEFORE), 5), (second, len(BEFORE + bad[0] + AFTER), 15)):
        assert line.startswith(
            f"error: {NAME} {log_path(directory)} at byte {position} (offset {offset}): the records of"
        )
    assert "2 errors" in summary


def test_path_without_a_log_directory_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == WRONG_USAGE
    assert main([str(tmp_path)]) == WRONG_USAGE
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"kafkalog-check: {tmp_path / 'nowhere'}: does not exist"
    assert second.startswith(f"kafkalog-check: {tmp_path}: is not a Kafka log directory")


def test_missing_path_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == WRONG_USAGE
    assert "usage: kafkalog-check" in capsys.readouterr().err


def test_check_module_loads_no_numba_for_small_segments(golden: Path) -> None:
    code = (
        "import sys; from kafkalog_spark.cli.check import main; code = main(sys.argv[1:]); "
        "assert 'numba' not in sys.modules; sys.exit(code)"
    )
    for command in (["-c", code], ["-m", "kafkalog_spark.cli.check"]):
        ran = subprocess.run([sys.executable, *command, str(golden)], capture_output=True, text=True, check=False)
        assert ran.returncode == OK, ran.stderr
        assert ran.stdout.endswith("0 errors, 0 notes\n")


@pytest.mark.local_only("it writes to its source")
def test_json_prints_one_line_per_finding_and_a_summary(
    golden_copy: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what the text says, field by field."""
    root = golden_copy("kafka-4.3.0", "codec-none-0")
    log = root / "codec-none-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    log.write_bytes(data)
    assert main([str(root)]) == FAILED
    *texts, text_summary = capsys.readouterr().out.splitlines()
    assert main(["--json", str(root)]) == FAILED
    *findings, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert len(findings) == len(texts) > 0
    for finding, text in zip(findings, texts, strict=True):
        assert list(finding) == [
            "type", "severity", "topic_partition", "path", "position", "offset", "what", "expected", "got",
        ]  # fmt: skip
        assert finding["type"] == "finding"
        for name in ("severity", "topic_partition", "path", "what", "expected", "got"):
            assert finding[name] is None or str(finding[name]) in text
        assert (f"at byte {finding['position']}" in text) == (finding["position"] is not None)
        assert (f"(offset {finding['offset']})" in text) == (finding["offset"] is not None)
    assert summary["type"] == "summary"
    assert text_summary.startswith(
        f"{summary['partitions']} partitions, {summary['segments']} segments, {summary['batches']} batches, "
        f"{summary['bytes'] / 1e6:.1f} MB checked"
    )
    assert text_summary.endswith(f"{summary['errors']} errors, {summary['notes']} notes")
    assert main(["--json", "--quiet", str(root / "codec-none-0")]) == FAILED
    assert '"note"' not in capsys.readouterr().out


def test_json_of_an_estimate_has_the_record_count(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--estimate", "--option", "subscribe=segments", str(golden)]) == OK
    assert json.loads(capsys.readouterr().out)["records"] == 18_000


def test_closed_pipe_ends_the_command_without_a_traceback(golden_legacy: Path) -> None:
    line = f"{sys.executable} -m kafkalog_spark.cli.check {golden_legacy} | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=True)
    assert (ran.stdout, ran.stderr) == (f"{BROKEN_PIPE}\n", "")


@pytest.mark.local_only("messages name local paths")
def test_partition_directory_without_a_segment_exits_with_2(
    golden_copy: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = golden_copy("kafka-4.3.0", "codec-none-0") / "codec-none-0"
    for log in directory.glob("*.log"):
        log.rename(f"{log}.gz")
    assert main([str(directory)]) == WRONG_USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{directory}: the partition's directory holds no segment (.log file); it holds 1 compressed" in told.err


@pytest.mark.local_only("messages name local paths")
@pytest.mark.parametrize("empty", [False, True])
def test_partition_without_a_segment_in_a_log_directory_is_an_error_unless_it_is_empty(
    golden_copy: Callable[..., Path], capsys: pytest.CaptureFixture[str], empty: bool
) -> None:
    root = golden_copy("kafka-4.3.0", "codec-none-0", "codec-lz4-0")
    directory = root / "codec-none-0"
    for file in directory.iterdir():
        if empty or file.suffix == ".log":
            file.unlink()
    for name in root.glob("*-checkpoint"):
        name.unlink()
    assert main([str(root)]) == (OK if empty else FAILED)
    severity = "note" if empty else "error"
    assert f"{severity}: codec-none-0 {directory}: holds no segment (.log file)\n" in capsys.readouterr().out


@pytest.mark.local_only("messages name local paths")
def test_compressed_segment_beside_others_is_an_error(
    golden_copy: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = golden_copy("kafka-4.3.0", "codec-none-0")
    compressed = root / "codec-none-0" / "00000000000000000000.log.zst"
    compressed.touch()
    assert main([str(root)]) == FAILED
    what = f"error: codec-none-0 {compressed}: compressed segment file, which readers skip: decompress it"
    assert what in capsys.readouterr().out
