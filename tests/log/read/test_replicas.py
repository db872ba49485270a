"""A partition in several log directories: the copy of the highest leader epoch is read, of these the one that ends
last; directories of two clusters are told apart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, write_leader_epochs
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import NO_EPOCH, ReplicaCopy, best_copy, choose_copy
from tests.log.helpers.copies import IDS, copy_of, two_brokers
from tests.source.helpers.made_logs import numbers

TP = ("orders", 0)


def _copy(directory: str, epoch: int, log_end: int | None) -> ReplicaCopy:
    return ReplicaCopy(PartitionLocation(*TP, directory), epoch, log_end)


@pytest.mark.parametrize(
    ("copies", "wanted"),
    [
        ([("a", 3, 10), ("b", 3, 12)], "b"),
        ([("a", 3, 12), ("b", 3, 12)], "a"),
        ([("a", 3, 99), ("b", 4, 12)], "b"),  # what a has more of was given up when b became leader
        ([("a", NO_EPOCH, 99), ("b", 0, None)], "b"),
        ([("a", NO_EPOCH, 5), ("b", NO_EPOCH, 7)], "b"),
    ],
)
def test_replica_with_the_highest_epoch_then_the_largest_log_end_is_read(
    copies: list[tuple[str, int, int | None]], wanted: str
) -> None:
    assert best_copy([_copy(*copy) for copy in copies]).location.directory == wanted


def _places(*log_dirs: Path) -> LogDirs:
    return LogDirs.open(log_dirs)


@pytest.mark.local_only("counts what is opened")
def test_replica_of_an_older_epoch_is_not_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = copy_of(tmp_path / "a", *TP, numbers(0, 9), epoch=1)
    new = copy_of(tmp_path / "b", *TP, numbers(0, 5), epoch=2)
    for segment in old.glob("*.log"):
        segment.write_bytes(b"damage" * 20)
    dirs = _places(tmp_path / "a", tmp_path / "b")
    assert dirs.choose_locations([TP])[TP].directory == str(new)
    (line,) = caplog.messages
    assert line.startswith("replicas=longest: 1 partitions lie in several log directories; read are orders-0 from ")
    assert line.endswith(f" {new} (leader epoch 2), not {old} (leader epoch 1)")


def test_scan_of_log_dirs_reads_each_partition_once(tmp_path: Path) -> None:
    copy_of(tmp_path / "a", *TP, numbers(0, 5))
    copy_of(tmp_path / "b", *TP, numbers(0, 7))
    dirs = _places(tmp_path / "a", tmp_path / "b")
    assert dirs.partition(*TP).log_end_offset == 7
    assert sum(batch.num_rows for batch in dirs.scan("orders")) == 7
    assert dirs.topics == {"orders": (0,)}


@pytest.mark.local_only("a bucket has no links")
def test_same_directory_under_two_names_is_not_a_replica(tmp_path: Path) -> None:
    copy_of(tmp_path / "a", *TP, numbers(0, 5))
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert _places(tmp_path / "a", tmp_path / "link", tmp_path / "a" / "orders-0").copies == {}


@pytest.mark.local_only("messages name local paths")
def test_replica_choices_are_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for partition in range(8):
        copy_of(tmp_path / "a", "t", partition, numbers(0, 2))
        copy_of(tmp_path / "b", "t", partition, numbers(0, 3))
    dirs = _places(tmp_path / "a", tmp_path / "b")
    dirs.choose_locations(list(dirs.locations))
    (line,) = caplog.messages
    assert line.startswith("replicas=longest: 8 partitions lie in several log directories; read are t-0 from ")
    assert line.endswith("; 3 more")
    assert f"{tmp_path}/b/t-0 (no leader epoch, log end 3), not {tmp_path}/a/t-0 (no leader epoch, log end 2)" in line


@pytest.mark.local_only("messages name local paths")
def test_replicas_error_names_both_places(tmp_path: Path) -> None:
    copy_of(tmp_path / "a", *TP, numbers(0, 5))
    copy_of(tmp_path / "b", *TP, numbers(0, 5))
    dirs = _places(tmp_path / "a", tmp_path / "b")
    with pytest.raises(NotALogDirectory) as caught:
        dirs.choose_locations([TP], "error")
    assert str(caught.value).startswith(
        f"orders-0 {tmp_path}/b/orders-0: the partition lies in {tmp_path}/a/orders-0 too; one of them must be left out"
    )
    assert dirs.choose_locations([], "error") == {}


@pytest.mark.local_only("messages name local paths")
def test_topic_ids_distinguish_two_clusters(tmp_path: Path) -> None:
    copy_of(tmp_path / "a", *TP, numbers(0, 5), topic_id=IDS[0])
    copy_of(tmp_path / "b", "orders", 1, numbers(0, 5), topic_id=IDS[1])  # no copy: a partition of another topic
    dirs = _places(tmp_path / "a", tmp_path / "b")
    with pytest.raises(NotALogDirectory) as caught:
        dirs.choose_locations(list(dirs.locations))
    assert str(caught.value) == (
        f"the log directories hold different topics named orders: {tmp_path}/a/orders-0 is of topic id "
        f"AAAAAAAAAAAAAAAAAAAAAQ, {tmp_path}/b/orders-1 of topic id AAAAAAAAAAAAAAAAAAAAAg; load the directories of "
        "each cluster by themselves, and put the DataFrames together with union"
    )
    assert list(dirs.choose_locations([TP])) == [TP]  # what is not read is not judged


def test_cluster_ids_decide_where_a_partition_has_no_topic_id(tmp_path: Path) -> None:
    copy_of(tmp_path / "a", *TP, numbers(0, 5), cluster="east")
    copy_of(tmp_path / "b", *TP, numbers(0, 5), topic_id=IDS[0], cluster="west")
    dirs = _places(tmp_path / "a", tmp_path / "b")
    with pytest.raises(NotALogDirectory, match=r"orders-0 is of cluster east, .*orders-0 of cluster west"):
        dirs.choose_locations([TP])


def test_distinct_topics_of_two_clusters_are_read_together(tmp_path: Path) -> None:
    copy_of(tmp_path / "a", "east", 0, numbers(0, 5), topic_id=IDS[0], cluster="east")
    copy_of(tmp_path / "b", "west", 0, numbers(0, 5), topic_id=IDS[1], cluster="west")
    dirs = _places(tmp_path / "a", tmp_path / "b")
    assert len(dirs.choose_locations(list(dirs.locations))) == 2


def test_damaged_epoch_file_is_logged_and_counts_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = copy_of(tmp_path, *TP, numbers(0, 5), epoch=7)

    def epoch() -> int:
        choice = choose_copy([PartitionLocation(*TP, str(directory))])
        assert choice is not None
        return choice[0].epoch

    assert epoch() == 7
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\nnonsense")
    assert epoch() == NO_EPOCH
    assert "leader epochs not used: " in caplog.text


def test_check_of_several_brokers_directories_at_once_is_refused(tmp_path: Path) -> None:
    brokers = two_brokers(tmp_path)
    with pytest.raises(NotALogDirectory, match="one of them must be left out"):
        check_log_dirs(brokers)


@pytest.mark.parametrize(("epochs", "opened"), [([3, 4, 1], []), ([4, 3, 4], ["0", "2"])])
def test_log_ends_are_found_only_if_epochs_do_not_decide(
    epochs: list[int], opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []

    def open_counted(place: PartitionLocation, **_: object) -> SimpleNamespace:
        looked_at.append(Path(place.directory).parent.name)
        return SimpleNamespace(log_end_offset=7)

    monkeypatch.setattr(PartitionLocation, "open", open_counted)
    places = []
    for number, epoch in enumerate(epochs):
        directory = tmp_path / str(number) / "orders-0"
        directory.mkdir(parents=True)
        write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, [EpochEntry(epoch, 0)])
        places.append(PartitionLocation(*TP, str(directory)))
    chosen = choose_copy(places)
    assert chosen is not None
    assert chosen[0].epoch == 4
    assert looked_at == opened
