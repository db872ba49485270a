"""Periodic tasks of the log manager: checkpoints, flushes, retention, and closing the files of idle logs."""

from __future__ import annotations

import errno
import os

import pytest

from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_spark.format.checkpoint import read_offset_checkpoint
from tests.broker.storage.helpers.managed_logs import HIGH, NOW, RECOVERY, START, offsets_of, refused, started


def test_deleted_partition_is_removed_after_file_delete_delay(tmp_path):
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
    assert read_offset_checkpoint(tmp_path / RECOVERY) == {("orders", 0): 0}, "of a new partition"
    broker.tick(1)
    assert read_offset_checkpoint(tmp_path / RECOVERY) == {("orders", 0): 0}, "of the segment only the .log is on disk"
    assert read_offset_checkpoint(tmp_path / START) == {("orders", 0): 2}
    broker.log().local.roll(NOW)
    broker.tick(60_000)  # flushes the rolled segment
    broker.tick(60_000)
    assert read_offset_checkpoint(tmp_path / RECOVERY) == {("orders", 0): 3}
    broker.logs.shutdown()


def test_checkpoint_write_without_a_free_descriptor_is_retried_at_the_next_interval(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders")
    broker.append(count=3)

    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_spark.format.checkpoint.replace_file", refuse)
        broker.tick(5000)
    assert broker.logs.is_online("orders", 0)
    assert not (tmp_path / HIGH).exists()
    broker.tick(5000)
    assert read_offset_checkpoint(tmp_path / HIGH) == {("orders", 0): 3}
    broker.logs.shutdown()


def test_retention_without_a_free_descriptor_keeps_the_directory_online(tmp_path, monkeypatch):
    broker = started(tmp_path, properties={"log.retention.check.interval.ms": 1000})
    broker.create("orders")
    broker.append()
    broker.logs.shutdown()
    again = started(tmp_path, properties={"log.retention.check.interval.ms": 1000})

    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_broker.storage.housekeeping.may_be_due", refuse)
        again.tick(1000)
    assert again.logs.is_online("orders", 0)
    again.logs.shutdown()


def test_deletion_without_a_free_descriptor_fails_and_keeps_the_directory_online(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders")
    broker.create("other")
    removal = broker.logs.detach_topic(broker.topics.delete("orders"))

    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_broker.storage.partition_removal.fsync_directory", refuse)
        refused("kafka_storage_error", removal.finish)
    assert broker.logs.is_online("other", 0)
    broker.logs.shutdown()
    again = started(tmp_path)  # the registry remembers the deletion
    assert set(again.logs.partitions()) == {("other", 0)}
    again.logs.shutdown()


def test_lowered_checkpoint_without_a_free_descriptor_is_refused_and_keeps_the_directory_online(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders")
    broker.append(count=3)
    broker.log().flush()
    broker.tick(60_000)

    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_spark.format.checkpoint.replace_file", refuse)
        refused("kafka_storage_error", broker.logs.lower_checkpoints, "orders", 0, 1)
    assert broker.logs.is_online("orders", 0)
    broker.logs.shutdown()


def test_checkpoint_keeps_entries_of_logs_that_are_not_open(tmp_path):
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


def test_truncation_lowers_checkpoints_first_and_drops_older_pending_writes(tmp_path):
    waiting: list = []
    broker = started(tmp_path, options={"run_blocking": waiting.append})
    broker.create("orders", 2)
    for partition in range(2):
        for count in (4, 5):
            broker.append("orders", partition, count=count)
        broker.log("orders", partition).local.roll(NOW)
        broker.log("orders", partition).flush()
    log = broker.log()
    log.delete_records(7)
    broker.tick(60_000)  # all three are collected
    while waiting:
        waiting.pop(0)()
    follower = Follower(log)
    broker.append("orders", 1)
    broker.tick(60_000)  # and again, but not written yet
    point = follower.plan_truncation(6)  # within the second batch
    broker.logs.lower_checkpoints("orders", 0, point.end_offset)
    broker.logs.remove_later(follower.truncate(point), log.config)
    while waiting:
        waiting.pop(0)()
    for name, other in ((RECOVERY, 9), (HIGH, 9), (START, None)):
        written = read_offset_checkpoint(tmp_path / name)
        assert (written[("orders", 0)], written.get(("orders", 1))) == (4, other)
    broker.crash()
    again = started(tmp_path)
    assert offsets_of(again) == (4, 4)
    again.logs.shutdown()


def test_log_with_flush_ms_is_flushed_in_the_background(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 1, flush_ms=500)
    broker.append(count=3)
    log = broker.log()
    broker.tick(499)
    assert log.recovery_point == 0
    broker.tick(1)
    assert log.recovery_point == 3
    broker.logs.shutdown()


def test_background_flush_of_a_log_is_not_started_while_another_one_runs(tmp_path):
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
def test_retention_deletes_old_segments_of_logs_that_are_not_open(tmp_path, reopened):
    broker = started(tmp_path)
    broker.create("orders", 1, retention_ms=86_400_000, file_delete_delay_ms=1000)
    broker.create("young", 1, retention_ms=86_400_000 * 9)
    for topic in ("orders", "young"):
        broker.append(topic, count=2)
        broker.log(topic, 0).local.roll(NOW)
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


def test_idle_log_closes_its_files(tmp_path):
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


def test_checkpoints_are_written_although_the_files_of_an_idle_log_cannot_be_closed(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders", 2)
    for partition in range(2):
        broker.append(partition=partition)
    broker.tick(60_000)
    broker.append(partition=1)

    def refuse(self):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("kafkalog_broker.storage.partition.local_log.LocalLog.release_files", refuse)
    broker.tick(60_000)
    assert read_offset_checkpoint(tmp_path / HIGH) == {("orders", 0): 1, ("orders", 1): 2}
    monkeypatch.undo()
    broker.logs.shutdown()


def test_idle_producers_expire_at_a_tick(tmp_path):
    broker = started(tmp_path, properties={"producer.id.expiration.ms": 1000})
    broker.create("orders")
    broker.append(producer_id=5, producer_epoch=0, base_sequence=0)
    assert len(broker.log().producer_state.producers()) == 1
    broker.tick(600_000)
    assert broker.log().producer_state.producers() == []
    broker.logs.shutdown()


def test_changed_topic_configs_apply_to_open_logs(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.topics.set_configs("orders", {"retention.ms": "5"})
    broker.logs.update_topic_config("orders")
    assert {log.config.retention_ms for log in broker.logs.logs()} == {5}
    broker.logs.shutdown()


YEAR = 365 * 24 * 3_600_000


@pytest.mark.parametrize("jumps", [(YEAR, -YEAR), (-3_600_000,), (-YEAR,)])
def test_log_manager_tasks_continue_after_the_wall_clock_jumps(tmp_path, jumps):
    """Intervals and delays use the monotonic clock, like System.nanoTime in Kafka."""
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


def test_retention_blocked_by_a_future_timestamp_is_logged_once(tmp_path, caplog):
    broker = started(tmp_path, properties={"log.message.timestamp.after.max.ms": str(2**62)})
    broker.create("orders", 1, retention_ms=1000)
    broker.append(timestamp=NOW + 900_000_000)
    broker.log().local.roll(NOW)
    broker.append(timestamp=NOW)
    for _ in range(2):
        broker.tick(300_000)
        assert offsets_of(broker) == (0, 2)
    (line,) = [record.getMessage() for record in caplog.records if "in the future" in record.getMessage()]
    assert "orders-0/00000000000000000000.log" in line
    assert str(NOW + 900_000_000) in line
    broker.tick(900_000_000)
    broker.tick()  # after the flush
    assert offsets_of(broker) == (2, 2)
    broker.logs.shutdown()
