"""The bank under kill -9: the load, and what every reader must see of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from kafkalog_broker.testing import RunningBroker
from tests.broker.clients import bank

TELLERS = 4


def opened(directory: Path) -> RunningBroker:
    """A bank nobody has come to yet."""
    broker = RunningBroker(directory / "data", bank.PROPERTIES)
    broker.start()
    broker.create_topic(bank.TOPIC, bank.PARTITIONS)
    return broker


def rounds_of_crashes(
    broker: RunningBroker, rounds: int, seed: int, live: bank.LiveReads | None = None
) -> list[bank.Outcomes]:
    """Tellers work over `rounds` kills, and `live` reads; then all transactions have ended and the broker runs."""
    moments = random.Random(seed)
    tellers = [bank.Teller(broker.bootstrap, number, seed * 100 + number) for number in range(TELLERS)]
    actors: list[bank.Teller | bank.LiveReads] = [*tellers, *([live] if live else [])]
    for actor in actors:
        actor.start()
    try:
        for number in range(rounds):
            time.sleep(moments.uniform(0.5, 1.5))  # the load is what a kill has to meet, at any moment
            aborted = [set(teller.outcomes.aborted) for teller in tellers]
            if number % 2:
                bank.read_with_our_reader(broker.log_dir).check(transfer for told in aborted for transfer in told)
            broker.kill()
            if number % 3 == 0:
                bank.read_with_our_reader(broker.log_dir).check(transfer for told in aborted for transfer in told)
            broker.start()
            if live:
                wait_for_reads(live, live.reads + 1)
        time.sleep(0.5)
        if live:
            wait_for_reads(live, live.reads + 2)  # the second begins while the tellers work, and they go on during it
        for teller in tellers:
            teller.stop.set()
        for teller in tellers:
            teller.join(120)
            assert not teller.is_alive(), "a producer hangs"
        assert [teller.failed for teller in tellers] == [[]] * TELLERS
        bank.wait_until_stable(broker)
    finally:
        for actor in actors:
            actor.stop.set()
    if live:
        live.join(120)
        assert not live.is_alive(), "a read hangs"
    return [teller.outcomes for teller in tellers]


def wait_for_reads(live: bank.LiveReads, reads: int) -> None:
    """So that reads there are, before and after each kill."""
    end = time.monotonic() + 120
    while live.reads < reads:
        assert live.failed == []
        assert time.monotonic() < end, "a read hangs"
        time.sleep(0.01)


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
