"""Starts of the log manager over clean and crashed log directories, and over those of a real Kafka."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalog_broker.storage import log_manager, log_table, partition_dirs
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_broker.storage.topic_registry_file import TOPICS_FILE
from kafkalog_spark.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from kafkalog_spark.format.partition_metadata import read_partition_metadata
from tests.broker.storage.helpers.managed_logs import (
    HIGH,
    MARKER,
    RECOVERY,
    START,
    content,
    killed,
    offsets_of,
    refused,
    started,
)
from tests.broker.storage.helpers.one_topic import OneTopicRegistry


def topic_id_in(directory):
    topic_id = read_partition_metadata(directory / "partition.metadata")
    assert topic_id is not None
    return topic_id


def test_log_manager_after_a_clean_restart_has_all_records_and_opens_logs_lazily(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.append(count=3)
    broker.append(partition=1)
    before = content(broker)
    broker.logs.shutdown()
    assert (tmp_path / MARKER).read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    assert read_offset_checkpoint(tmp_path / RECOVERY) == {("orders", 0): 3, ("orders", 1): 1}
    assert read_offset_checkpoint(tmp_path / HIGH) == {("orders", 0): 3, ("orders", 1): 1}

    again = started(tmp_path)
    assert not (tmp_path / MARKER).exists()
    assert list(again.logs.logs()) == []  # opened when they are asked for
    assert again.logs.is_online("orders", 0)
    assert content(again) == before
    assert offsets_of(again, partition=1) == (0, 1)
    assert again.logs.get("orders", 2) is None
    again.append()
    again.logs.shutdown()
    again.logs.shutdown()  # twice is harmless


def test_unused_logs_after_a_restart_keep_their_files_unchanged(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.append(count=3)
    broker.logs.shutdown()
    files = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    again = started(tmp_path)
    again.tick(300_000)  # retention, checkpoints
    again.logs.shutdown()
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == files


def test_log_opened_by_two_threads_at_once_is_loaded_once(tmp_path, monkeypatch):
    """A coordinator reads its partition in a thread while the cleaner has the owner open it. Two objects of one log
    would not know of each other's appends and replaced segments."""
    broker = started(tmp_path)
    broker.create("orders")
    broker.logs.shutdown()
    again = started(tmp_path)
    loads: list[LoadRequest] = []
    is_loading, is_loading_twice, go_on = threading.Event(), threading.Event(), threading.Event()

    def slow_load(request, on_bytes=None):
        loads.append(request)
        (is_loading_twice if is_loading.is_set() else is_loading).set()
        assert go_on.wait(60)
        return load_log(request, on_bytes)

    monkeypatch.setattr(log_table, "load_log", slow_load)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(again.logs.get, "orders", 0)
        assert is_loading.wait(60)
        two = pool.submit(again.logs.get, "orders", 0)
        is_loading_twice.wait(0.2)
        go_on.set()
        assert one.result() is two.result() is not None
    assert len(loads) == 1
    again.logs.shutdown()


def test_start_after_a_crash_recovers_all_logs_and_reports_progress(tmp_path, caplog):
    broker = started(tmp_path / "a")
    broker.create("orders", 3)
    for partition in range(3):
        broker.append(partition=partition, count=partition + 1)
    before = [content(broker, partition=partition) for partition in range(3)]
    crashed = killed(tmp_path / "a", tmp_path / "b")
    progress: list = []
    with caplog.at_level(logging.WARNING):
        again = started(crashed, progress=progress.append)
    assert "was not shut down cleanly" in caplog.text
    assert [content(again, partition=partition) for partition in range(3)] == before
    assert progress[-1] == (3, 3, sum(map(len, before)), sum(map(len, before)))
    assert [step.bytes_done for step in progress] == sorted(step.bytes_done for step in progress)
    again.logs.shutdown()
    broker.logs.shutdown()


def test_shutdown_during_recovery_writes_no_clean_shutdown_marker(tmp_path):
    broker = started(tmp_path)
    broker.create("orders")
    broker.append()
    broker.crash()

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        started(tmp_path, progress=stop)
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_recovery_of_a_log_cut_at_any_byte_keeps_whole_batches_and_producer_sequences(tmp_path, stride):
    broker = started(tmp_path / "a", properties={"log.index.interval.bytes": 0})
    broker.create("orders")
    sizes = []
    for count in (1, 2, 3):
        broker.append(count=count, producer_id=7, producer_epoch=0, base_sequence=sum(range(count)))
        sizes.append(broker.log().size_bytes)
    path = f"orders-0/{0:020d}.log"
    for cut in {*range(0, sizes[-1], stride), *sizes}:
        crashed = killed(tmp_path / "a", tmp_path / "b")
        os.truncate(crashed / path, cut)
        again = started(crashed)
        whole = sum(size <= cut for size in sizes)
        assert offsets_of(again) == (0, (0, 1, 3, 6)[whole])
        # The producer goes on where the log ends, and a batch that is there already is a duplicate.
        sent = {"producer_id": 7, "producer_epoch": 0}
        if whole:
            assert again.append(count=1, base_sequence=0, **sent).is_duplicate
        for count in (1, 2, 3)[whole:]:
            assert not again.append(count=count, base_sequence=sum(range(count)), **sent).is_duplicate
        assert content(again) == content(broker)
        again.logs.shutdown()
        shutil.rmtree(crashed)
    broker.logs.shutdown()


def test_start_after_a_crash_at_each_step_of_topic_creation_and_deletion_is_consistent(tmp_path):
    """The steps between changes of the registry, the directories and the checkpoints."""
    broker = started(tmp_path / "a")
    steps = [
        lambda: broker.topics.create("orders", 2),
        lambda: broker.create_logs(broker.topic()),
        lambda: broker.append(count=4),
        lambda: broker.tick(60_000),
        lambda: broker.topics.add_partitions("orders", 3),
        lambda: broker.create_logs(broker.topic()),
        lambda: broker.log().delete_records(2),
        lambda: broker.tick(60_000),
        lambda: broker.topics.delete("orders"),
        lambda: broker.logs.detach([("orders", 0)]).finish(),
        lambda: broker.topics.create("orders", 1),
        lambda: broker.logs.detach([("orders", 1)]).finish(),
    ]
    expected = {0: (0, 0), 1: (0, 0), 2: (0, 4), 3: (0, 4), 4: (0, 4), 5: (0, 4), 6: (0, 4), 7: (2, 4)}
    for number, step in enumerate(steps):
        step()
        again = started(killed(tmp_path / "a", tmp_path / f"b{number}"))
        if number in expected:
            assert offsets_of(again) == expected[number]
            assert len(again.logs.partitions("orders")) == (2 if number < 4 else 3)
        elif number < 10:
            assert again.topics.get("orders") is None
            assert again.logs.partitions() == []
        else:
            assert offsets_of(again) == (0, 0)
            assert again.logs.partitions() == [("orders", 0)]
        again.logs.shutdown()


def test_recreated_topic_after_a_crash_does_not_inherit_the_log_start_offset(tmp_path):
    """The old log start offset is above the new log end, so recovery would delete all records of the new topic."""
    broker = started(tmp_path / "a")
    topic = broker.create("orders")
    broker.append(count=9)
    broker.log().delete_records(5)
    broker.tick(60_000)
    assert read_offset_checkpoint(tmp_path / "a" / START) == {("orders", 0): 5}
    broker.topics.delete("orders")
    broker.logs.detach_topic(topic).finish()
    broker.create("orders")
    broker.append(count=2)
    again = started(killed(tmp_path / "a", tmp_path / "b"))
    assert offsets_of(again) == (0, 2)


def test_delayed_checkpoint_after_topic_recreation_omits_the_deleted_topics_offsets(tmp_path):
    waiting: list = []
    broker = started(tmp_path, options={"run_blocking": waiting.append})
    topic = broker.create("orders")
    broker.append(count=9)
    broker.log().delete_records(5)
    broker.tick(60_000)
    broker.topics.delete("orders")
    broker.logs.detach_topic(topic).finish()
    broker.create("orders")
    for work in waiting:
        work()
    assert read_offset_checkpoint(tmp_path / START) == {}
    assert read_offset_checkpoint(tmp_path / RECOVERY) == {}


def test_kafka_log_directory_after_a_clean_shutdown_is_served_unchanged(golden_copy, golden, caplog):
    directory = golden_copy()
    with caplog.at_level(logging.WARNING):
        broker = started(directory)
    assert "their configuration overrides are unknown" in caplog.text.replace("\n", " ")
    for (topic, partition), end in read_offset_checkpoint(golden / RECOVERY).items():
        log = broker.log(topic, partition)
        assert log.log_end_offset == end
        assert log.topic_id == broker.topic(topic).id
        assert log.topic_id == topic_id_in(golden / f"{topic}-{partition}")
    assert broker.log("deleted-prefix", 0).log_start_offset == 1537
    assert broker.topic("segments").partitions == 3
    assert broker.topic("compacted").configs["cleanup.policy"] == "compact"
    assert broker.topic("__consumer_offsets").configs["cleanup.policy"] == "compact"
    broker.tick(10**12)  # decades later: nothing of it is deleted
    assert offsets_of(broker, "segments", 0) == (0, 6000)
    broker.logs.shutdown()
    for path in golden.rglob("*.log"):
        assert (directory / path.relative_to(golden)).read_bytes() == path.read_bytes()


def test_kafka_log_directory_after_a_crash_is_recovered_to_the_same_log_end_offsets(golden_copy, golden):
    broker = started(golden_copy(crashed=True))
    found = {key: broker.log(*key).log_end_offset for key in broker.logs.partitions()}
    ends = read_offset_checkpoint(golden / RECOVERY)
    assert len(found) == 5
    assert found.pop(("segments", 0)) == 0  # not in the copy that was kept: an empty one is made
    assert found == {key: ends[key] for key in found}
    broker.logs.shutdown()


def test_start_with_a_damaged_topic_registry_restores_topics_from_partition_directories(tmp_path, caplog):
    broker = started(tmp_path)
    topic = broker.create("orders", 2, retention_ms=1)
    broker.append(count=3)
    broker.logs.shutdown()
    (tmp_path / TOPICS_FILE).write_bytes(b"{")
    with caplog.at_level(logging.WARNING):
        again = started(tmp_path)
    assert again.topic("orders").id == topic.id
    assert again.topic("orders").partitions == 2
    assert again.topic("orders").configs == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert offsets_of(again) == (0, 3)
    again.logs.shutdown()


def test_start_with_a_missing_or_empty_partition_metadata_writes_the_topic_id_again(tmp_path):
    broker = started(tmp_path)
    topic = broker.create("orders", 2)
    broker.logs.shutdown()
    (tmp_path / "orders-0" / "partition.metadata").unlink()
    (tmp_path / "orders-1" / "partition.metadata").write_bytes(b"")
    again = started(tmp_path)
    for partition in range(2):
        assert topic_id_in(tmp_path / f"orders-{partition}") == topic.id
    again.logs.shutdown()


def test_start_leaves_stray_future_and_foreign_directories_and_logs_those_not_served(tmp_path, caplog):
    broker = started(tmp_path)
    broker.create("orders")
    broker.logs.shutdown()
    left = ["orders-0.abc-future", "orders-1.abc-stray", "notes", "__cluster_metadata-0", "orders-7"]
    for name in left:
        (tmp_path / name).mkdir()
    other = f"version: 0\ntopic_id: {'A' * 21}Q"
    (tmp_path / "orders-7" / "partition.metadata").write_text(other)
    (tmp_path / "old-0.abc-delete").mkdir()
    with caplog.at_level(logging.WARNING):
        again = started(tmp_path)
    assert again.logs.partitions() == [("orders", 0)]
    for name in (left[0], left[1], left[4]):
        assert f"{tmp_path / name} is not served" in caplog.text
    again.tick()
    assert all((tmp_path / name).is_dir() for name in left)
    assert not (tmp_path / "old-0.abc-delete").exists()
    again.logs.shutdown()


def test_start_with_a_partition_in_two_log_directories_keeps_only_that_partition_offline(tmp_path):
    broker = started(tmp_path / "a")
    broker.create("orders", 2)
    broker.logs.shutdown()
    started(tmp_path / "b").logs.shutdown()
    shutil.copytree(tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0")
    os.remove(tmp_path / "b" / "meta.properties")
    again = started(tmp_path / "a", tmp_path / "b")
    assert "it exists in" in refused("kafka_storage_error", again.log)
    assert again.append("orders", 1).last_offset == 0
    again.logs.shutdown()


def test_start_with_permission_denied_keeps_only_those_partitions_offline(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders", 3)
    broker.logs.shutdown()

    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def read_metadata(path, read=read_partition_metadata):
        return denied(path) if path.parent.name == "orders-0" else read(path)

    def load(request, on_bytes, load=load_log):
        return denied(request.directory) if request.directory.name == "orders-1" else load(request, on_bytes)

    monkeypatch.setattr(partition_dirs, "read_partition_metadata", read_metadata)
    monkeypatch.setattr(log_table, "load_log", load)
    again = started(tmp_path)
    for partition in (0, 1):
        assert "Permission denied" in refused("kafka_storage_error", again.log, "orders", partition)
        assert not again.logs.is_online("orders", partition)
    assert again.append("orders", 2).last_offset == 0
    again.logs.shutdown()


def test_missing_partitions_beyond_the_start_limit_are_offline(tmp_path, monkeypatch):
    monkeypatch.setattr(log_manager, "MAX_CREATED_AT_START", 2)
    broker = started(tmp_path)
    broker.topics.create("orders", 4)
    broker.logs.shutdown()
    again = started(tmp_path)
    assert again.logs.partitions("orders") == [("orders", 0), ("orders", 1)]
    assert "a start creates only 2 missing partitions" in refused("kafka_storage_error", again.log, "orders", 3)
    again.logs.shutdown()


def test_damaged_log_is_offline_and_shutdown_writes_no_clean_shutdown_marker(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.append(count=3)
    broker.logs.shutdown()
    (tmp_path / "orders-0" / f"{0:020d}.index").unlink()
    with open(tmp_path / "orders-0" / f"{0:020d}.log", "r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    again = started(tmp_path)
    assert "CRC-32C" in refused("kafka_storage_error", again.logs.get, "orders", 0)
    assert not again.logs.is_online("orders", 0)
    again.append(partition=1)
    again.logs.shutdown()
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_start_with_many_partitions_opens_no_log_files(tmp_path, count):
    broker = started(tmp_path)
    broker.create("orders")
    broker.append(count=3)
    broker.logs.shutdown()
    topics = OneTopicRegistry(started_dirs(tmp_path))
    topics.load()
    topics.add_partitions("orders", count)
    for partition in range(1, count):
        shutil.copytree(tmp_path / "orders-0", tmp_path / f"orders-{partition}")
    write_offset_checkpoint(tmp_path / RECOVERY, {("orders", partition): 3 for partition in range(count)})
    before = len(os.listdir("/proc/self/fd"))
    again = started(tmp_path)
    assert len(again.logs.partitions("orders")) == count
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the lock
    assert list(again.logs.logs()) == []
    assert offsets_of(again, partition=count - 1) == (0, 3)
    again.logs.shutdown()


def started_dirs(path):
    from kafkalog_broker.storage.log_directory import LogDirectory

    return [LogDirectory(path, "id")]


def test_recovered_log_after_a_clean_shutdown_needs_no_further_recovery(tmp_path):
    """The loader accepts all files that recovery and a clean shutdown have written."""
    broker = started(tmp_path / "a")
    broker.create("orders")
    for _ in range(5):
        broker.append(size=2000)
    again = started(killed(tmp_path / "a", tmp_path / "b"))
    again.logs.shutdown()
    loaded = load_log(LoadRequest(directory=tmp_path / "b" / "orders-0", clean=True))
    assert (loaded.log_end_offset, loaded.recovered) == (5, [])
    assert uuid.UUID(int=0) != again.topic("orders").id
