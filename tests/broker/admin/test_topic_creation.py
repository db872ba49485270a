"""Topics are created with their logs, or not at all."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from tests.broker.admin.helpers.failing_logs import fail_log_creation
from tests.broker.api.helpers.admin_broker import AdminBroker, only_result, send
from tests.broker.api.helpers.admin_scenario import (
    BROKER,
    SET,
    TOPIC,
    change,
    create,
    incremental,
    more,
    new_topic,
    total,
)
from tests.broker.storage.helpers.stored_logs import append_records


def test_new_topic_has_logs_with_its_configuration(broker, tmp_path):
    send(broker, create(new_topic("orders", 3, configs={"retention.ms": "5"})))
    assert [broker.log("orders", index).config.retention_ms for index in range(3)] == [5, 5, 5]
    assert (tmp_path / "data" / "orders-2" / "partition.metadata").exists()


def test_validate_only_creates_neither_topic_nor_partitions(broker):
    assert only_result(send(broker, create(new_topic("orders"), validate_only=True))).error_code is ErrorCode.none
    assert "orders" not in broker.topics
    send(broker, create(new_topic("orders")))
    send(broker, more(total("orders", 4), validate_only=True))
    assert broker.topics.get("orders").partitions == 1


def test_more_than_ten_thousand_new_partitions_in_a_request_are_refused(broker):
    answer = send(broker, create(new_topic("a", 9_000), new_topic("b", 2_000)))
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.policy_violation}
    assert len(broker.topics) == 0
    send(broker, create(new_topic("c")))
    assert only_result(send(broker, more(total("c", 2**31 - 1)))).error_code is ErrorCode.policy_violation


def test_topic_without_all_logs_is_removed_and_can_be_created_later(broker, tmp_path):
    (tmp_path / "data" / "orders-2").write_text("in the way")
    failed = only_result(send(broker, create(new_topic("orders", 4))))
    assert failed.error_code is ErrorCode.kafka_storage_error
    assert "orders-2 already exists" in failed.error_message
    assert "orders" not in broker.topics
    assert broker.logs.partitions("orders") == []
    live = {path.name for path in (tmp_path / "data").glob("orders-?")}
    assert live == {"orders-2"}, "no empty directory is left, which would be a partition at the next start"
    (tmp_path / "data" / "orders-2").unlink()
    assert only_result(send(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.none
    assert len(broker.logs.partitions("orders")) == 4


def test_topic_is_removed_after_an_unexpected_exception(broker, tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        fail_log_creation(patched, 2)
        failed = only_result(send(broker, create(new_topic("orders", 4))))
    assert failed.error_code is ErrorCode.unknown_server_error
    assert "topic orders cannot be created: ValueError: a fault of ours" in failed.error_message
    assert "ValueError: a fault of ours" in caplog.text
    assert "orders" not in broker.topics
    assert not list((tmp_path / "data").glob("orders-?"))
    assert only_result(send(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.none


def test_topic_with_an_acknowledged_record_is_kept_without_all_logs(broker, monkeypatch):
    create_log = broker.logs.create

    def create_and_produce(topic, index, *rest):
        if index == 2:
            raise BrokerError(ErrorCode.kafka_storage_error, "the disk is full")
        log = create_log(topic, index, *rest)
        append_records(log, [(b"key", b"value")], broker.clock.now_ms())
        return log

    monkeypatch.setattr(broker.logs, "create", create_and_produce)
    assert only_result(send(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.kafka_storage_error
    assert broker.topics.get("orders").partitions == 4
    assert [broker.log("orders", index).log_end_offset for index in range(2)] == [1, 1]
    for index in (2, 3):
        with pytest.raises(BrokerError) as offline:
            broker.log("orders", index)
        assert offline.value.code is ErrorCode.kafka_storage_error


@pytest.mark.parametrize("size", ["4", "8", "11"])
def test_segment_index_bytes_below_one_entry_are_accepted(broker, size):
    """The smallest that Kafka allows is 4."""
    send(broker, create(new_topic("orders", configs={"segment.index.bytes": size})))
    send(broker, create(new_topic("payments")))
    for changed in (
        change(TOPIC, "payments", ("segment.index.bytes", SET, size)),
        change(BROKER, "", ("log.index.size.max.bytes", SET, size)),
    ):
        assert only_result(send(broker, incremental(changed))).error_code is ErrorCode.none
    send(broker, create(new_topic("invoices")))
    for topic in ("orders", "payments", "invoices"):
        for _ in range(2):
            append_records(broker.log(topic, 0), [(b"key", b"value")], broker.clock.now_ms())
            broker.log(topic, 0).local.roll(broker.clock.now_ms())
        assert broker.log(topic, 0).log_end_offset == 2


def test_directories_of_a_new_topic_are_synced_together(tmp_path, monkeypatch):
    synced: list[tuple[str, int]] = []

    def fsync_directory(path):
        if (count := len(list(path.glob("orders-*")))) and path.name not in (name for name, _ in synced):
            synced.append((path.name, count))

    monkeypatch.setattr("kafkalog_spark.format.atomic_file.fsync_directory", fsync_directory)
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        send(broker, create(new_topic("orders", 20)))
        assert synced == [("a", 10), ("b", 10)], "partitions when a log directory was first synced"
        assert len(broker.logs.partitions("orders")) == 20


def test_log_directory_that_cannot_be_synced_gets_no_new_partitions(tmp_path, monkeypatch):
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        monkeypatch.setattr("kafkalog_spark.format.atomic_file.fsync_directory", fsync_failing_for(tmp_path / "a"))
        assert only_result(send(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.none
        assert {broker.log("orders", index).directory.parent.name for index in range(4)} == {"b"}
        assert list((tmp_path / "a").glob("orders-*")) == []


def fsync_failing_for(directory):
    def fsync_directory(path):
        if path == directory:
            raise OSError(5, "Input/output error")

    return fsync_directory
