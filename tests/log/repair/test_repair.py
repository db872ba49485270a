"""Whatever happens to a log directory: its undamaged batches are in what kafkalog-repair makes of it, nothing else is,
and kafkalog-check has nothing to say."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog_spark.cli.repair import main
from kafkalog_spark.errors import NotALogDirectory, OptionError
from kafkalog_spark.format.checkpoint import read_leader_epochs, read_offset_checkpoint
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.repair.fitting_batches import correct_leader_epochs, select_fitting_batches
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from tests.golden_data import KAFKA_2_8, KAFKA_4_3, data_dir, golden_logs
from tests.log.helpers.lying_batches import lying_batch
from tests.log.helpers.random_damage import LOGS, copied, damage, undamaged
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows
from tests.log.helpers.sync_watch import SyncWatch


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def errors(root: Path) -> list[str]:
    return [str(finding) for finding in check_log_dirs([root]).findings.kept if finding.is_error]


def rows(root: Path, topic: str) -> list[dict[str, Any]]:
    return plain_rows(LogDirs.open(root).scan(topic, columns=ALL_COLUMNS))


@pytest.mark.parametrize(("release", "crashed"), [(KAFKA_4_3, False), (KAFKA_4_3, True), (KAFKA_2_8, False)])
def test_intact_directory_is_copied_byte_for_byte(release: str, crashed: bool, tmp_path: Path) -> None:
    source = data_dir(release, crashed=crashed)
    before = contents(source)
    report = repair_log_dirs([source], tmp_path / "new")
    assert report.is_whole
    assert contents(source) == before
    assert errors(tmp_path / "new") == []
    after = contents(tmp_path / "new")
    kept = (".log", ".txnindex", "partition.metadata", "meta.properties")
    assert {name: before[name] for name in before if name.endswith(kept)} == {
        name: after[name] for name in after if name.endswith(kept)
    }
    for log in golden_logs(release, crashed=crashed):
        checkpoint = Path(log.name) / "leader-epoch-checkpoint"
        said = [entry for entry in read_leader_epochs(source / checkpoint) if entry.start_offset < log.high_watermark]
        if said and release == KAFKA_4_3:
            assert read_leader_epochs(tmp_path / "new" / checkpoint) == said
        found = next(one for one in report.partitions if (one.topic, one.partition) == (log.topic, log.partition))
        assert (found.log_start_offset, found.log_end_offset) == (log.log_start_offset, log.high_watermark)
    marks = read_offset_checkpoint(source / "replication-offset-checkpoint")
    assert (
        read_offset_checkpoint(tmp_path / "new" / "replication-offset-checkpoint").items()
        >= {
            tp: at for tp, at in marks.items() if tp in {(one.topic, one.partition) for one in report.partitions}
        }.items()
    )


def repair_damaged(seed: int, work: Path) -> None:
    numbers = random.Random(seed)
    log = numbers.choice(LOGS)
    source, target = work / "source", work / "target"
    shutil.rmtree(target, ignore_errors=True)
    path, harmed = damage(log, copied(log, source), numbers)
    before = contents(source)
    repair_log_dirs([source], target)
    assert contents(source) == before, seed
    assert errors(target) == [], seed

    whole = [(batch.base_offset, batch.last_offset) for batch in undamaged(log, path, harmed)]
    said = {row["offset"]: {name: row[name] for name in ALL_COLUMNS} for row in log.records()}
    found = {row["offset"]: row for row in rows(target, log.topic)}
    start = LogDirs.open(target).partition(log.topic, log.partition).log_start_offset
    wanted = [offset for offset in said if offset >= start and any(a <= offset <= b for a, b in whole)]
    assert [offset for offset in wanted if found.get(offset) != said[offset]] == [], seed
    harmed_offsets = [
        batch.position + at
        for batch in log.batches(log.directory / path.name)
        if batch.position in harmed
        for at in range(8)
    ]
    # a base offset that was changed upward where nothing follows: Kafka itself would not notice
    moved = set(found) - set(said)
    values = {(row["key"], row["value"]) for row in said.values()}
    assert not moved or harmed_offsets, seed
    assert all((found[offset]["key"], found[offset]["value"]) in values for offset in moved), seed
    assert all(found[offset] == said[offset] for offset in set(found) - moved if offset in wanted), seed


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_repair_of_a_damaged_sample_keeps_every_whole_batch(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 20):
        repair_damaged(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(1000, 3000, 250))
def test_repair_of_many_random_damages_keeps_every_whole_batch(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 250):
        repair_damaged(seed, tmp_path)


@pytest.mark.local_only("it names local paths")
def test_report_names_lost_batches_with_location_and_reason(
    golden_copy: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = golden_copy(KAFKA_4_3, "codec-gzip-0")
    (log,) = golden_logs(KAFKA_4_3, "codec-gzip", crashed=False)
    (path,) = (root / "codec-gzip-0").glob("*.log")
    first, second, third = log.batches(log.segments()[0])[:3]
    data = bytearray(path.read_bytes())
    data[second.position + 100] ^= 1
    path.write_bytes(data)
    assert main([str(root / "codec-gzip-0"), "--to", str(tmp_path / "new"), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    (partition,) = said["partitions"]
    (loss,) = partition["losses"]
    assert loss.pop("why").startswith("CRC-32C does not match")
    assert loss == {
        "path": str(path), "position": second.position, "size": second.size,
        "first_offset": second.base_offset, "next_offset": third.base_offset,
        "timestamp_before": first.timestamp, "timestamp_after": third.timestamp,
        "keys": loss["keys"], "keys_read": loss["keys_read"],
    }  # fmt: skip
    assert (said["bytes_lost"], said["is_whole"]) == (second.size, False)
    assert main([str(root / "codec-gzip-0"), "--to", str(tmp_path / "again")]) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith(
        f"lost: codec-gzip-0 {path} at byte {second.position}, {second.size} bytes: offsets {second.base_offset} to "
        f"{second.last_offset}, between 2023-11-14T22:30:49.000+00:00 and 2023-11-14T22:32:16.000+00:00: CRC-32C does"
    )
    assert summary.endswith(f"in 1 places: {tmp_path / 'again'}")


def test_changed_leader_epoch_is_corrected(golden_copy: Callable[..., Path], tmp_path: Path) -> None:
    root = golden_copy(KAFKA_4_3, "codec-none-0")
    (path,) = (root / "codec-none-0").glob("*.log")
    (log,) = golden_logs(KAFKA_4_3, "codec-none", crashed=False)
    sound = path.read_bytes()
    data = bytearray(sound)
    at = log.batches(log.segments()[0])[1].position + 12
    data[at : at + 4] = b"\0\0\1\0"
    path.write_bytes(data)
    report = repair_log_dirs([root], tmp_path / "new")
    assert (tmp_path / "new" / "codec-none-0" / path.name).read_bytes() == sound
    assert [one.epochs_rewritten for one in report.partitions if one.topic == "codec-none"] == [1]
    assert not report.is_whole


def test_undecodable_batches_are_dropped_only_with_the_records_option(tmp_path: Path) -> None:
    from tests.log.decode.test_record_search import malformed
    from tests.log.helpers.damaged_log import AFTER, BEFORE, write_segments

    bad = malformed(lambda payload: payload.append(0))
    write_segments(tmp_path / "source", {0: BEFORE + bad + AFTER})
    assert repair_log_dirs([tmp_path / "source"], tmp_path / "headers").is_whole
    report = repair_log_dirs([tmp_path / "source"], tmp_path / "records", decode_records=True)
    (loss,) = report.partitions[0].losses
    assert (loss.position, loss.size, loss.why) == (
        len(BEFORE),
        len(bad),
        "its records cannot be read, although its CRC is valid",
    )
    (path,) = (tmp_path / "records").rglob("*.log")
    assert path.read_bytes() == BEFORE + AFTER


def test_no_batch_with_a_valid_crc_stops_a_repair(tmp_path: Path) -> None:
    from tests.log.helpers.damaged_log import write_segments

    numbers = random.Random(3)
    for at in range(60):
        write_segments(tmp_path / f"s{at}", {0: b"".join(lying_batch(numbers).data for _ in range(3))})
        repair_log_dirs([tmp_path / f"s{at}"], tmp_path / f"d{at}", decode_records=at % 2 == 0)
        rows_or_errors = errors(tmp_path / f"d{at}")
        assert not any("CRC" in line or "offsets of a batch" in line for line in rows_or_errors)


@pytest.mark.local_only("it names local paths")
def test_repair_into_an_invalid_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "logs"
    shutil.copytree(data_dir() / "headers-0", source / "headers-0")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for target, what in (
        (source, "contain each other"),
        (source / "new", "contain each other"),
        (tmp_path, "contain each other"),
        (tmp_path / "full", "is not an empty directory; choose a new or empty directory"),
    ):
        with pytest.raises(OptionError, match=what):
            repair_log_dirs([source], target)
    assert main([str(tmp_path / "nothing"), "--to", str(tmp_path / "new")]) == 2
    assert "nothing" in capsys.readouterr().err
    assert main([str(source), "--to", str(tmp_path / "new")]) == 0


def table(*batches: tuple[int, int], epochs: tuple[int, ...] = ()) -> np.ndarray:
    made = np.zeros((len(batches), len(HeaderColumn)), np.int64)
    made[:, HeaderColumn.BASE_OFFSET], made[:, HeaderColumn.LAST_OFFSET] = np.array(batches).T
    return made


@pytest.mark.parametrize(
    ("batches", "kept"),
    [
        (((0, 4), (5, 9), (10, 14)), "111"),
        (((0, 4), (500, 504), (10, 14), (15, 19)), "1011"),  # moved upward
        (((0, 4), (5, 9), (2, 3), (10, 14)), "1101"),  # moved downward
        (((0, 4), (5, 9), (5, 9)), "110"),  # twice, and one of them will do
        (((0, 4), (9, 5), (10, 1000)), "100"),  # backward; beyond the segment
        (((-5, -1), (0, 4)), "01"),
    ],
)
def test_repair_chooses_batches_with_consistent_offsets(batches: tuple[tuple[int, int], ...], kept: str) -> None:
    found = select_fitting_batches(table(*batches), 0, 1000, -1)
    assert found.sum() == kept.count("1")
    if "twice" not in kept and batches[-1] != (5, 9):
        assert "".join(map(str, found.astype(int))) == kept


@pytest.mark.parametrize(
    ("epochs", "highest", "given"),
    [
        ((0, 0, 1, 1), 0, (0, 0, 1, 1)),
        ((0, 256, 0, 1), 0, (0, 0, 0, 1)),
        ((3, 3, 1, 3, 4), 3, (3, 3, 3, 3, 4)),
        ((-1, -1), -1, (-1, -1)),
        ((1, 2), 5, (5, 5)),
    ],
)
def test_repair_assigns_leader_epochs_that_do_not_decrease(
    epochs: tuple[int, ...], highest: int, given: tuple[int, ...]
) -> None:
    assert tuple(correct_leader_epochs(np.array(epochs, np.int64), highest).tolist()) == given


def test_repaired_directory_is_synced_with_all_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SyncWatch(monkeypatch)
    repair_log_dirs([data_dir(KAFKA_4_3)], tmp_path / "a" / "new")
    assert watch.unsynced(tmp_path / "a") == []
    assert watch.is_synced(tmp_path)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_repair_of_compressed_segments_counts_them_as_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], all_of_them: bool
) -> None:
    source = tmp_path / "source"
    shutil.copytree(data_dir(KAFKA_4_3) / "segments-0", source / "segments-0")
    logs = sorted((source / "segments-0").glob("*.log"))
    for log in logs if all_of_them else logs[:1]:
        log.rename(f"{log}.gz")
    assert main([str(source), "--to", str(tmp_path / "new")]) == 1
    lost = [line for line in capsys.readouterr().out.splitlines() if line.startswith("lost: segments-0: ")]
    assert len(lost) == 1
    assert "compressed segment" in lost[0]


def test_repair_of_a_segment_that_cannot_be_read_counts_it_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    shutil.copytree(data_dir(KAFKA_4_3) / "segments-0", source / "segments-0")
    opened = PartitionLog.open_segment

    def fail_first(log: PartitionLog, index: int) -> SegmentFile:
        if index == 0:
            raise NotALogDirectory("the segment cannot be opened: Input/output error")
        return opened(log, index)

    monkeypatch.setattr(PartitionLog, "open_segment", fail_first)
    assert main([str(source), "--to", str(tmp_path / "new")]) == 1
    out = capsys.readouterr().out
    assert "lost: segments-0: " in out
    assert "could not be read to its end: the segment cannot be opened: Input/output error" in out
