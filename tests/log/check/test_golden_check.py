"""Check of golden directories: they have no errors, and every changed byte is detected."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from tests import golden_data

MASKS = (0x80, 0xFF)
"""Not 0x01: an index entry whose offset is the next batch's is true as well, where that batch has one record."""
PER_FILE = 7
"""Bytes of a file that are changed, besides those at both ends; all of them in the slow test."""


@pytest.mark.parametrize(
    ("release", "crashed"), [("kafka-4.3.0", False), ("kafka-4.3.0", True), ("kafka-2.8.2", False)]
)
def test_directory_that_kafka_wrote_has_no_errors(release: str, crashed: bool) -> None:
    root = golden_data.data_dir(release, crashed=crashed)
    result = check_log_dirs([root])
    assert [str(finding) for finding in result.findings.kept if finding.is_error] == []
    logs = [log for log in golden_data.golden_logs(release) if log.crashed == crashed]
    for log in logs:
        found = result.partitions[log.topic, log.partition]
        assert (found.log_start_offset, found.log_end_offset) == (log.log_start_offset, log.high_watermark), log
        assert found.batches == sum(len(log.batches(path)) for path in log.segments()), log


def test_only_leftover_files_are_noted() -> None:
    result = check_log_dirs([golden_data.data_dir("kafka-2.8.2")])
    assert {Path(finding.path).suffix for finding in result.findings.kept} == {".deleted"}


def test_partition_directory_may_be_checked_by_itself(golden: Path) -> None:
    result = check_log_dirs([golden / "transactions-0"])
    assert list(result.partitions) == [("transactions", 0)]
    assert result.findings.kept == []


def unseen(root: Path, partition: str, how_many: int | None) -> list[str]:
    """Changed bytes of a partition's files that the check says nothing of."""
    numbers = random.Random(1)
    missed = []
    for path in sorted((root / partition).iterdir()):
        if path.suffix not in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            continue
        data = path.read_bytes()
        places = set(range(len(data)))
        if how_many is not None:
            places = {*range(min(len(data), 30)), *range(max(len(data) - 30, 0), len(data))}
            places.update(numbers.sample(range(len(data)), min(how_many, len(data))))
        for at in sorted(places):
            for mask in MASKS:
                path.write_bytes(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
                if not check_log_dirs([root]).findings.errors and not _is_true(path, at):
                    missed.append(f"{path.name} byte {at} xor {mask:#x}")
        path.write_bytes(data)
    return missed


def _is_true(path: Path, at: int) -> bool:
    """Whether the entry at byte `at` of an index, changed as it is, is true all the same.

    Of an offset index: the position of a batch before its offset, as brokers before Kafka 4.1 wrote it where several
    batches were appended together. Of a time index: another offset up to which nothing is later.
    """
    if path.suffix not in (".index", ".timeindex"):
        return False
    base, log, index = int(path.stem), path.with_suffix(".log").read_bytes(), path.read_bytes()
    found, begin, latest = [], 0, -1
    while begin < len(log):
        base_offset, size = struct.unpack_from(">qi", log, begin)
        (last_delta,) = struct.unpack_from(">i", log, begin + 23)
        latest = max(latest, struct.unpack_from(">q", log, begin + 35)[0])
        found.append((begin, base_offset + last_delta, latest))
        begin += 12 + size
    if path.suffix == ".index":
        offset, position = struct.unpack_from(">ii", index, at - at % 8)
        begun = [last for begin, last, _ in found if begin >= position]
        return position in [begin for begin, _, _ in found] and base + offset in begun
    timestamp, offset = struct.unpack_from(">qi", index, at - at % 12)
    return bool(next((latest for _, last, latest in found if last >= base + offset), None) == timestamp)


def test_changed_bytes_of_a_sample_are_all_detected(golden_copy: Callable[..., Path]) -> None:
    assert unseen(golden_copy("kafka-4.3.0", "transactions-0"), "transactions-0", PER_FILE) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("partition", ["transactions-0", "transactions-1", "idempotent-1", "segments-0"])
def test_changed_bytes_of_a_large_sample_are_all_detected(golden_copy: Callable[..., Path], partition: str) -> None:
    assert unseen(golden_copy("kafka-4.3.0", partition), partition, 2000) == []


@pytest.mark.local_only("messages name local paths")
def test_log_cut_anywhere_is_an_error_when_closed_and_else_a_torn_tail(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy("kafka-4.3.0", "codec-none-0", crashed=False)
    log = next(one for one in golden_data.golden_logs("kafka-4.3.0", "codec-none") if not one.crashed)
    (path,) = sorted((root / "codec-none-0").glob("*.log"))
    data, last = path.read_bytes(), log.batches(log.segments()[-1])[-1]
    cuts = [last.position + 1, last.position + 16, last.position + 61, len(data) - 1]
    for size in cuts:
        path.write_bytes(data[:size])
        (error, *_) = [finding for finding in check_log_dirs([root]).findings.kept if finding.is_error]
        assert (error.path, error.fault.position) == (str(path), last.position)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (root / name).unlink()
    for size in cuts:
        path.write_bytes(data[:size])
        result = check_log_dirs([root])
        assert result.findings.errors == 0
        note = result.findings.kept[0]
        assert f"codec-none-0 {path} at byte {last.position} (offset {last.base_offset}): a torn tail" in str(note)
        assert f"of {size - last.position} bytes" in str(note)
        assert check_log_dirs([root], was_closed_cleanly=True).findings.errors
