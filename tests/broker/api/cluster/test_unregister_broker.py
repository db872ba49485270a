"""UnregisterBroker refuses the running broker."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker, send


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        yield broker


def test_running_broker_is_not_unregistered(broker):
    answer = send(broker, (64, (0,), {"broker_id": broker.node_id}))
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.invalid_request,
        "Broker ID 1 is this broker, which is running",
    )
