"""The bank under kill -9: the load, and checks of what every reader sees."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kafkalog_broker.testing import RunningBroker
from tests.broker.clients.helpers import bank

TELLERS = 4
WAIT_S = 600
"""For what takes seconds on an idle machine: a read by Spark takes minutes beside five other users of two cores."""
COMMITS = 20
"""More of them than this, and an abort, are a load: on a busy machine some seconds alone are none."""


def opened(directory: Path) -> RunningBroker:
    """Create the topics of a bank without transfers."""
    broker = RunningBroker(directory / "data", bank.PROPERTIES)
    broker.start()
    broker.create_topic(bank.TOPIC, bank.PARTITIONS)
    return broker


def rounds_of_crashes(
    broker: RunningBroker,
    rounds: int,
    seed: int,
    live: bank.LiveReads | None = None,
    met: Callable[[], bool] = lambda: True,
) -> list[bank.Outcomes]:
    """Run tellers and `live` reads over `rounds` kills; at the end all transactions have ended and the broker runs.

    The tellers run until there are enough transfers and `met()` is true, so that other readers have seen some
    transfers.
    """
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
        wait_for(lambda: is_load(tellers) and met(), "the tellers do not get on")
        for teller in tellers:
            teller.stop.set()
        for teller in tellers:
            teller.join(120)
            assert not teller.is_alive(), "a producer hangs"
        failed = [text for teller in tellers for text in teller.failed]
        assert not failed, failed
        bank.wait_until_stable(broker)
    finally:
        for actor in actors:
            actor.stop.set()
    if live:
        live.join(120)
        assert not live.is_alive(), "a read hangs"
    return [teller.outcomes for teller in tellers]


def wait_for_reads(live: bank.LiveReads, reads: int) -> None:
    """Wait for further live reads, so that there are reads before and after each kill."""

    def there() -> bool:
        assert live.failed == []
        return live.reads >= reads

    wait_for(there, "a read hangs")


def wait_for(reached: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < end, otherwise
        time.sleep(0.01)


def is_load(tellers: list[bank.Teller]) -> bool:
    """Return whether there are enough transfers for a check, or a teller has failed."""
    ways = sum((Counter(teller.outcomes.ways) for teller in tellers), start=Counter[str]())
    return (ways["commit"] > COMMITS and ways["abort"] > 0) or any(teller.failed for teller in tellers)


def audit(broker: RunningBroker, outcomes: list[bank.Outcomes]) -> None:
    """Assert that all readers see the same transfers, and that these are the committed ones."""
    ways = sum((told.ways for told in outcomes), start=Counter[str]())
    assert ways["commit"] > COMMITS, ways
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
