"""Leaders that copied the same offsets twice, or others: golden segments joined to larger ones, and some put aside."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.checkpoint import EpochEntry, format_leader_epochs, parse_leader_epochs
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.remote.tiered_log import TieredLog
from kafkalog_spark.log.tiered.lineage import ExclusionReason, epochs_within
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.log.tiered.tier_options import TierOptions
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows
from tests.log.tiered.aiven_writer import AivenMode, local_tiered_files, write_segment
from tests.log.tiered.golden_tiered import CLEAN, LEADERS, GoldenCluster
from tests.log.tiered.reading import aiven_tree, consumed, opened, readable, rows_of

Files = dict[RemoteFile, bytes]


@cache
def files_of(cluster: GoldenCluster) -> dict[str, Files]:
    return local_tiered_files(cluster.remote)


def segments_of(cluster: GoldenCluster, topic: str) -> list[RemoteSegment]:
    found = [segment for segment in readable(cluster) if segment.partition[::2] == (topic, 0)]
    return sorted(found, key=lambda segment: segment.start_offset)


def joined(cluster: GoldenCluster, parts: Sequence[RemoteSegment], name: int) -> tuple[RemoteSegment, Files]:
    """What a leader would have copied whose segments were larger. Offset and time index: of the first part alone."""
    first, last = parts[0], parts[-1]
    all_files = [files_of(cluster)[part.name] for part in parts]
    files = {
        RemoteFile.LOG: b"".join(files[RemoteFile.LOG] for files in all_files),
        RemoteFile.OFFSET_INDEX: all_files[0][RemoteFile.OFFSET_INDEX],
        RemoteFile.TIME_INDEX: b"",
        RemoteFile.PRODUCER_SNAPSHOT: all_files[-1][RemoteFile.PRODUCER_SNAPSHOT],
        RemoteFile.LEADER_EPOCHS: all_files[-1][RemoteFile.LEADER_EPOCHS],
    }
    aborted = b"".join(files.get(RemoteFile.TRANSACTION_INDEX, b"") for files in all_files)
    if aborted:
        files[RemoteFile.TRANSACTION_INDEX] = aborted
    segment = replace(
        first,
        segment_id=uuid.UUID(int=name),
        end_offset=last.end_offset,
        leader_epochs=epochs_within(
            parse_leader_epochs(files[RemoteFile.LEADER_EPOCHS]), first.start_offset, last.until
        ),
        size=len(files[RemoteFile.LOG]),
        max_timestamp=max(part.max_timestamp for part in parts),
        event_timestamp=last.event_timestamp + name,
    )
    return segment, files


def written(
    cluster: GoldenCluster, uploads: Sequence[Sequence[RemoteSegment]], target: Path, mode: AivenMode = AivenMode.PLAIN
) -> Path:
    for name, parts in enumerate(uploads, start=1):
        segment, files = joined(cluster, parts, name)
        write_segment(target, segment, files, mode, 2000)
    return target


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.slow if n >= 4 else []) for n in range(12)])
def test_random_uploads_are_read_as_one_log(seed: int, tmp_path: Path) -> None:
    """Every offset that any upload holds is read once, in order; what none holds is told."""
    chance = random.Random(seed)
    parts = segments_of(CLEAN, "transactions")
    uploads = []
    for _ in range(chance.randint(3, 12)):
        begin = chance.randrange(len(parts))
        uploads.append(parts[begin : begin + chance.randint(1, 5)])
    mode = chance.choice([AivenMode.PLAIN, AivenMode.ZSTD])
    root = written(CLEAN, uploads, tmp_path, mode)
    held = sorted({part.start_offset: part for upload in uploads for part in upload}.values(), key=parts.index)
    log = opened(root, topic="transactions")
    assert (log.log_start_offset, log.log_end_offset) == (held[0].start_offset, held[-1].until)
    lost: list[KafkalogError] = []
    request = ScanRequest(columns=ALL_COLUMNS)
    got = plain_rows(scan_partition(log, log.log_start_offset, log.log_end_offset, request, on_loss=lost.append))
    expected = [
        row for part in held for row in consumed(CLEAN, "transactions", start=part.start_offset, end=part.until)
    ]
    assert got == expected
    holes = sum(one.until != other.start_offset for one, other in pairwise(held))
    assert len(lost) == holes
    if not holes:
        stable = last_stable_offset(log)
        committed = rows_of(log, committed=True, end=stable)
        start = log.log_start_offset
        assert committed == consumed(CLEAN, "transactions", committed=True, start=start, end=stable)


def test_interleaved_uploads_are_detected_during_the_read(tmp_path: Path) -> None:
    parts = segments_of(LEADERS, "leaders")
    uploads = [parts[0:2], parts[1:3], *([part] for part in parts[3:])]
    root = written(LEADERS, uploads, tmp_path)
    log = opened(root, topic="leaders")
    assert isinstance(log, TieredLog)
    start = parts[4].start_offset
    assert rows_of(log, start=start) == consumed(LEADERS, "leaders", start=start, end=log.log_end_offset)
    assert log.finder.merged is None  # names told enough for these
    assert rows_of(log) == consumed(LEADERS, "leaders", end=log.log_end_offset)
    assert log.finder.merged is not None
    assert rows_of(opened(LEADERS.data, root, topic="leaders")) == consumed(LEADERS, "leaders")


@pytest.mark.parametrize("with_local", [False, True])
def test_segments_discarded_by_an_unclean_election_are_not_read(with_local: bool, tmp_path: Path) -> None:
    """A leader that lost its place had copied other records at offsets of the log, and went further than the log."""
    parts = segments_of(LEADERS, "leaders")
    root = written(LEADERS, [[part] for part in parts], tmp_path)
    live = parse_leader_epochs(files_of(LEADERS)[parts[-1].name][RemoteFile.LEADER_EPOCHS])
    for number, part in enumerate([parts[2], parts[-1]]):
        # of the first epoch alone, with the records of another segment
        own = [EpochEntry(live[0].epoch, 0)]
        files = {**files_of(LEADERS)[parts[0].name], RemoteFile.LEADER_EPOCHS: format_leader_epochs(own)}
        aside = replace(
            part,
            segment_id=uuid.UUID(int=77 + number),
            start_offset=part.start_offset + number * 5000,
            end_offset=part.end_offset + number * 5000,
            leader_epochs=(EpochEntry(live[0].epoch, part.start_offset + number * 5000),),
        )
        write_segment(root, aside, files, AivenMode.PLAIN, 2000)
    log = opened(*([LEADERS.data] if with_local else []), root, topic="leaders")
    assert rows_of(log) == consumed(LEADERS, "leaders", end=log.log_end_offset)
    assert log.log_end_offset == (1950 if with_local else parts[-1].until)
    assert isinstance(log, TieredLog)
    assert log.finder.merged is not None
    left = [left.reason for left in log.finder.merged.excluded]
    assert left
    assert set(left) == {ExclusionReason.ENDS_AFTER_EPOCH}


def test_keys_with_a_prefix_without_a_slash_are_found(tmp_path: Path) -> None:
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ZSTD, 3000, "prod-", topic="headers")
    tier = TierOptions.of({"layout": "aiven", "tiered.key.prefix": "prod-"})
    assert LogDirs.open(root, tier=tier).topics == {"headers": (0,)}
    assert LogDirs.open(root).topics == {"prod-headers": (0,)}  # as it looks to who does not know of it
    assert rows_of(opened(CLEAN.data, root, topic="headers", tier=tier)) == consumed(CLEAN, "headers")
