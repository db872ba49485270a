"""Damage of every kind and the finding that kafkalog-check reports for it."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalog_spark.format.checkpoint import (
    read_leader_epochs,
    read_offset_checkpoint,
    write_leader_epochs,
    write_offset_checkpoint,
)
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.format.producer_snapshot import ProducerEntry, read_producer_snapshot, write_producer_snapshot
from kafkalog_spark.format.transaction_index import format_transaction, load_transaction_index
from kafkalog_spark.log.check import partition_check
from kafkalog_spark.log.check.finding import MAX_FINDINGS_PER_FILE, Findings
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.check.partition_check import PartitionCheck, PartitionResult
from kafkalog_spark.log.check.partition_names import check_names
from kafkalog_spark.log.read.partition_log import PartitionLog
from tests.log.helpers.batch_builder import V2Record, batch, sealed
from tests.log.helpers.damaged_log import NAME, log_path, records, write_segments

SEGMENTS, TRANSACTIONS, IDEMPOTENT = "segments-1", "transactions-0", "idempotent-0"
FIRST, SECOND, LAST = 0, 1200, 4800  # base offsets of segments-1


def file(root: Path, partition: str, offset: int, suffix: str) -> Path:
    return root / partition / f"{offset:020d}{suffix}"


def set_checkpoint(root: Path, name: str, partition: str, offset: int) -> None:
    topic, _, number = partition.rpartition("-")
    write_offset_checkpoint(root / name, {**read_offset_checkpoint(root / name), (topic, int(number)): offset})


def patch(path: Path, at: int, new: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + new + data[at + len(new) :])


def change_producer(path: Path, **fields: int) -> None:
    entries = read_producer_snapshot(path)
    write_producer_snapshot(path, [entries[0]._replace(**fields), *entries[1:]])


def drop_aborted(path: Path) -> None:
    path.write_bytes(b"".join(map(format_transaction, load_transaction_index(path)[1:])))


def resealed(path: Path, at: int, new: bytes) -> None:
    """Change the first batch, and put its CRC right."""
    data = path.read_bytes()
    size = 12 + int.from_bytes(data[8:12], "big")
    path.write_bytes(sealed(data[:at] + new + data[at + len(new) : size]) + data[size:])


class Damage(NamedTuple):
    """`says`: a part of one line of the report, which begins with `error: ` and names `path` of the log directory."""

    name: str
    partition: str
    do: Callable[[Path], object]
    path: str
    says: str


def seg(offset: int, suffix: str) -> str:
    return f"{SEGMENTS}/{offset:020d}{suffix}"


TABLE = [
    Damage(
        "a value with a flipped bit",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, SECOND, ".log"), 200, b"\xee\xee"),
        seg(SECOND, ".log"),
        "at byte 0 (offset 1200): CRC-32C does not match",
    ),
    Damage(
        "zeros in the middle of a segment",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, SECOND, ".log"), 0, bytes(3000)),
        seg(SECOND, ".log"),
        "at byte 0 (offset 1200): zeros where a batch should begin",
    ),
    Damage(
        "a base offset that goes back",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, SECOND, ".log"), 0, struct.pack(">q", 7)),
        seg(SECOND, ".log"),
        "the offsets of a batch: expected 1200 or higher up to 2399, got 7 to ",
    ),
    Damage(
        "a record count that lies",
        SEGMENTS,
        lambda root: resealed(file(root, SEGMENTS, FIRST, ".log"), 57, struct.pack(">i", 100_000)),
        seg(FIRST, ".log"),
        "at byte 0 (offset 0): the record count of a batch: expected 0 to ",
    ),
    Damage(
        "a codec that does not exist",
        SEGMENTS,
        lambda root: resealed(file(root, SEGMENTS, FIRST, ".log"), 21, struct.pack(">h", 7)),
        seg(FIRST, ".log"),
        "the codec of a batch: expected 0 to 4, got 7",
    ),
    Damage(
        "a leader epoch that nobody had",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, LAST, ".log"), 12, struct.pack(">i", 9)),
        f"{SEGMENTS}/leader-epoch-checkpoint",
        "(offset 4800): the checkpoint's leader epoch for the batch at offset 4800: expected 9, got 0",
    ),
    Damage(
        "an offset index entry into a batch",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, FIRST, ".index"), 4, struct.pack(">i", 12_001)),
        seg(FIRST, ".index"),
        "entry 0 of the offset index: expected a position where a batch begins, got byte 12001",
    ),
    Damage(
        "an offset index entry with another offset",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, FIRST, ".index"), 0, struct.pack(">i", 3)),
        seg(FIRST, ".index"),
        "at byte 0 (offset 3): entry 0 of the offset index: expected ",
    ),
    Damage(
        "an offset index that does not rise",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, FIRST, ".index"), 8, struct.pack(">ii", 1, 1)),
        seg(FIRST, ".index"),
        "at byte 8: entry 1 (offset, position) = (1, 1) does not follow",
    ),
    Damage(
        "an offset index that points behind the log",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, FIRST, ".index"), 36, struct.pack(">i", 70_000)),
        seg(FIRST, ".index"),
        "entry 4 of the offset index: expected a position below byte 61674, the end of the log, got byte 70000",
    ),
    Damage(
        "an index of a rolled segment that is padded",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, FIRST, ".index"), 40, bytes(80)),
        seg(FIRST, ".index"),
        "zeros after the last entry",
    ),
    Damage(
        "a missing time index",
        SEGMENTS,
        lambda root: file(root, SEGMENTS, FIRST, ".timeindex").unlink(),
        seg(FIRST, ".log"),
        "the segment does not have a time index",
    ),
    Damage(
        "a timestamp that no record has",
        SEGMENTS,
        lambda root: patch(file(root, SEGMENTS, FIRST, ".timeindex"), 7, b"\x00"),
        seg(FIRST, ".timeindex"),
        "entry 0 of the time index: expected ",
    ),
    Damage(
        "a time index without its last entry",
        SEGMENTS,
        lambda root: file(root, SEGMENTS, FIRST, ".timeindex").write_bytes(b""),
        seg(FIRST, ".timeindex"),
        "the last entry of the time index of a closed segment: expected the largest timestamp",
    ),
    Damage(
        "an aborted transaction that is not told",
        TRANSACTIONS,
        lambda root: drop_aborted(file(root, TRANSACTIONS, 4, ".txnindex")),
        f"{TRANSACTIONS}/{4:020d}.log",
        "the abort marker of producer id ",
    ),
    Damage(
        "a transaction index that is gone",
        TRANSACTIONS,
        lambda root: file(root, TRANSACTIONS, 4, ".txnindex").unlink(),
        f"{TRANSACTIONS}/{4:020d}.log",
        "the abort marker of producer id ",
    ),
    Damage(
        "a transaction index that is cut short",
        TRANSACTIONS,
        lambda root: file(root, TRANSACTIONS, 4, ".txnindex").write_bytes(b"\x00\x00\x00"),
        f"{TRANSACTIONS}/{4:020d}.txnindex",
        "the last entry has 3 of 34 bytes",
    ),
    Damage(
        "a snapshot with another sequence",
        IDEMPOTENT,
        lambda root: change_producer(file(root, IDEMPOTENT, 300, ".snapshot"), last_sequence=5),
        f"{IDEMPOTENT}/{300:020d}.snapshot",
        "sequence 5, offset",
    ),
    Damage(
        "a snapshot of another producer",
        IDEMPOTENT,
        lambda root: change_producer(file(root, IDEMPOTENT, 300, ".snapshot"), producer_id=77),
        f"{IDEMPOTENT}/{300:020d}.snapshot",
        "producer id 77: expected no batch, got epoch",
    ),
    Damage(
        "a snapshot that cannot be read",
        IDEMPOTENT,
        lambda root: patch(file(root, IDEMPOTENT, 300, ".snapshot"), 20, b"\xff"),
        f"{IDEMPOTENT}/{300:020d}.snapshot",
        "at byte 2: the CRC-32C is ",
    ),
    Damage(
        "a snapshot from behind the end",
        IDEMPOTENT,
        lambda root: file(root, IDEMPOTENT, 300, ".snapshot").rename(file(root, IDEMPOTENT, 301, ".snapshot")),
        f"{IDEMPOTENT}/{301:020d}.snapshot",
        "the offset of a producer snapshot: expected at most 300, the log end offset, got 301",
    ),
    Damage(
        "a leader epoch from behind the end",
        SEGMENTS,
        lambda root: write_leader_epochs(
            root / SEGMENTS / "leader-epoch-checkpoint",
            [*read_leader_epochs(root / SEGMENTS / "leader-epoch-checkpoint"), (50, 9999)],
        ),
        f"{SEGMENTS}/leader-epoch-checkpoint",
        "the start offset of leader epoch 50: expected at most 6000, the log end offset, got 9999",
    ),
    Damage(
        "leader epochs that cannot be read",
        SEGMENTS,
        lambda root: (root / SEGMENTS / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 zero\n"),
        f"{SEGMENTS}/leader-epoch-checkpoint",
        "line 3 is '0 zero', expected 'epoch startOffset'",
    ),
    Damage(
        "partition.metadata without an id",
        SEGMENTS,
        lambda root: (root / SEGMENTS / "partition.metadata").write_bytes(b"version: 0\n"),
        f"{SEGMENTS}/partition.metadata",
        "expected the lines 'version: 0' and 'topic_id: <id>'",
    ),
    Damage(
        "a recovery point behind the end",
        SEGMENTS,
        lambda root: set_checkpoint(root, "recovery-point-offset-checkpoint", SEGMENTS, 6001),
        "recovery-point-offset-checkpoint",
        "(offset 6001): the offset in recovery-point-offset-checkpoint: expected 0 to 6000, the log end offset, got",
    ),
    Damage(
        "a recovery point that a clean stop did not write",
        SEGMENTS,
        lambda root: set_checkpoint(root, "recovery-point-offset-checkpoint", SEGMENTS, 4800),
        "recovery-point-offset-checkpoint",
        "expected 6000, the log end offset, after a clean stop, got 4800",
    ),
    Damage(
        "a log start offset behind the end",
        SEGMENTS,
        lambda root: set_checkpoint(root, "log-start-offset-checkpoint", SEGMENTS, 7000),
        "log-start-offset-checkpoint",
        "expected 0 to 6000, the log end offset, got 7000",
    ),
    Damage(
        "a checkpoint that is cut short",
        SEGMENTS,
        lambda root: (root / "replication-offset-checkpoint").write_bytes(b"0\n5\nsegments 1 6000\n"),
        "replication-offset-checkpoint",
        "line 2 announces 5 entries, but 1 follow",
    ),
    Damage(
        "meta.properties without a node",
        SEGMENTS,
        lambda root: (root / "meta.properties").write_bytes(b"version=1\nnode.id=x\n"),
        "meta.properties",
        "no key 'cluster.id'",
    ),
    Damage(
        "a directory that is no partition's",
        SEGMENTS,
        lambda root: (root / "lost+found").mkdir(),
        "lost+found",
        "not a partition directory (<topic>-<partition>): Apache Kafka refuses to start with it",
    ),
]


@pytest.mark.local_only("messages name local paths")
@pytest.mark.parametrize("damage", TABLE, ids=lambda damage: damage.name)
def test_damage_is_reported_with_its_location(golden_copy: Callable[..., Path], damage: Damage) -> None:
    root = golden_copy("kafka-4.3.0", damage.partition)
    assert check_log_dirs([root]).findings.kept == []
    damage.do(root)
    lines = [str(finding) for finding in check_log_dirs([root]).findings.kept if finding.is_error]
    place = str(root / damage.path)
    assert any(damage.says in line and place in line for line in lines), "\n".join(lines)
    of_partition = "/" in damage.path or damage.path.endswith("checkpoint")
    if of_partition and "announces" not in damage.says:
        assert any(line.startswith(f"error: {damage.partition} {place}") for line in lines), "\n".join(lines)


@pytest.mark.local_only("messages name local paths")
def test_unreadable_partition_is_reported_and_others_are_checked(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy("kafka-4.3.0", "segments-0", "segments-1", "segments-2")
    epochs = root / "segments-0" / "leader-epoch-checkpoint"
    epochs.unlink()
    epochs.mkdir()
    log = file(root, SEGMENTS, SECOND, ".log")
    log.unlink()
    log.symlink_to(root / "nowhere")
    result = check_log_dirs([root])
    assert sorted(str(finding) for finding in result.findings.kept) == [
        f"error: segments-0 {epochs}: cannot be read: is not a regular file",
        f"error: segments-1 {log}: listed in its directory, but does not exist when it is opened",
    ]
    assert result.partitions["segments", 2].log_end_offset == 6000


def test_batches_after_damage_are_checked(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy("kafka-4.3.0", SEGMENTS)
    path = file(root, SEGMENTS, FIRST, ".log")
    positions = [100, 30_000, 61_000]
    for at in positions:
        patch(path, at, b"\xee\xee\xee\xee")
    found = [finding for finding in check_log_dirs([root]).findings.kept if finding.is_error]
    assert len([finding for finding in found if "CRC-32C" in str(finding)]) == len(positions)
    result = check_log_dirs([root])
    assert result.partitions["segments", 1].is_incomplete
    assert result.partitions["segments", 1].log_end_offset == 6000


@pytest.mark.local_only("messages name local paths")
def test_duplicate_sequence_is_reported(tmp_path: Path) -> None:
    twice = b"".join(batch(first, records(first), producer_id=5, producer_epoch=0, base_sequence=0) for first in (0, 5))
    directory = write_segments(tmp_path, {0: twice})
    (finding,) = [found for found in check_log_dirs([directory]).findings.kept if found.is_error]
    size = len(twice) // 2
    assert str(finding) == (
        f"error: {NAME} {log_path(directory)} at byte {size} (offset 5): "
        "the sequence of producer id 5, epoch 0: expected 5, got 0"
    )


def test_check_of_committed_offsets_that_all_have_sequence_0_finds_no_error(tmp_path: Path) -> None:
    batches = [batch(first, records(first), producer_id=5, producer_epoch=0, base_sequence=0) for first in (0, 5)]
    directory = write_segments(tmp_path, {0: b"".join(batches)})
    directory.rename(tmp_path / "__consumer_offsets-0")
    assert check_log_dirs([tmp_path / "__consumer_offsets-0"]).findings.errors == 0


def test_check_of_a_snapshot_at_the_end_of_a_compacted_log_has_no_errors(tmp_path: Path) -> None:
    """A power cut may lose the batches for which the cleaner did not keep the last one below the snapshot."""
    kept = batch(0, records(0), producer_id=5, producer_epoch=0, base_sequence=0)
    after_gap = batch(10, records(10), producer_id=6, producer_epoch=0, base_sequence=0)
    directory = write_segments(tmp_path, {0: kept + after_gap})
    entry = ProducerEntry(5, 1, 4, 9, 4, 0, 0, -1)
    write_producer_snapshot(directory / f"{15:020d}.snapshot", [entry])
    assert check_log_dirs([directory]).findings.errors == 0


def test_sequences_may_wrap_start_anywhere_and_follow_compaction_gaps(tmp_path: Path) -> None:
    wrapping = batch(0, records(0), producer_id=5, producer_epoch=0, base_sequence=2**31 - 5)
    next_epoch = batch(10, records(10), producer_id=5, producer_epoch=1, base_sequence=0)
    after_gap = batch(30, records(30), producer_id=5, producer_epoch=1, base_sequence=77)
    directory = write_segments(
        tmp_path,
        {0: wrapping + batch(5, records(5), producer_id=5, producer_epoch=0, base_sequence=0) + next_epoch + after_gap},
    )
    assert check_log_dirs([directory]).findings.errors == 0


@pytest.mark.local_only("messages name local paths")
def test_findings_of_one_file_are_limited_and_the_rest_counted(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy("kafka-4.3.0", TRANSACTIONS)
    path = file(root, TRANSACTIONS, 4, ".timeindex")
    data = bytearray(path.read_bytes())
    for entry in range(len(data) // 12):
        data[12 * entry + 7] ^= 1
    path.write_bytes(data)
    findings = check_log_dirs([root]).findings
    told = [str(finding) for finding in findings.kept if finding.path == str(path)]
    assert len(told) == MAX_FINDINGS_PER_FILE + 1
    assert told[-1].endswith("more like these in this file")
    assert findings.errors > MAX_FINDINGS_PER_FILE


def test_killed_directory_is_an_error_only_with_closed(golden_crashed: Path) -> None:
    assert check_log_dirs([golden_crashed]).findings.errors == 0
    lines = [str(finding) for finding in check_log_dirs([golden_crashed], was_closed_cleanly=True).findings.kept]
    assert any("zeros after the last entry" in line for line in lines)
    assert any("after a clean stop" in line for line in lines)


@pytest.mark.local_only("messages name local paths")
def test_two_ids_of_one_topic_are_reported(golden_copy: Callable[..., Path]) -> None:
    root = golden_copy("kafka-4.3.0", "segments-0", "segments-1")
    other = root / "segments-1" / "partition.metadata"
    data = other.read_bytes()
    other.write_bytes(data[:-1] + (b"A" if data[-1:] != b"A" else b"Q"))
    (line,) = map(str, check_log_dirs([root]).findings.kept)
    assert line.startswith(f"error: segments-1 {other.parent}: the topic id: expected that of partition 0, ")


def test_unknown_and_leftover_files_are_only_noted(tmp_path: Path) -> None:
    directory = write_segments(tmp_path, {0: b"".join(batch(n, [V2Record(n, 1, None, b"v")]) for n in range(3))})
    (directory / "notes.txt").write_text("hello")
    (directory / f"{9:020d}.index").write_bytes(b"")
    (directory / "leader-epoch-checkpoint.tmp").write_bytes(b"")
    lines = [str(finding) for finding in check_log_dirs([directory]).findings.kept]
    assert all(line.startswith("note: ") for line in lines)
    assert any(line.endswith("notes.txt: not a file of a partition") for line in lines)
    assert any("index without a .log" in line for line in lines)
    assert any("leader-epoch-checkpoint.tmp: left over" in line for line in lines)


def test_check_of_a_partition_that_is_deleted_meanwhile_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_segments(tmp_path, {0: batch(0, records(0))})

    def delete(self: PartitionCheck) -> PartitionResult:
        shutil.rmtree(directory)
        raise FileNotFoundError(2, "No such file or directory", str(directory))

    monkeypatch.setattr(PartitionCheck, "run", delete)
    result = check_log_dirs([tmp_path])
    assert (result.findings.kept, result.partitions) == ([], {})


@pytest.mark.parametrize("damaged", [False, True])
def test_check_of_a_partition_whose_oldest_segments_are_removed_meanwhile_checks_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    directory = write_segments(tmp_path, {base: batch(base, records(base)) for base in (0, 10, 20, 30)})
    if damaged:
        patch(log_path(directory, 20), 70, b"\xff")

    def remove_two(log: PartitionLog, findings: Findings) -> None:
        check_names(log, findings)
        for base in (0, 10):
            log_path(directory, base).unlink()

    def check() -> tuple[list[str], int]:
        result = check_log_dirs([tmp_path])
        findings = [str(finding) for finding in result.findings.kept]
        return [text for text in findings if segment_name(20) in text or segment_name(30) in text], sum(
            partition.records for partition in result.partitions.values()
        )

    findings, count = check()
    assert any(f"{segment_name(20)}.log at byte 0" in text and "CRC" in text for text in findings) == damaged
    monkeypatch.setattr(partition_check, "check_names", remove_two)
    assert check() == (findings, count - 10)
