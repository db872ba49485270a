"""The bank under kill -9: committed transfers are there whole, others not at all, in every reader."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker.testing import RunningBroker
from tests.broker.clients import bank

TELLERS = 4


def rounds_of_crashes(directory: Path, rounds: int, seed: int) -> tuple[RunningBroker, list[bank.Outcomes]]:
    """Tellers work over `rounds` kills; then all transactions have ended and the broker runs."""
    moments = random.Random(seed)
    broker = RunningBroker(directory / "data", bank.PROPERTIES)
    broker.start()
    broker.create_topic(bank.TOPIC, bank.PARTITIONS)
    tellers = [bank.Teller(broker.bootstrap, number, seed * 100 + number) for number in range(TELLERS)]
    for teller in tellers:
        teller.start()
    for number in range(rounds):
        time.sleep(moments.uniform(0.5, 1.5))  # the load is what a kill has to meet, at any moment
        aborted = [set(teller.outcomes.aborted) for teller in tellers]
        if number % 2:
            bank.read_with_our_reader(broker.log_dir).check(transfer for told in aborted for transfer in told)
        broker.kill()
        if number % 3 == 0:
            bank.read_with_our_reader(broker.log_dir).check(transfer for told in aborted for transfer in told)
        broker.start()
    time.sleep(0.5)
    for teller in tellers:
        teller.stop.set()
    for teller in tellers:
        teller.join(120)
        assert not teller.is_alive(), "a producer hangs"
    assert [teller.failed for teller in tellers] == [[]] * TELLERS
    bank.wait_until_stable(broker)
    return broker, [teller.outcomes for teller in tellers]


def audit(broker: RunningBroker, outcomes: list[bank.Outcomes]) -> None:
    """Every reader sees the same, and it is right."""
    ways = sum((told.ways for told in outcomes), start=Counter[str]())
    assert ways["commit"] > 20, ways
    assert ways["abort"] > 0, ways
    seen = bank.read_with_librdkafka(broker.bootstrap)
    seen.check_whole(outcomes)
    live = bank.read_with_our_reader(broker.log_dir)
    live.check_whole(outcomes)
    assert live.records == seen.records
    broker.kill()
    assert bank.read_with_our_reader(broker.log_dir).records == seen.records
    broker.start()
    assert bank.read_with_librdkafka(broker.bootstrap).records == seen.records
    broker.stop()
    assert bank.read_with_our_reader(broker.log_dir).records == seen.records


def test_the_sum_over_all_accounts_stays_over_a_few_crashes(tmp_path: Path) -> None:
    audit(*rounds_of_crashes(tmp_path, rounds=3, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_sum_over_all_accounts_stays_over_thirty_crashes(tmp_path: Path, spark: Any) -> None:
    broker, outcomes = rounds_of_crashes(tmp_path, rounds=30, seed=2)
    audit(broker, outcomes)
    ways = sum((told.ways for told in outcomes), start=Counter[str]())
    assert ways["timeout"] > 0, ways
    assert ways["fenced"] > 0, ways
    table = spark.read.format("kafkalog").option("path", str(broker.log_dir)).option("subscribe", bank.TOPIC)
    rows = table.option("isolationLevel", "read_committed").load().select("partition", "offset", "value").collect()
    found: list[list[tuple[int, bank.Record]]] = [[] for _ in range(bank.PARTITIONS)]
    for row in sorted(rows):
        found[row.partition].append((row.offset, bank.Record.read(bytes(row.value))))
    bank.Seen(found).check_whole(outcomes)
