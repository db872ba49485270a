"""The cleaner of a log manager: the order of logs, its checkpoints, and its handling of errors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalog_broker.storage.compaction import owner_thread
from kafkalog_broker.storage.compaction.cleaning_request import CleaningAborted
from kafkalog_broker.storage.compaction.owner_thread import OwnerThread
from kafkalog_broker.storage.log_cleaner import LogCleaner
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.broker.storage.helpers.cleaned_logs import records_of, transient_files
from tests.broker.storage.helpers.managed_logs import NOW, Started, killed, started
from tests.log.helpers.batch_builder import V2Record, batch

CHECKPOINT = "cleaner-offset-checkpoint"
SMALL = {"cleanup_policy": "compact", "internal_segment_bytes": 1000}


def fill(broker: Started, topic="orders", partition=0, *, batches=20, keys=3, size=60) -> None:
    for number in range(batches):
        broker.append(topic, partition, key=b"key %d" % (number % keys), size=size)


def clean(broker: Started) -> bool:
    return broker.logs.cleaner.clean_filthiest()


def checkpointed(path: Path) -> dict[str, int]:
    if not (path / CHECKPOINT).exists():
        return {}  # before the first round
    lines = (path / CHECKPOINT).read_text().splitlines()
    assert lines[:2] == ["0", str(len(lines) - 2)]
    return {"-".join(line.split()[:2]): int(line.split()[2]) for line in lines[2:]}


def configure(broker: Started, name="orders", **configs) -> None:
    broker.topics.set_configs(name, {key.replace("_", "."): str(value) for key, value in configs.items()})
    broker.logs.update_topic_config(name)


def test_cleaner_with_a_dirty_log_cleans_it_and_writes_its_checkpoint(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", **SMALL)
    fill(broker)
    log = broker.log()
    assert clean(broker)
    assert checkpointed(tmp_path) == {"orders-0": log.segments[-1].base_offset}
    assert len({key for _, key, _ in records_of(log)}) == len(records_of(log))
    assert not clean(broker)
    broker.logs.shutdown()


def test_cleaner_ignores_a_log_without_the_compact_policy(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", internal_segment_bytes=1000)
    fill(broker)
    assert not clean(broker)
    assert not (tmp_path / CHECKPOINT).exists()


def test_cleaner_cleans_logs_in_descending_order_of_dirty_ratio(tmp_path):
    broker = started(tmp_path)
    for topic in ("a", "b"):
        broker.create(topic, **SMALL)
        fill(broker, topic)
        assert clean(broker)
    fill(broker, "a", batches=40, keys=1000)
    fill(broker, "b", batches=80, keys=1000)
    ends = {topic: broker.log(topic).segments[-1].base_offset for topic in ("a", "b")}
    assert clean(broker)
    assert checkpointed(tmp_path)["b-0"] == ends["b"]
    assert checkpointed(tmp_path)["a-0"] < ends["a"]
    assert clean(broker)
    assert checkpointed(tmp_path)["a-0"] == ends["a"]
    assert not clean(broker)


def test_cleaner_cleans_logs_that_are_not_open_after_a_restart(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", **SMALL)
    broker.create("idle", **SMALL)
    fill(broker)
    broker.append("idle")
    broker.logs.shutdown()
    broker = started(tmp_path)
    assert list(broker.logs.logs()) == []
    assert clean(broker)
    assert [log.topic for log in broker.logs.logs()] == ["orders"]  # one segment is nothing to open a log for
    assert not clean(broker)
    broker.logs.shutdown()
    broker = started(tmp_path)
    assert not clean(broker)
    assert list(broker.logs.logs()) == []  # it is clean, and file sizes say so


def test_cleaner_after_a_crash_continues_at_the_checkpoint(tmp_path):
    broker = started(tmp_path / "live")
    broker.create("orders", **SMALL)
    fill(broker)
    assert clean(broker)
    copy = killed(tmp_path / "live", tmp_path / "copy")
    broker.logs.shutdown()
    again = started(copy)
    assert records_of(again.log()) == records_of(broker.log())
    assert not clean(again)


def test_cleaner_checkpoint_of_a_deleted_topic_does_not_apply_to_its_successor(tmp_path):
    broker = started(tmp_path)
    topic = broker.create("orders", **SMALL)
    fill(broker)
    assert clean(broker)
    broker.topics.delete("orders")
    broker.logs.detach_topic(topic).finish()
    broker.create("orders", **SMALL)
    assert "orders-0" not in checkpointed(tmp_path)
    fill(broker)
    assert clean(broker)


def test_cleaner_checkpoint_outside_the_log_is_reset(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", **SMALL)
    fill(broker)
    broker.logs.shutdown()
    (tmp_path / CHECKPOINT).write_text("0\n1\norders 0 123456\n")
    broker = started(tmp_path)
    broker.log()
    assert clean(broker)
    assert checkpointed(tmp_path) == {"orders-0": broker.log().segments[-1].base_offset}


def test_cleaned_segments_are_removed_after_file_delete_delay(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", **SMALL, file_delete_delay_ms=1000)
    fill(broker)
    assert clean(broker)
    directory = broker.log().directory
    assert list(directory.glob("*.deleted"))
    broker.tick(999)
    assert list(directory.glob("*.deleted"))
    broker.tick(1)
    assert not list(directory.glob("*.deleted"))


def test_cleaner_skips_a_damaged_log_and_cleans_the_others(tmp_path, caplog):
    broker = started(tmp_path)
    for topic in ("orders", "other"):
        broker.create(topic, **SMALL)
        fill(broker, topic, keys=5 if topic == "orders" else 1)
    log = broker.log()
    log.flush()
    path = Path(log.segments[0].log_path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    results = [clean(broker) for _ in range(3)]
    assert sorted(results) == [False, False, True]
    assert [entry.topic for entry in broker.logs.cleaner.uncleanable] == ["orders"]
    assert "will not be compacted until the next start" in caplog.text
    assert str(path) in caplog.text
    assert log.failure is None
    assert path.read_bytes() == data
    assert set(checkpointed(tmp_path)) == {"other-0"}
    assert transient_files(log.directory) == []


def test_topic_deletion_during_cleaning_aborts_the_cleaning(tmp_path, monkeypatch):
    broker = started(tmp_path)
    topic = broker.create("orders", **SMALL)
    fill(broker)
    log = broker.log()
    producers = log.producer_state.producers

    def delete():
        broker.topics.delete("orders")
        broker.logs.detach_topic(topic).finish()
        return producers()

    monkeypatch.setattr(log.producer_state, "producers", delete)
    assert not clean(broker)
    assert broker.logs.cleaner.uncleanable == set()
    assert not clean(broker)
    assert [path for path in tmp_path.rglob("*") if path.suffix in (".cleaned", ".swap")] == []


def test_removal_of_the_compact_policy_during_cleaning_aborts_the_cleaning(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders", **SMALL)
    fill(broker)
    log = broker.log()
    producers = log.producer_state.producers

    def change():
        configure(broker, cleanup_policy="delete", internal_segment_bytes=1000)
        return producers()

    monkeypatch.setattr(log.producer_state, "producers", change)
    before = len(records_of(log))
    assert not clean(broker)
    assert len(records_of(log)) == before
    assert transient_files(log.directory) == []


def test_changed_topic_configs_apply_to_the_next_cleaning(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", **SMALL, min_compaction_lag_ms=10**15)
    fill(broker)
    assert not clean(broker)
    configure(broker, **SMALL, min_cleanable_dirty_ratio=1.0)
    assert not clean(broker)
    configure(broker, **SMALL)
    assert clean(broker)


def test_log_with_compact_and_delete_policies_is_compacted_and_expires(tmp_path):
    broker = started(tmp_path, properties={"log.retention.check.interval.ms": 1000})
    broker.create("orders", **{**SMALL, "cleanup_policy": "compact,delete"}, retention_ms=5000)
    fill(broker, keys=20)  # no segment is left empty: of such a one the file's time would count
    assert clean(broker)
    assert broker.log().log_start_offset == 0
    broker.tick(60_000)  # rolls
    broker.tick(1000)
    assert broker.log().log_start_offset == broker.log().log_end_offset
    fill(broker)
    assert clean(broker)  # the checkpoint, now below the log start offset, is moved
    assert checkpointed(tmp_path)["orders-0"] == broker.log().segments[-1].base_offset


def test_disk_error_during_cleaning_takes_the_log_directory_offline(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders", **SMALL)
    fill(broker)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kafkalog_broker.storage.partition.cleaned_segment.os.write", full)
    assert not clean(broker)
    assert not broker.logs.is_online("orders", 0)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError(104, "Connection reset by peer"),
        InterruptedError(4, "Interrupted system call"),
        BlockingIOError(11, "Resource temporarily unavailable"),
        OSError(24, "Too many open files"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("when", ["choosing", "cleaning"])
def test_cleaner_after_an_error_without_a_disk_fault_cleans_the_log_in_the_next_round(
    error, when, tmp_path, monkeypatch
):
    broker = started(tmp_path)
    broker.create("orders", **SMALL)
    fill(broker)
    log = broker.log()

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        if when == "choosing":
            patch.setattr("kafkalog_broker.storage.log_cleaner.cleanable", fail)
        else:
            patch.setattr(log.producer_state, "producers", fail)
        assert not clean(broker)
    assert broker.logs.is_online("orders", 0)
    assert broker.logs.cleaner.uncleanable == set()
    assert transient_files(log.directory) == []
    assert clean(broker)
    broker.logs.shutdown()


def test_cleaner_checkpoint_without_a_free_descriptor_is_written_in_the_next_round(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.create("orders", **SMALL)
    fill(broker)

    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_spark.format.checkpoint.replace_file", refuse)
        clean(broker)
    assert broker.logs.is_online("orders", 0)
    assert checkpointed(tmp_path) == {}
    assert clean(broker)
    assert checkpointed(tmp_path) == {"orders-0": broker.log().segments[-1].base_offset}
    broker.logs.shutdown()


@pytest.mark.parametrize("is_transient", [False, True])
@pytest.mark.parametrize("step", range(12))
def test_segment_swap_failing_halfway_takes_the_log_offline_and_the_next_start_completes_it(
    step, is_transient, tmp_path, monkeypatch
):
    """If the error is transient, one rename fails and the later ones succeed."""
    broker = started(tmp_path)
    broker.create("orders", **{**SMALL, "internal_segment_bytes": 2000})
    broker.append("orders", 0, key=b"kept", size=60)  # so that the first cleaned segment has a record
    fill(broker, batches=40)
    latest = {key: offset for offset, key, _ in records_of(broker.log())}
    real, calls = os.rename, 0

    def rename(*arguments):
        nonlocal calls
        calls += 1
        if calls == step + 1 or (calls > step and not is_transient):
            raise OSError(5, "Input/output error")
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("os.rename", rename)
        assert not clean(broker)
    assert not broker.logs.is_online("orders", 0)
    broker.crash()
    again = started(tmp_path)
    log = again.log()
    assert transient_files(log.directory) == []
    assert {key: offset for offset, key, _ in records_of(log)} == latest
    assert clean(again)


class Owner:
    """A thread that owns the logs, like the event loop thread of a broker."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(1, "owner")

    def call_soon(self, function):
        self.pool.submit(function)

    def run(self, function):
        return self.pool.submit(function).result(120)


def eventually(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_cleaner_threads_clean_while_the_owner_thread_writes_and_reads(tmp_path):
    owner = Owner()
    broker = owner.run(
        lambda: started(tmp_path, options={"call_soon": owner.call_soon}, properties={"log.cleaner.backoff.ms": 1})
    )
    owner.run(lambda: broker.create("orders", 2, **SMALL, min_cleanable_dirty_ratio=0.01))
    cleaner = broker.logs.cleaner
    cleaner.start()
    latest: dict[tuple[int, bytes], int] = {}
    for number in range(400):
        key = b"key %d" % (number % 7)
        for partition in (0, 1):
            info = owner.run(lambda key=key, partition=partition: broker.append("orders", partition, key=key, size=60))
            latest[partition, key] = info.base_offset
    for partition in (0, 1):
        log = broker.log("orders", partition)
        eventually(lambda log=log: checkpointed(tmp_path).get(log.name, 0) >= log.segments[-1].base_offset)
    owner.run(cleaner.stop)
    for partition in (0, 1):
        log = broker.log("orders", partition)
        owner.run(lambda log=log: log.local.roll(NOW))
        kept = {key: offset for offset, key, _ in records_of(log)}
        assert {key: offset for (p, key), offset in latest.items() if p == partition} == kept
        assert len(records_of(log)) < 200
    owner.run(broker.logs.shutdown)
    owner.pool.shutdown()


def test_cleaner_stop_does_not_wait_for_a_blocked_owner_thread():
    waiting: list[Callable[[], object]] = []
    owner = OwnerThread(waiting.append)
    found = []

    def ask():
        try:
            owner.call(lambda: found.append("done"))
        except CleaningAborted as error:
            found.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: waiting)
    owner.is_stopping.set()
    thread.join(120)
    assert found == ["the broker stops"]
    waiting[0]()  # it comes too late, and does nothing
    assert found == ["the broker stops"]


def test_owner_call_raises_the_exception_of_the_function():
    with pytest.raises(TimeoutError, match="mine"):
        OwnerThread(lambda function: function()).call(lambda: (_ for _ in ()).throw(TimeoutError("mine")))


def test_owner_call_when_the_function_ends_right_after_the_wait_returns_its_result(monkeypatch):
    """After a wait that timed out, the caller checks again whether the function has finished."""
    waiting: list[Callable[[], object]] = []

    class LateFuture(Future):
        def done(self):
            while waiting:
                waiting.pop()()
            return super().done()

    monkeypatch.setattr(owner_thread, "Future", LateFuture)
    monkeypatch.setattr(owner_thread, "_POLL_S", 0.0)
    assert OwnerThread(waiting.append).call(lambda: "result") == "result"


def test_cleaner_with_a_backoff_above_the_maximum_thread_wait_keeps_running(tmp_path):
    broker = started(tmp_path, properties={"log.cleaner.backoff.ms": 2**63 - 1})
    with ThreadPoolExecutor(1) as pool:
        resting = pool.submit(broker.logs.cleaner._back_off)
        broker.logs.shutdown()
        resting.result(120)


def test_cleaner_without_log_cleaner_enable_has_no_threads(tmp_path):
    broker = started(tmp_path, properties={"log.cleaner.enable": "false"})
    broker.logs.cleaner.start()
    assert cleaner_threads(broker.logs.cleaner) == 0


def cleaner_threads(cleaner: LogCleaner) -> int:
    return sum(thread.is_alive() for thread in cleaner._threads)


def test_log_cleaner_threads_can_be_changed_at_runtime(tmp_path):
    broker = started(tmp_path, properties={"log.cleaner.backoff.ms": 60_000})
    cleaner = broker.logs.cleaner
    cleaner.start()
    assert cleaner_threads(cleaner) == 1
    config = broker.logs.config
    list(broker.logs.updating_config(config.with_dynamic({"log.cleaner.threads": "2"}, {})))
    assert cleaner_threads(cleaner) == 2
    list(broker.logs.updating_config(config.with_dynamic({}, {})))
    eventually(lambda: cleaner_threads(cleaner) == 1)
    broker.logs.shutdown()
    assert cleaner_threads(cleaner) == 0


def test_cleaner_splits_a_segment_with_offset_overflow_and_cleans_it_in_the_next_round(tmp_path, caplog):
    """Brokers before Kafka 1.1.1 left such segments (KAFKA-6264)."""
    far = 2**31
    directory = tmp_path / "orders-0"
    broker = started(tmp_path)
    broker.create("orders", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    broker.logs.shutdown()
    for path in directory.glob("0*"):
        path.unlink()
    data = [
        batch(offset, [V2Record(offset, NOW, key, b"%d" % offset)])
        for offset, key in ((0, b"a"), (1, b"b"), (far + 1, b"a"), (far + 2, b"c"), (2 * far + 9, b"b"))
    ]
    overflowed = SegmentWriter.create(directory, 0)
    overflowed._write(b"".join(data), 0)
    overflowed.close()
    SegmentWriter.create(directory, 2 * far + 10).close()
    again = started(tmp_path)
    log = again.log()
    assert len(log.segments) == 2
    with caplog.at_level("INFO"):
        assert not clean(again), "this round has only split it"
    assert "the segment was split and is cleaned in the next round" in caplog.text
    assert [segment.base_offset for segment in log.segments] == [0, far + 1, 2 * far + 9, 2 * far + 10]
    assert [offset for offset, _, _ in records_of(log)] == [0, 1, far + 1, far + 2, 2 * far + 9]
    assert clean(again)
    assert [offset for offset, _, _ in records_of(log)] == [far + 1, far + 2, 2 * far + 9]
    assert transient_files(directory) == [] or all(".deleted" in name for name in transient_files(directory))
    again.append(key=b"d")
    again.logs.shutdown()
