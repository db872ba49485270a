"""`__remote_log_metadata` made again from a tier: what it says is what Kafka's own said of the same segments."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog_spark.cli.repair import main
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.format.partition_metadata import read_partition_metadata
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.tiered.metadata_partitioner import metadata_partition
from kafkalog_spark.log.tiered.remote_log_events import SegmentEvent, decode_event
from kafkalog_spark.log.tiered.remote_log_state import RemoteLogState
from tests.log.helpers.plain_decoder import decode_log
from tests.log.helpers.sync_watch import SyncWatch
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode
from tests.log.tiered.golden_tiered import CLEAN, CLUSTERS, GoldenCluster
from tests.log.tiered.reading import aiven_tree, consumed, opened, readable, rows_of

clusters = pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.name)


def state_in(log_dir: Path, partitions: int) -> RemoteLogState:
    """What the topic says, each event in the partition where a broker looks for it."""
    directories = sorted(log_dir.glob(f"{REMOTE_LOG_METADATA_TOPIC}-*"))
    assert len(directories) == partitions
    topic_ids = [read_partition_metadata(one / "partition.metadata") for one in directories]
    assert len({found for found in topic_ids if found is not None}) == 1
    state = RemoteLogState()
    for directory in directories:
        for batch in decode_log(directory / "00000000000000000000.log"):
            for record in batch.records:
                event = decode_event(record.value or b"")
                partition = event.segment.partition if isinstance(event, SegmentEvent) else event.partition
                assert metadata_partition(partition, partitions) == int(directory.name.rpartition("-")[2])
                state.apply(event)
    assert state.invalid_transitions == 0
    return state


@clusters
def test_rebuilt_events_are_in_kafkas_partitions(cluster: GoldenCluster) -> None:
    for (number, _), value in cluster.event_values().items():
        event = decode_event(value)
        partition = event.segment.partition if isinstance(event, SegmentEvent) else event.partition
        assert metadata_partition(partition, 3) == number


@clusters
@pytest.mark.parametrize("partitions", [1, 7, 50])
def test_state_rebuilt_from_manifests_equals_the_topics(
    cluster: GoldenCluster, partitions: int, tmp_path: Path
) -> None:
    tree = aiven_tree(cluster, tmp_path / "tier", AivenMode.ZSTD_ENCRYPTED, 3000, "p-")
    key = f"tiered.encryption.key.{KEY_ID}={KEYS / 'one.pem'}"
    made = [str(tree), "--from-tier", "--to", str(tmp_path / "made"), "--partitions", str(partitions)]
    assert main([*made, "--option", "tiered.key.prefix=p-", "--option", key]) == 0
    expected = {one.segment_id: replace(one, custom_metadata=None) for one in readable(cluster)}
    found = state_in(tmp_path / "made", partitions)
    assert {segment.segment_id: segment for segment, _ in found.segments.values()} == expected
    assert not check_log_dirs([tmp_path / "made"]).findings.kept


def test_state_rebuilt_from_local_tiered_storage_equals_the_topics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(CLEAN.remote), "--from-tier", "--json", "--to", str(tmp_path / "made"), "--partitions", "3"]) == 0
    found = {segment.segment_id: segment for segment, _ in state_in(tmp_path / "made", 3).segments.values()}
    for segment in readable(CLEAN):
        same = found[segment.segment_id]
        assert (same.start_offset, same.end_offset, same.size) == (
            segment.start_offset, segment.end_offset, segment.size,
        )  # fmt: skip
        assert same.leader_epochs == segment.leader_epochs
        assert not same.transaction_index_empty  # a .txnindex that is not there may be lost
    shown = json.loads(capsys.readouterr().out)
    assert sum(len(one["segments"]) for one in shown["partitions"]) == len(found)
    # a reader that is given the topic reads what it read before
    log = opened(tmp_path / "made", CLEAN.remote, topic="transactions")
    assert rows_of(log) == consumed(CLEAN, "transactions", end=log.log_end_offset)


def test_unreadable_segment_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = aiven_tree(CLEAN, tmp_path / "tier", AivenMode.PLAIN, 3000, topic="plain")
    damaged = next(tree.rglob("*.rsm-manifest"))
    damaged.write_text("{")
    assert main([str(tree), "--from-tier", "--to", str(tmp_path / "made")]) == 1
    out = capsys.readouterr().out
    assert re.search(rf"left out: \S*/{re.escape(damaged.with_suffix('.log').name)}: ", out)  # a path, or a URL
    plain = [one for one in readable(CLEAN) if one.partition.topic == "plain"]
    assert len(state_in(tmp_path / "made", 50).segments) == len(plain) - 1


@pytest.mark.parametrize("what", ["no tier", "not empty"])
def test_rebuild_into_a_wrong_target_is_refused(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = CLEAN.data if what == "no tier" else CLEAN.remote
    (tmp_path / "made").mkdir()
    if what == "not empty":
        (tmp_path / "made" / "file").touch()
    assert main([str(source), "--from-tier", "--to", str(tmp_path / "made")]) == 2
    assert {"no tier": "holds no segments", "not empty": "is not empty"}[what] in capsys.readouterr().err


def test_rebuilt_metadata_topic_is_synced_with_all_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = aiven_tree(CLEAN, tmp_path / "tier", AivenMode.PLAIN, 3000)
    watch = SyncWatch(monkeypatch)
    assert main([str(tree), "--from-tier", "--to", str(tmp_path / "a" / "new")]) == 0
    assert watch.unsynced(tmp_path / "a") == []
    assert watch.is_synced(tmp_path)


def test_tier_without_a_complete_segment_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = aiven_tree(CLEAN, tmp_path / "tier", AivenMode.PLAIN, 3000, topic="plain")
    for manifest in tree.rglob("*.rsm-manifest"):
        manifest.unlink()
    assert main([str(tree), "--from-tier", "--to", str(tmp_path / "made")]) == 1
    assert capsys.readouterr().out == "no complete segment is in the 2 directories of partitions there\n"
