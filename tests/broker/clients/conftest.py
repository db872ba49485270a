"""One broker for all tests of a file; each uses topics of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalog_broker.testing import RunningBroker, running_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"num.partitions": 2, "group.initial.rebalance.delay.ms": 0}) as running:
        yield running
