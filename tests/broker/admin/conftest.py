"""A broker for admin requests."""

from __future__ import annotations

import pytest

from tests.broker.api.helpers.admin_broker import AdminBroker


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        yield broker
