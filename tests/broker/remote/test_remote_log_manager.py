"""Copying, local retention, serving and deletion by a running broker, with librdkafka as the client."""

from __future__ import annotations

from pathlib import Path

from kafkalog_broker.testing import RunningBroker
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


def test_closed_segments_leave_the_disk_and_are_served(tmp_path: Path) -> None:
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
