"""Partitions are added with their logs, or not at all."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from tests.broker.admin.helpers.failing_logs import fail_log_creation
from tests.broker.api.helpers.admin_broker import only_result, send
from tests.broker.api.helpers.admin_scenario import create, more, new_topic, total


def test_new_partitions_have_logs_with_the_configuration_of_the_topic(broker):
    send(broker, create(new_topic("orders", 1, configs={"retention.ms": "5"})))
    send(broker, more(total("orders", 3)))
    assert broker.log("orders", 2).config.retention_ms == 5


def test_no_partition_is_added_without_all_logs(broker, tmp_path):
    send(broker, create(new_topic("orders", 2)))
    (tmp_path / "data" / "orders-3").mkdir()
    failed = only_result(send(broker, more(total("orders", 5))))
    assert failed.error_code is ErrorCode.kafka_storage_error
    assert broker.topics.get("orders").partitions == 2
    assert sorted(broker.logs.partitions("orders")) == [("orders", 0), ("orders", 1)]
    (tmp_path / "data" / "orders-3").rmdir()
    assert only_result(send(broker, more(total("orders", 5)))).error_code is ErrorCode.none
    assert len(broker.logs.partitions("orders")) == 5


def test_new_partitions_are_removed_after_an_unexpected_exception(broker, tmp_path, monkeypatch):
    send(broker, create(new_topic("orders", 2)))
    with monkeypatch.context() as patched:
        fail_log_creation(patched, 3)
        failed = only_result(send(broker, more(total("orders", 5))))
    assert failed.error_code is ErrorCode.unknown_server_error
    assert broker.topics.get("orders").partitions == 2
    assert sorted(path.name for path in (tmp_path / "data").glob("orders-?")) == ["orders-0", "orders-1"]
    assert only_result(send(broker, more(total("orders", 5)))).error_code is ErrorCode.none
