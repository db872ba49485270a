"""Golden tiers read as a table: every record equal to what Kafka's own consumers returned."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog_spark.errors import CorruptChunk, DataLoss, KafkalogError, UnsupportedFormat
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.read.timestamp_search import offset_for_timestamp
from kafkalog_spark.log.remote import remote_segment_file
from kafkalog_spark.log.remote.tiered_log import TieredLog
from kafkalog_spark.log.tiered.manifest import parse_manifest
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, remote_key
from kafkalog_spark.log.tiered.tier_options import DEFAULT_TIER_OPTIONS
from kafkalog_spark.store.interface import FileFacts, OpenFile
from kafkalog_spark.store.local_store import LocalFile, LocalStore
from tests.log.helpers.plain_decoder import decode_batches
from tests.log.helpers.rows import plain_rows
from tests.log.tiered.aiven_writer import AivenMode
from tests.log.tiered.golden_tiered import CLEAN, CLUSTERS, KILLED, LEADERS, GoldenCluster
from tests.log.tiered.reading import WITH_KEY, aiven_tree, consumed, opened, readable, rows_of

partitions = pytest.mark.parametrize(
    ("cluster", "topic", "partition"),
    [(cluster, *place) for cluster in CLUSTERS for place in cluster.partitions()],
    ids=lambda value: value.name if isinstance(value, GoldenCluster) else str(value),
)
isolation_levels = pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])


@partitions
@isolation_levels
def test_local_and_remote_segments_are_read_as_one_log(
    cluster: GoldenCluster, topic: str, partition: int, committed: bool
) -> None:
    log = opened(cluster.data, cluster.remote, topic=topic, partition=partition)
    said = cluster.said(topic, partition)
    assert (log.log_start_offset, log.log_end_offset) == (said["log_start_offset"], said["high_watermark"])
    assert last_stable_offset(log) == said["last_stable_offset"]
    assert rows_of(log, committed=committed) == consumed(cluster, topic, partition, committed=committed)


@partitions
def test_order_of_the_paths_does_not_matter(cluster: GoldenCluster, topic: str, partition: int) -> None:
    log = opened(cluster.remote.parent, cluster.data, topic=topic, partition=partition)
    assert rows_of(log) == consumed(cluster, topic, partition)


@isolation_levels
@pytest.mark.parametrize("layout", ["local-tiered", "aiven"])
@partitions
def test_tier_without_a_log_directory_is_read(
    cluster: GoldenCluster, topic: str, partition: int, layout: str, committed: bool, tmp_path: Path
) -> None:
    """Without a log directory: what was copied. What the log begins with by now, only that one knows."""
    if topic == "empty":
        return
    root = cluster.remote if layout == "local-tiered" else aiven_tree(cluster, tmp_path, AivenMode.PLAIN, 4096)
    log = opened(root, topic=topic, partition=partition)
    living = cluster.topic_id(topic, partition)
    copied = [s for s in readable(cluster) if s.partition == (topic, living, partition)]
    assert (log.log_start_offset, log.log_end_offset) == (
        min(segment.start_offset for segment in copied),
        max(segment.until for segment in copied),
    )
    start, end = cluster.said(topic, partition)["log_start_offset"], log.log_end_offset
    if committed:
        end = last_stable_offset(log)
    got = [row for row in rows_of(log, committed=committed) if row["offset"] >= start]
    assert got == consumed(cluster, topic, partition, committed=committed, end=end)


def test_tier_alone_uses_the_last_stable_offset_of_its_last_snapshot() -> None:
    """Segments are copied when their transactions have ended, but a marker may lie after the last one that was: what
    became of such a transaction is not in the tier. Its records are held back, as those of an open one are."""
    log = opened(CLEAN.remote, topic="transactions")
    stable = last_stable_offset(log)
    assert 2000 < stable < log.log_end_offset
    undecided = consumed(CLEAN, "transactions", start=stable, end=log.log_end_offset)
    decided = consumed(CLEAN, "transactions", start=stable, end=log.log_end_offset, committed=True)
    assert len(decided) < len(undecided)


CHUNKS = ("a byte less than a batch", "a batch", "1 MiB", "more than the file")


def _when(mode: AivenMode, chunk: str) -> list[pytest.MarkDecorator]:
    """Each mode with chunks that cut batches, each size with everything done to them; the others when there is time."""
    return [] if chunk == CHUNKS[0] or mode is AivenMode.ZSTD_ENCRYPTED else [pytest.mark.slow]


@pytest.mark.parametrize(
    ("mode", "chunk"), [pytest.param(mode, chunk, marks=_when(mode, chunk)) for mode in AivenMode for chunk in CHUNKS]
)
def test_aiven_chunks_of_any_size_are_read(mode: AivenMode, chunk: str, tmp_path: Path) -> None:
    first = CLEAN.remote / remote_key(Layout.LOCAL_TIERED, readable(CLEAN)[0], RemoteFile.LOG)
    batch = 12 + int.from_bytes(first.read_bytes()[8:12], "big")
    sizes = {"a byte less than a batch": batch - 1, "a batch": batch, "1 MiB": 1 << 20, "more than the file": 1 << 30}
    root = aiven_tree(CLEAN, tmp_path, mode, sizes[chunk])
    dirs = LogDirs.open(root)  # no key is needed to list
    assert set(dirs.topics) == {topic for topic, _ in CLEAN.partitions()} - {"empty"}
    for topic in ("codecs", "transactions"):
        for committed in (False, True):
            log = opened(CLEAN.data, root, topic=topic)
            assert rows_of(log, committed=committed) == consumed(CLEAN, topic, committed=committed)
            parts = log._parts if isinstance(log, TieredLog) else []
            assert any(part.stored is not None for part in parts)


@isolation_levels
def test_any_range_of_a_tiered_log_is_read(committed: bool, tmp_path: Path) -> None:
    """Transactions of a range may end after it, and in another segment, also in the local one."""
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ZSTD_ENCRYPTED, 3000, topic="transactions")
    log = opened(CLEAN.data, root, topic="transactions")
    stable = last_stable_offset(log)
    for start in range(0, stable, 193):
        for size in (1, 60, 700):
            end = min(start + size, stable)
            got = rows_of(log, committed=committed, start=start, end=end)
            assert got == consumed(CLEAN, "transactions", committed=committed, start=start, end=end)


def test_records_below_the_logs_start_are_not_read() -> None:
    log = opened(CLEAN.data, CLEAN.remote, topic="deleted-prefix")
    segments = [segment for segment in readable(CLEAN) if segment.partition.topic == "deleted-prefix"]
    assert any(segment.start_offset < log.log_start_offset < segment.end_offset for segment in segments)
    assert rows_of(log)[0]["offset"] == log.log_start_offset == 375


def test_recreated_topic_has_no_record_of_the_old_one() -> None:
    dirs = LogDirs.open([CLEAN.remote])
    assert len(dirs.locations["recreated", 0].remote) == 2  # type: ignore[attr-defined]
    for roots in ([CLEAN.remote], [CLEAN.data, CLEAN.remote]):
        assert rows_of(opened(*roots, topic="recreated")) == consumed(CLEAN, "recreated")


def test_incomplete_copy_is_not_read(tmp_path: Path) -> None:
    log = opened(KILLED.remote, topic="killed")
    whole = [segment for segment in readable(KILLED) if segment.partition.topic == "killed"]
    assert log.log_end_offset == max(segment.until for segment in whole)
    assert len(list(KILLED.remote.rglob("*.log"))) > len(whole)
    # Aiven's plugin writes the manifest last
    root = aiven_tree(KILLED, tmp_path, AivenMode.PLAIN, 1 << 20)
    sorted(root.rglob("*.rsm-manifest"))[-1].unlink()
    assert opened(root, topic="killed").log_end_offset == max(whole, key=lambda one: one.until).start_offset


def test_metadata_topic_decides_which_segments_are_read(tmp_path: Path) -> None:
    """A copy that looks whole, of which the topic says that it was not finished."""
    data, remote = tmp_path / "data", tmp_path / "remote"
    shutil.copytree(KILLED.data, data)
    shutil.copytree(KILLED.remote, remote)
    (unfinished,) = [path for path in remote.rglob("*.log") if not path.with_suffix(".snapshot").exists()]
    local = data / "killed-0"
    begin = int(unfinished.name[:20])
    end = min(base for base in (int(path.name[:20]) for path in local.glob("*.log")) if base > begin)
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copyfile(local / f"{begin:020d}{suffix}", unfinished.with_suffix(suffix))
    shutil.copyfile(local / "leader-epoch-checkpoint", unfinished.with_suffix(".leader_epoch_checkpoint"))
    shutil.copyfile(local / f"{end:020d}.snapshot", unfinished.with_suffix(".snapshot"))
    shutil.rmtree(local)
    assert opened(data, remote, topic="killed").log_end_offset == begin
    assert opened(remote, topic="killed").log_end_offset == end


def test_segments_unknown_to_the_metadata_topic_are_read(tmp_path: Path) -> None:
    """It may be an older copy than the tier."""
    data = tmp_path / "data"
    shutil.copytree(CLEAN.data, data, ignore=lambda _, names: [name for name in names if name == "plain-0"])
    for path in data.glob("__remote_log_metadata-*/*.log"):
        path.write_bytes(b"")
    assert rows_of(opened(data, CLEAN.remote, topic="plain")) == consumed(CLEAN, "plain")


def test_segments_of_alternating_leaders_are_one_log() -> None:
    log = opened(LEADERS.data, LEADERS.remote, topic="leaders")
    assert rows_of(log) == consumed(LEADERS, "leaders")
    assert isinstance(log, TieredLog)
    assert log.finder.merged is None  # Kafka 4.3 went on where the leader before had come to: names tell all
    assert len(log.segments) > 4


def test_local_records_are_not_fetched_remotely(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def open_counted(self: LocalStore, path: str, facts: FileFacts | None = None) -> OpenFile:
        asked.append(path)
        return LocalFile(path)

    monkeypatch.setattr(LocalStore, "open", open_counted)
    log = opened(CLEAN.data, CLEAN.remote, topic="overlap", tier=DEFAULT_TIER_OPTIONS)
    assert rows_of(log) == consumed(CLEAN, "overlap")
    assert asked
    assert not [path for path in asked if path.startswith(str(CLEAN.remote))]


def test_authoritative_local_replica_is_merged_with_the_tier(tmp_path: Path) -> None:
    """A follower that lags, and whose log begins elsewhere: what it lacks is not looked for remotely."""
    lagging = tmp_path / "lagging"
    shutil.copytree(CLEAN.data, lagging)
    last = sorted((lagging / "overlap-0").glob("*.log"))[-1]
    last.write_bytes(b"")
    for roots in ([lagging, CLEAN.data, CLEAN.remote], [CLEAN.remote, CLEAN.data, lagging]):
        assert rows_of(opened(*roots, topic="overlap")) == consumed(CLEAN, "overlap")
        assert rows_of(opened(*roots, topic="transactions")) == consumed(CLEAN, "transactions")


def test_remote_retention_after_listing_moves_the_log_start_and_reports_data_loss(tmp_path: Path) -> None:
    """Segments deleted after they were listed: records from there on, and the loss is told where it was asked for."""
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ZSTD, 2000, topic="plain")
    log = opened(root, topic="plain")
    starts = [segment.base_offset for segment in log.segments]
    for path in Path(log.directory).iterdir():
        if int(path.name[:20]) < starts[3]:
            path.unlink()
    with pytest.raises(DataLoss, match=rf"records in \[0, {starts[3]}\) are gone"):
        rows_of(log, start=0, end=log.log_end_offset)
    assert log.log_start_offset == starts[3]
    assert rows_of(log) == consumed(CLEAN, "plain", start=starts[3], end=log.log_end_offset)
    for path in Path(log.directory).iterdir():
        path.unlink()
    Path(log.directory).rmdir()
    log.refresh()
    assert (log.is_deleted, log.segments) == (True, [])


def test_deleted_remote_segment_is_data_loss(tmp_path: Path) -> None:
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ZSTD, 2000, topic="plain")
    log = opened(root, topic="plain")
    logs = sorted((root / log.directory).glob("*.log")) or sorted(Path(log.directory).glob("*.log"))
    gone = logs[2]  # its manifest stays, as the plugin may leave it for a while
    begin, end = int(gone.name[:20]), int(logs[3].name[:20])
    gone.unlink()
    with pytest.raises(DataLoss, match=rf"records in \[{begin}, {end}\) are gone"):
        rows_of(log, start=0, end=900)
    told: list[KafkalogError] = []
    log = opened(root, topic="plain")
    rows = plain_rows(scan_partition(log, 0, log.log_end_offset, ScanRequest(columns=("offset",)), on_loss=told.append))
    assert [row["offset"] for row in rows] == [*range(begin), *range(end, log.log_end_offset)]
    assert len(told) == 1


@pytest.mark.parametrize("mode", [AivenMode.ZSTD, AivenMode.ZSTD_ENCRYPTED])
def test_damaged_chunk_is_named_or_skipped(mode: AivenMode, tmp_path: Path) -> None:
    """Batches straddle chunks: those that have a byte in the damaged one are gone, and no other."""
    root = aiven_tree(CLEAN, tmp_path, mode, 2000, topic="headers")
    path = sorted(root.rglob("*.log"))[1]
    manifest = parse_manifest(path.with_suffix(".rsm-manifest").read_bytes())
    chunk = manifest.chunks.chunk(1)
    data = bytearray(path.read_bytes())
    data[chunk.position : chunk.position + 2] = b"\xee\xee"
    path.write_bytes(data)
    with pytest.raises(CorruptChunk, match=rf"headers-0 {path} at byte {chunk.position}: chunk 1: "):
        rows_of(opened(root, topic="headers"))
    assert manifest.segment is not None
    log = remote_key(Layout.LOCAL_TIERED, manifest.segment, RemoteFile.LOG)
    batches = decode_batches((CLEAN.remote / log).read_bytes())
    first, last = chunk.original_position, chunk.original_position + chunk.original_size
    gone = {
        record.offset
        for batch in batches
        if batch.position < last and batch.position + batch.size > first
        for record in batch.records
    }
    assert gone
    dirs = LogDirs.open(root, tier=WITH_KEY)
    request = ScanRequest(columns=("offset",), drop_malformed=True)
    left = [offset for batch in dirs.scan("headers", request) for offset in batch.column(0).to_pylist()]
    end = opened(root, topic="headers").log_end_offset
    assert left == [offset for offset in range(end) if offset not in gone]


@pytest.mark.parametrize("layout", ["local-tiered", "aiven"])
def test_offset_for_timestamp_is_found_in_a_tiered_log(layout: str, tmp_path: Path) -> None:
    root = CLEAN.remote if layout == "local-tiered" else aiven_tree(CLEAN, tmp_path, AivenMode.ZSTD, 5000)
    log = opened(CLEAN.data, root, topic="plain")
    rows = CLEAN.records("plain", 0)
    largest = max(row["timestamp"] for row in rows)
    for wanted in [*(row["timestamp"] for row in rows[::50]), rows[0]["timestamp"] - 9, largest, largest + 1]:
        found = next((row["offset"] for row in rows if row["timestamp"] >= wanted), None)
        assert offset_for_timestamp(log, wanted) == found


@pytest.mark.local_only("writes its own tier")
@pytest.mark.parametrize("mode", [AivenMode.ZSTD, AivenMode.ENCRYPTED])
def test_oversized_chunks_are_refused(mode: AivenMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = aiven_tree(CLEAN, tmp_path, mode, 1 << 30, topic="plain")
    largest = max(segment.size for segment in readable(CLEAN) if segment.partition.topic == "plain")
    assert rows_of(opened(root, topic="plain"))  # a small segment is one small chunk, whatever chunk.size is
    monkeypatch.setattr(remote_segment_file, "MAX_CHUNK_SIZE", largest // 2)
    with pytest.raises(UnsupportedFormat, match="originalChunkSize 1073741824") as raised:
        rows_of(opened(root, topic="plain"))
    assert (raised.value.topic_partition, str(raised.value.path)[-13:]) == ("plain-0", ".rsm-manifest")
