"""The pytest fixture `kafkalog_broker`: each test gets a broker of its own.

@pytest.mark.kafkalog(topics={"orders": 4}, security="SASL_SSL", users={"alice": "secret"})
def test_alice_can_produce(kafkalog_broker):
    producer = Producer({"bootstrap.servers": kafkalog_broker.bootstrap, **kafkalog_broker.client("alice")})
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkalog_broker.testing import RunningBroker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafkalog(properties={}, topics={}, security='SSL', users={}, acls=[]): arguments for the fixture "
        "kafkalog_broker",
    )


@pytest.fixture
def kafkalog_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    """A running broker on a free port; its log directory is below tmp_path. Stopped cleanly after the test."""
    # Imported here, because pytest loads this module in every project where kafkalog is installed.
    from kafkalog_broker.runtime.optional_packages import importing
    from kafkalog_spark.errors import OptionError

    try:
        with importing():
            from kafkalog_broker.testing import running_broker
    except OptionError as error:
        pytest.fail(f"the fixture kafkalog_broker: {error}", pytrace=False)

    marker = request.node.get_closest_marker("kafkalog")
    with running_broker(log_dir=tmp_path / "kafkalog-data", **(marker.kwargs if marker is not None else {})) as broker:
        yield broker
