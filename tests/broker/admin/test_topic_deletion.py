"""Deleted topics leave nothing behind."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker, only_result, send
from tests.broker.api.helpers.admin_scenario import create, delete, new_topic


def test_deleted_topic_has_no_logs_and_groups_are_notified(broker, tmp_path):
    send(broker, create(new_topic("orders", 2)))
    send(broker, delete("orders"))
    assert "orders" not in broker.topics
    assert broker.logs.get("orders", 0) is None
    assert broker.groups.deleted_topics == ["orders"]
    assert not (tmp_path / "data" / "orders-0").exists()
    assert only_result(send(broker, create(new_topic("orders", 1)))).error_code is ErrorCode.none


def test_delete_topic_enable_false_refuses_deletion(tmp_path):
    with AdminBroker(tmp_path / "data", **{"delete.topic.enable": "false"}) as broker:
        send(broker, create(new_topic("orders")))
        assert only_result(send(broker, delete("orders"))).error_code is ErrorCode.topic_deletion_disabled
        assert only_result(send(broker, delete("orders", versions=(1,)))).error_code is ErrorCode.invalid_request
        assert "orders" in broker.topics
