from __future__ import annotations

import errno
import logging
import os
import shutil
import uuid

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.log_directory import LogDirError
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_broker.storage.topics_file import TOPICS_FILE
from kafkalog_spark.log.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from kafkalog_spark.log.format.partition_metadata import read_partition_metadata
from tests.broker.storage.manager_helpers import NOW, content, killed, offsets_of, started
from tests.broker.storage.one_topic import OneTopicRegistry

MARKER = ".kafka_cleanshutdown"
RECOVERY = "recovery-point-offset-checkpoint"
START = "log-start-offset-checkpoint"
HIGH = "replication-offset-checkpoint"


def refused(code, call, *args):
    with pytest.raises(BrokerError) as caught:
        call(*args)
    assert caught.value.code.name == code
    return str(caught.value)


def topic_id_in(directory):
    metadata = read_partition_metadata(directory / "partition.metadata")
    assert metadata is not None
    return metadata.topic_id


# ---- start and stop


def test_what_was_appended_is_there_after_a_clean_restart(tmp_path):
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


def test_logs_that_nobody_asked_for_stay_clean(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.append(count=3)
    broker.logs.shutdown()
    files = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    again = started(tmp_path)
    again.tick(300_000)  # retention, checkpoints
    again.logs.shutdown()
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == files


def test_after_a_crash_the_logs_are_recovered_with_progress(tmp_path, caplog):
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


def test_a_shutdown_during_loading_leaves_a_crashed_directory_a_crashed_one(tmp_path):
    broker = started(tmp_path)
    broker.create("orders")
    broker.append()
    broker.crash()

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        started(tmp_path, progress=stop)
    assert not (tmp_path / MARKER).exists()


def test_a_killed_broker_loses_nothing_wherever_its_last_batches_were_cut(tmp_path):
    broker = started(tmp_path / "a", properties={"log.index.interval.bytes": 0})
    broker.create("orders")
    sizes = []
    for count in (1, 2, 3):
        broker.append(count=count, producer_id=7, producer_epoch=0, base_sequence=sum(range(count)))
        sizes.append(broker.log().size_bytes)
    path = f"orders-0/{0:020d}.log"
    for cut in range(sizes[-1] + 1):
        crashed = killed(tmp_path / "a", tmp_path / "b")
        os.truncate(crashed / path, cut)
        again = started(crashed)
        whole = sum(size <= cut for size in sizes)
        assert offsets_of(again) == (0, (0, 1, 3, 6)[whole])
        # The producer goes on where the log ends, and a batch that is there already is a duplicate.
        sent = {"producer_id": 7, "producer_epoch": 0}
        if whole:
            assert again.append(count=1, base_sequence=0, **sent).duplicate
        for count in (1, 2, 3)[whole:]:
            assert not again.append(count=count, base_sequence=sum(range(count)), **sent).duplicate
        assert content(again) == content(broker)
        again.logs.shutdown()
        shutil.rmtree(crashed)
    broker.logs.shutdown()


def test_a_crash_right_after_each_step_of_a_topics_life_is_survived(tmp_path):
    """Kill points between registry, directories and checkpoints."""
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


def test_a_new_topic_of_an_old_name_does_not_inherit_its_offsets(tmp_path):
    """The log start offset of the old one, above the end of the new one, would wipe the new one after a crash."""
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


def test_a_late_checkpoint_does_not_bring_old_offsets_back(tmp_path):
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


# ---- directories that exist already


def test_a_directory_of_a_real_kafka_is_served(golden_copy, golden, caplog):
    directory = golden_copy()
    with caplog.at_level(logging.WARNING):
        broker = started(directory)
    assert "their configuration overrides are not known" in caplog.text.replace("\n", " ")
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


def test_the_crashed_directory_of_a_real_kafka_is_recovered_to_what_kafka_recovered(golden_copy, golden):
    broker = started(golden_copy(crashed=True))
    found = {key: broker.log(*key).log_end_offset for key in broker.logs.partitions()}
    ends = read_offset_checkpoint(golden / RECOVERY)
    assert len(found) == 5
    assert found.pop(("segments", 0)) == 0  # not in the copy that was kept: an empty one is made
    assert found == {key: ends[key] for key in found}
    broker.logs.shutdown()


def test_topics_are_taken_in_again_when_the_registry_is_damaged(tmp_path, caplog):
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


def test_a_lost_topic_id_is_written_again(tmp_path):
    broker = started(tmp_path)
    topic = broker.create("orders", 2)
    broker.logs.shutdown()
    (tmp_path / "orders-0" / "partition.metadata").unlink()
    (tmp_path / "orders-1" / "partition.metadata").write_bytes(b"")
    again = started(tmp_path)
    for partition in range(2):
        assert topic_id_in(tmp_path / f"orders-{partition}") == topic.id
    again.logs.shutdown()


def test_what_is_not_a_live_partition_of_a_known_topic_is_left_alone_and_said_so(tmp_path, caplog):
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
        assert f"{tmp_path / name} is left alone" in caplog.text
    again.tick()
    assert all((tmp_path / name).is_dir() for name in left)
    assert not (tmp_path / "old-0.abc-delete").exists()
    again.logs.shutdown()


def test_a_partition_in_two_directories_stops_the_broker(tmp_path):
    broker = started(tmp_path / "a")
    broker.create("orders")
    broker.logs.shutdown()
    started(tmp_path / "b").logs.shutdown()
    shutil.copytree(tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0")
    os.remove(tmp_path / "b" / "meta.properties")
    with pytest.raises(LogDirError, match=r"partition orders-0 also lies in"):
        started(tmp_path / "a", tmp_path / "b")


def test_a_damaged_log_is_offline_alone_and_keeps_the_directory_from_counting_as_clean(tmp_path):
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


# ---- several directories


def test_partitions_go_where_the_fewest_are_and_are_found_there_again(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 5)
    for partition in range(5):
        broker.append(partition=partition, count=partition + 1)
    places = {name: sorted(os.path.basename(p) for p in (tmp_path / name).glob("orders-*")) for name in "ab"}
    assert places == {"a": ["orders-0", "orders-2", "orders-4"], "b": ["orders-1", "orders-3"]}
    broker.logs.shutdown()
    again = started(tmp_path / "b", tmp_path / "a")
    assert [offsets_of(again, partition=partition) for partition in range(5)] == [(0, n) for n in range(1, 6)]
    again.logs.shutdown()


def test_a_directory_that_fails_takes_only_its_partitions_offline(tmp_path, caplog):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 4)
    log = broker.log()
    with caplog.at_level(logging.ERROR):
        assert log.on_failure is not None
        log.on_failure(log, OSError(5, "Input/output error"))
    assert caplog.text.count("is offline, its partitions too") == 1
    for partition in (0, 2):
        refused("kafka_storage_error", broker.logs.get, "orders", partition)
        assert not broker.logs.is_online("orders", partition)
    broker.append(partition=1)
    broker.create("more", 2)
    assert len(list((tmp_path / "b").glob("more-*"))) == 2
    usage = broker.logs.dirs()
    assert [dir_.failure is None for dir_ in usage] == [False, True]
    assert usage[0].partitions == ()
    assert {(p.topic, p.partition): p.size for p in usage[1].partitions}["orders", 1] == len(
        content(broker, partition=1)
    )
    broker.tick(600_000)
    broker.logs.shutdown()
    assert not (tmp_path / "a" / MARKER).exists()
    assert (tmp_path / "b" / MARKER).exists()


def test_a_directory_that_fails_for_the_registry_takes_its_logs_offline(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 2)
    woken = []
    broker.log().subscribe(lambda: woken.append(True))
    (tmp_path / "a" / (TOPICS_FILE + ".tmp")).mkdir()
    broker.topics.set_configs("orders", {"retention.ms": "5"})
    assert woken
    refused("kafka_storage_error", broker.append)
    broker.append(partition=1)
    broker.logs.shutdown()


def test_a_partition_directory_that_somebody_removed_is_offline_alone(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.logs.shutdown()
    again = started(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    refused("kafka_storage_error", again.logs.get, "orders", 0)
    again.append(partition=1)
    again.logs.shutdown()


def test_a_partition_of_an_offline_directory_is_not_made_anew_elsewhere(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    topic = broker.create("orders", 2)
    broker.append(partition=0, count=5)
    broker.logs.shutdown()
    (tmp_path / "a").rename(tmp_path / "unplugged")
    (tmp_path / "a").write_text("")
    again = started(tmp_path / "a", tmp_path / "b")
    refused("kafka_storage_error", again.logs.get, "orders", 0)
    refused("topic_already_exists", again.logs.create, "orders", 0, topic.id, None)
    assert not again.logs.is_online("orders", 0)
    assert offsets_of(again, partition=1) == (0, 0)
    again.logs.shutdown()
    (tmp_path / "a").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "a")
    back = started(tmp_path / "a", tmp_path / "b")
    assert offsets_of(back) == (0, 5)
    back.logs.shutdown()


def test_a_topic_deleted_while_a_directory_was_offline_goes_when_it_is_back(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 2)
    broker.logs.shutdown()
    (tmp_path / "a").rename(tmp_path / "unplugged")
    (tmp_path / "a").write_text("")
    again = started(tmp_path / "a", tmp_path / "b")
    again.logs.detach_topic(again.topics.delete("orders")).finish()
    again.logs.shutdown()
    (tmp_path / "a").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "a")
    back = started(tmp_path / "a", tmp_path / "b")
    assert back.logs.partitions() == []
    assert "orders" not in back.topics
    assert back.topics.deleted == frozenset()
    back.logs.shutdown()


def test_without_a_directory_that_takes_partitions_nothing_is_created(tmp_path):
    broker = started(tmp_path)
    (tmp_path / "orders-0").write_text("in the way")
    topic = broker.topics.create("orders", 1)
    refused("kafka_storage_error", broker.create_logs, topic)
    broker.logs.shutdown()


def test_a_cordoned_directory_gets_no_new_partitions(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b", properties={"cordoned.log.dirs": str(tmp_path / "a")})
    broker.create("orders", 3)
    assert len(list((tmp_path / "b").glob("orders-*"))) == 3
    broker.logs.shutdown()


# ---- deleting


def test_a_deleted_partition_goes_after_the_delay(tmp_path):
    broker = started(tmp_path)
    topic = broker.create("orders", 2, file_delete_delay_ms=1000)
    broker.append()
    woken = []
    broker.log().subscribe(lambda: woken.append(True))
    broker.logs.detach_topic(broker.topics.delete("orders")).finish()
    assert woken
    assert broker.logs.get("orders", 0) is None
    assert len(list(tmp_path.glob("orders-?.*-delete"))) == 2
    assert broker.topics.deleted == frozenset()
    broker.tick(999)
    assert len(list(tmp_path.glob("*-delete"))) == 2
    broker.tick(1)
    assert list(tmp_path.glob("orders-*")) == []
    assert not broker.logs.detach([("orders", 0)]).finish()
    assert broker.create("orders").id != topic.id
    broker.logs.shutdown()


# ---- now and then


def test_checkpoints_are_written_at_their_intervals(tmp_path):
    broker = started(tmp_path)
    broker.create("orders")
    broker.append(count=3)
    broker.tick(4999)
    assert not (tmp_path / HIGH).exists()
    broker.tick(1)
    assert read_offset_checkpoint(tmp_path / HIGH) == {("orders", 0): 3}
    broker.log().flush()
    broker.log().delete_records(2)
    broker.tick(54_999)
    assert not (tmp_path / RECOVERY).exists()
    broker.tick(1)
    assert read_offset_checkpoint(tmp_path / RECOVERY) == {("orders", 0): 3}
    assert read_offset_checkpoint(tmp_path / START) == {("orders", 0): 2}
    broker.logs.shutdown()


def test_a_checkpoint_keeps_what_it_said_of_logs_that_are_not_open(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    for partition in range(2):
        broker.append(partition=partition, count=4)
        broker.log("orders", partition).delete_records(3)
    broker.logs.shutdown()
    again = started(tmp_path)
    again.append(partition=1)
    again.tick(60_000)
    assert read_offset_checkpoint(tmp_path / HIGH) == {("orders", 0): 4, ("orders", 1): 5}
    assert read_offset_checkpoint(tmp_path / START) == {("orders", 0): 3, ("orders", 1): 3}
    again.logs.shutdown()


def test_flush_ms_flushes_in_the_background(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 1, flush_ms=500)
    broker.append(count=3)
    log = broker.log()
    broker.tick(499)
    assert log.recovery_point == 0
    broker.tick(1)
    assert log.recovery_point == 3
    broker.logs.shutdown()


def test_a_log_is_not_flushed_twice_at_once(tmp_path):
    waiting: list = []
    broker = started(tmp_path, options={"run_blocking": waiting.append})
    broker.create("orders", 1, flush_ms=500)
    broker.append(count=3)
    broker.tick(500)
    broker.tick(500)
    assert len(waiting) == 1
    waiting.pop()()
    broker.append()
    broker.tick(500)
    assert len(waiting) == 1
    waiting.pop()()
    assert broker.log().recovery_point == 4
    broker.logs.shutdown()


@pytest.mark.parametrize("reopened", [False, True])
def test_retention_deletes_old_segments_also_of_logs_that_nobody_opened(tmp_path, reopened):
    broker = started(tmp_path)
    broker.create("orders", 1, retention_ms=86_400_000, file_delete_delay_ms=1000)
    broker.create("young", 1, retention_ms=86_400_000 * 9)
    for topic in ("orders", "young"):
        broker.append(topic, count=2)
        broker.log(topic, 0).roll(NOW)
        broker.append(topic, timestamp=NOW + 1000)
    if reopened:
        broker.logs.shutdown()
        broker = started(tmp_path, clock=broker.clock)
    broker.tick(300_000)
    assert [log.name for log in broker.logs.logs()] == ([] if reopened else ["orders-0", "young-0"])
    broker.tick(86_400_000 - 300_000 + 500)
    assert offsets_of(broker) == (2, 3)
    deleted = list((tmp_path / "orders-0").glob("*.deleted"))
    assert len(deleted) == 3
    broker.tick(1000)
    assert not any(path.exists() for path in deleted)
    assert offsets_of(broker, "young") == (0, 3)
    broker.logs.shutdown()


def test_idle_logs_give_their_files_back(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 4)

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for partition in range(4):
        broker.append(partition=partition)
    used = descriptors() - before
    assert used >= 12
    broker.tick(60_000)
    broker.append()
    broker.tick(60_000)
    assert descriptors() - before < used - 8
    broker.append(partition=3)
    assert offsets_of(broker, partition=3) == (0, 2)
    broker.logs.shutdown()


def test_producers_expire(tmp_path):
    broker = started(tmp_path, properties={"producer.id.expiration.ms": 1000})
    broker.create("orders")
    broker.append(producer_id=5, producer_epoch=0, base_sequence=0)
    assert len(broker.log().producer_state.producers()) == 1
    broker.tick(600_000)
    assert broker.log().producer_state.producers() == []
    broker.logs.shutdown()


def test_new_overrides_reach_the_logs_that_are_open(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.topics.set_configs("orders", {"retention.ms": "5"})
    broker.logs.update_topic_config("orders")
    assert {log.config.retention_ms for log in broker.logs.logs()} == {5}
    broker.logs.shutdown()


# ---- many


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_many_partitions_load_without_being_opened(tmp_path, count):
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


def test_recovered_files_are_believed_by_the_loader(tmp_path):
    """After recovery and a clean shutdown nothing is left to recover."""
    broker = started(tmp_path / "a")
    broker.create("orders")
    for _ in range(5):
        broker.append(size=2000)
    again = started(killed(tmp_path / "a", tmp_path / "b"))
    again.logs.shutdown()
    loaded = load_log(LoadRequest(directory=tmp_path / "b" / "orders-0", clean=True))
    assert (loaded.log_end_offset, loaded.recovered) == (5, [])
    assert uuid.UUID(int=0) != again.topic("orders").id


# ---- what a log may raise


@pytest.mark.parametrize("size", [4, 7, 8, 11, 12])
def test_a_topic_whose_indexes_have_no_room_for_an_entry_is_served_also_after_a_crash(tmp_path, size):
    """segment.index.bytes may be 4. Kafka cannot make such a log ("Invalid max index size")."""
    broker = started(tmp_path / "one")
    broker.create("orders", segment_index_bytes=size)
    for _ in range(3):
        broker.append(size=5000)
    before = content(broker)
    again = started(killed(tmp_path / "one", tmp_path / "two"))
    assert content(again) == before
    again.append()
    assert again.log().log_end_offset == 4
    broker.logs.shutdown()
    again.logs.shutdown()


def test_an_index_size_may_shrink_below_an_entry_while_the_broker_runs(tmp_path):
    broker = started(tmp_path)
    broker.create("orders")
    broker.append(size=5000)
    broker.topics.set_configs("orders", {"segment.index.bytes": "4", "internal.segment.bytes": "6000"})
    broker.logs.update_topic_config("orders")
    for _ in range(4):
        broker.append(size=5000)
    assert offsets_of(broker) == (0, 5)
    broker.logs.shutdown()
    again = started(tmp_path, properties={"log.index.size.max.bytes": 4})
    again.create("payments")
    again.append("payments")
    assert offsets_of(again) == (0, 5)
    again.logs.shutdown()


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), RuntimeError("another"), MemoryError()])
def test_whatever_a_log_raises_while_it_is_loaded_is_its_own_failure(tmp_path, monkeypatch, caplog, error):
    broker = started(tmp_path / "one")
    broker.create("orders", 3)
    broker.append(partition=1)

    def load(request, on_bytes=None):
        if request.directory.name == "orders-0":
            raise error
        return load_log(request, on_bytes)

    monkeypatch.setattr("kafkalog_broker.storage.log_table.load_log", load)
    again = started(killed(tmp_path / "one", tmp_path / "two"))
    assert type(error).__name__ in refused("kafka_storage_error", again.logs.get, "orders", 0)
    assert offsets_of(again, partition=1) == (0, 1)
    assert again.append(partition=2).base_offset == 0
    again.tick(10 * 60_000)  # retention looks at all of them
    again.logs.shutdown()
    assert not (tmp_path / "two" / MARKER).exists()
    broker.logs.shutdown()


def test_a_partition_that_is_missing_and_cannot_be_made_does_not_keep_the_broker_from_starting(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.topics.create("orders", 2)
    broker.crash()

    def create(*_, **__):
        raise ValueError("a fault of ours")

    monkeypatch.setattr(Log, "create", create)
    again = started(tmp_path)
    refused("kafka_storage_error", again.logs.get, "orders", 0)
    assert not list(tmp_path.glob("orders-*")), "half a partition would be one at the next start"
    monkeypatch.undo()
    again.crash()
    assert started(tmp_path).append().base_offset == 0


def test_too_many_open_files_fail_the_new_partition_and_not_the_directory(tmp_path, monkeypatch):
    broker = started(tmp_path)

    def create(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Log, "create", create)
        with pytest.raises(BrokerError, match="Too many open files"):
            broker.create("orders")
    assert not list(tmp_path.glob("orders-*"))
    broker.create_logs(broker.topic())
    assert broker.append().base_offset == 0
    broker.logs.shutdown()


# ---- a clock that jumps

YEAR = 365 * 24 * 3_600_000


@pytest.mark.parametrize("jumps", [(YEAR, -YEAR), (-3_600_000,), (-YEAR,)])
def test_a_clock_that_jumps_stops_nothing(tmp_path, jumps):
    """Intervals and delays go by time that passes: Kafka schedules by System.nanoTime."""
    broker = started(tmp_path)
    broker.create("orders", 2, flush_ms=500, retention_ms=-1, file_delete_delay_ms=1000)
    broker.append(count=3)
    for ms in jumps:
        broker.clock.jump(ms)
        broker.tick()
    broker.tick(5000)
    assert broker.log().recovery_point == 3
    assert read_offset_checkpoint(tmp_path / HIGH)["orders", 0] == 3
    broker.logs.detach([("orders", 1)]).finish()
    broker.clock.jump(-YEAR)
    broker.tick(999)
    assert len(list(tmp_path.glob("orders-1.*-delete"))) == 1
    broker.tick(1)
    assert not list(tmp_path.glob("orders-1.*-delete"))
    broker.log().delete_records(2)
    broker.tick(60_000)
    assert read_offset_checkpoint(tmp_path / START) == {("orders", 0): 2}
    broker.logs.shutdown()
