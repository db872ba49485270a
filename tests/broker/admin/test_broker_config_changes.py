"""Changes to dynamic properties of brokers."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker, described_value, only_result, send
from tests.broker.api.helpers.admin_scenario import BROKER, SET, change, create, incremental, new_topic


def test_default_for_all_brokers_applies_to_topics_without_an_override(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        send(broker, create(new_topic("orders"), new_topic("own", configs={"max.message.bytes": "7"})))
        send(broker, incremental(change(BROKER, "", ("message.max.bytes", SET, "2000"))))
        assert broker.config.message_max_bytes == 2000
        assert broker.log("orders", 0).config.max_message_bytes == 2000
        assert broker.log("own", 0).config.max_message_bytes == 7
    with AdminBroker(tmp_path / "data") as broker:
        assert broker.dynamic_configs.default == {"message.max.bytes": "2000", "min.insync.replicas": "1"}


def test_broker_property_that_contradicts_a_topic_is_refused(broker):
    send(broker, create(new_topic("orders", configs={"min.compaction.lag.ms": "500"})))
    answer = only_result(
        send(broker, incremental(change(BROKER, "1", ("log.cleaner.max.compaction.lag.ms", SET, "100"))))
    )
    assert answer.error_code is ErrorCode.invalid_request
    assert "min.compaction.lag.ms (500)" in answer.error_message
    assert broker.config.dynamic_broker == {}


def test_cordoned_log_dirs_can_be_set_for_a_single_broker_only(broker, tmp_path):
    """KafkaConfig: of all dynamic properties without a listener, cordoned.log.dirs alone is a single broker's."""
    cordoned = ("cordoned.log.dirs", SET, str(tmp_path))
    refused = only_result(send(broker, incremental(change(BROKER, "", cordoned))))
    assert refused.error_code is ErrorCode.invalid_request
    assert "default cluster level, broker id must be specified: [cordoned.log.dirs]" in refused.error_message
    assert only_result(send(broker, incremental(change(BROKER, "1", cordoned)))).error_code is ErrorCode.none


def test_unknown_broker_property_is_refused_unlike_in_kafka(broker):
    answer = only_result(send(broker, incremental(change(BROKER, "1", ("message.max.byte", SET, "1")))))
    assert answer.error_code is ErrorCode.invalid_request
    assert "message.max.byte" in answer.error_message


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        ("0", "Log cleaner threads should be at least 1"),
        ("3", "Log cleaner threads cannot be increased to more than double the current value 1"),
        ("2", None),
    ],
)
def test_cleaner_threads_change_by_a_factor_of_two_at_most(broker, wanted, what):
    found = only_result(send(broker, incremental(change(BROKER, "1", ("log.cleaner.threads", SET, wanted)))))
    assert found.error_message == what
    assert found.error_code is (ErrorCode.none if what is None else ErrorCode.invalid_request)
    if what is None:
        again = only_result(send(broker, incremental(change(BROKER, "1", ("log.cleaner.threads", SET, "4")))))
        assert again.error_code is ErrorCode.none
        down = only_result(send(broker, incremental(change(BROKER, "1", ("log.cleaner.threads", SET, "1")))))
        assert down.error_message == "Log cleaner threads cannot be reduced to less than half the current value 4"


@pytest.mark.parametrize(("name", "now"), [("num.io.threads", 8), ("background.threads", 10)])
def test_thread_pools_change_by_a_factor_of_two_at_most(broker, name, now):
    def changed(wanted):
        return only_result(send(broker, incremental(change(BROKER, "1", (name, SET, str(wanted))))))

    refused = changed(2 * now + 1)
    assert refused.error_code is ErrorCode.invalid_request
    what = f"failed for {name}={2 * now + 1}, value should not be greater than double the current value {now}"
    assert what in refused.error_message
    assert f"value should be at least half the current value {now}" in changed(1).error_message
    assert changed(2 * now).error_code is ErrorCode.none


@pytest.mark.parametrize("resource", ["", "1"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max.connections", "Invalid max.connections 0"),
        ("max.connection.creation.rate", "Invalid max.connection.creation.rate 0"),
        ("max.connections.per.ip", "max.connections.per.ip can be set to zero only if"),
    ],
)
def test_limit_that_refuses_all_connections_is_refused(broker, resource, name, said):
    refused = only_result(send(broker, incremental(change(BROKER, resource, (name, SET, "0")))))
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message.startswith(said)
    assert described_value(broker, BROKER, "1", name) == str(2**31 - 1)
