"""kill -9 under load: acknowledged records are in the log exactly once, in order; committed offsets never decrease."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker
from tests.broker.clients.helpers.crash_load import BROKER_PROPERTIES, PARTITIONS, TOPIC, TOPIC_CONFIG, CrashLoad

pytestmark = pytest.mark.end_to_end


def crash_rounds(directory: Path, rounds: int, seed: int) -> None:
    """Four idempotent producers, a group of four and an offline reader go on over `rounds` kills."""
    broker = RunningBroker(directory / "data", BROKER_PROPERTIES)
    broker.start()
    broker.create_topic(TOPIC, PARTITIONS, TOPIC_CONFIG)
    with CrashLoad(broker) as load:
        load.rounds(rounds, seed)
        load.finish()
        broker.stop()
        load.check_directory("after a clean stop", closed=True)
    assert "is offline" not in broker.log()


def test_few_crashes_under_load_lose_and_duplicate_no_record(tmp_path: Path) -> None:
    crash_rounds(tmp_path, rounds=3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thirty_crashes_under_load_lose_and_duplicate_no_record(tmp_path: Path) -> None:
    crash_rounds(tmp_path, rounds=30, seed=2)
