"""Copying, local retention, serving and deletion by a running broker, with librdkafka as the client."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.broker.remote.helpers.tiered_broker import (
    configs,
    consumed,
    local_logs,
    produce,
    remote_logs,
    tiered_properties,
    wait_until,
    wait_until_copied,
)


def test_copied_segments_are_deleted_locally_and_remain_readable(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    with RunningBroker(tmp_path / "data", tiered_properties(remote)) as broker:
        broker.create_topic("orders", 1, configs())
        produce(broker.bootstrap, "orders", range(100))
        wait_until_copied(broker, remote, "orders")
        assert len(remote_logs(remote, "orders")) == 6
        expected = [(number, b"%01000d" % number) for number in range(100)]
        assert consumed(broker.bootstrap, "orders", 0, 100) == expected
        assert consumed(broker.bootstrap, "orders", 37, 100) == expected[37:]
        broker.stop()
        broker.start()
        assert consumed(broker.bootstrap, "orders", 0, 100) == expected
        produce(broker.bootstrap, "orders", range(100, 120))
        wait_until(lambda: len(remote_logs(remote, "orders")) == 7, "the next segment is copied")
        wait_until_copied(broker, remote, "orders")
        assert len(consumed(broker.bootstrap, "orders", 0, 120)) == 120
        assert local_logs(broker, "orders")[0].name == "00000000000000000105.log"


def test_tiered_broker_fixture_stores_remote_segments_beside_its_log_directory() -> None:
    topics = {"orders": {"partitions": 1, **configs()}}
    with running_broker(topics=topics, tiered=True) as broker:
        produce(broker.bootstrap, "orders", range(60))
        wait_until(lambda: len(local_logs(broker, "orders")) == 1, broker.log()[-3000:])
        manifests = list(Path(f"{broker.log_dir}-remote").rglob("*.rsm-manifest"))
        assert len(manifests) == 3
        assert [offset for offset, _ in consumed(broker.bootstrap, "orders", 0, 60)] == list(range(60))


def test_start_without_remote_storage_is_refused_while_topics_have_it(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", tiered_properties(tmp_path / "remote")) as broker:
        for name in ("orders", "payments"):
            broker.create_topic(name, 1, configs())
        broker.create_topic("plain", 1)
        produce(broker.bootstrap, "orders", range(3))
        broker.stop()
        broker.properties["remote.log.storage.system.enable"] = "false"
        with pytest.raises(RuntimeError) as refused:
            broker.start()
        assert (
            "You have to delete all topics with the property remote.storage.enable=true before disabling tiered "
            "storage cluster-wide: orders, payments; to keep them, set remote.log.storage.system.enable=true"
        ) in str(refused.value)
        assert "Traceback" not in str(refused.value)
        broker.properties["remote.log.storage.system.enable"] = "true"
        broker.start()
        assert len(consumed(broker.bootstrap, "orders", 0, 3)) == 3


def test_metrics_count_copied_and_fetched_remote_bytes(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    with RunningBroker(tmp_path / "data", tiered_properties(remote), metrics=True) as broker:
        broker.create_topic("orders", 1, configs())
        produce(broker.bootstrap, "orders", range(50))
        wait_until_copied(broker, remote, "orders")
        consumed(broker.bootstrap, "orders", 0, 50)
        with urllib.request.urlopen(broker.metrics_url, timeout=30) as page:
            lines = page.read().decode().splitlines()
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
    size = sum(path.stat().st_size for path in remote_logs(remote, "orders"))
    assert found["kafkalog_remote_copy_bytes_total"] == size > 40_000
    assert found["kafkalog_remote_copy_requests_total"] == 3
    assert found["kafkalog_remote_fetch_bytes_total"] >= size
    assert found['kafkalog_remote_log_size_bytes{topic="orders"}'] == size
    assert found['kafkalog_remote_copy_lag_segments{topic="orders"}'] == 0
    assert found["kafkalog_remote_copy_errors_total"] == found["kafkalog_remote_fetch_errors_total"] == 0
