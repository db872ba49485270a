"""Exceptions in one log: they take only that log offline."""

from __future__ import annotations

import errno

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.recovery.log_loader import load_log
from tests.broker.storage.helpers.managed_logs import MARKER, content, killed, offsets_of, refused, started


@pytest.mark.parametrize("size", [4, 7, 8, 11, 12])
def test_log_with_an_index_size_below_one_entry_is_served_even_after_a_crash(tmp_path, size):
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


def test_segment_index_bytes_can_be_reduced_below_one_entry_at_runtime(tmp_path):
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
def test_exception_while_loading_takes_only_that_log_offline(tmp_path, monkeypatch, caplog, error):
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


def test_broker_starts_when_a_missing_partition_cannot_be_created(tmp_path, monkeypatch):
    broker = started(tmp_path)
    broker.topics.create("orders", 2)
    broker.crash()

    def create(*_, **__):
        raise ValueError("a fault of ours")

    monkeypatch.setattr("kafkalog_broker.storage.new_partitions.create_log_files", create)
    again = started(tmp_path)
    refused("kafka_storage_error", again.logs.get, "orders", 0)
    assert not list(tmp_path.glob("orders-*")), "half a partition would be one at the next start"
    monkeypatch.undo()
    again.crash()
    assert started(tmp_path).append().base_offset == 0


def test_partition_creation_without_a_free_descriptor_fails_and_keeps_the_directory_online(tmp_path, monkeypatch):
    broker = started(tmp_path)

    def create(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("kafkalog_broker.storage.new_partitions.create_log_files", create)
        with pytest.raises(BrokerError, match="Too many open files"):
            broker.create("orders")
    assert not list(tmp_path.glob("orders-*"))
    broker.create_logs(broker.topic())
    assert broker.append().base_offset == 0
    broker.logs.shutdown()
