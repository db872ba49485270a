"""Changes to the configuration of a topic."""

from __future__ import annotations

from tests.broker.api.helpers.admin_broker import AdminBroker, described_value, send
from tests.broker.api.helpers.admin_scenario import SET, TOPIC, change, create, incremental, new_topic


def test_topic_config_is_in_effect_at_once_and_after_a_restart(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        send(broker, create(new_topic("orders", 2)))
        log = broker.log("orders", 1)
        send(broker, incremental(change(TOPIC, "orders", ("retention.ms", SET, "5"))))
        assert log.config.retention_ms == 5
    with AdminBroker(tmp_path / "data") as broker:
        assert broker.log("orders", 1).config.retention_ms == 5
        assert described_value(broker, TOPIC, "orders", "retention.ms") == "5"
