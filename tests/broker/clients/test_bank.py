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
from tests.spark.streams import frame_of, ran, running

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


def read_with_spark(spark: Any, log_dir: Path) -> list[bank.Visible]:
    table = spark.read.format("kafkalog").option("path", str(log_dir)).option("subscribe", bank.TOPIC)
    rows = table.option("isolationLevel", "read_committed").load().select("partition", "offset", "value").toArrow()
    found: list[bank.Visible] = [[] for _ in range(bank.PARTITIONS)]
    for partition, offset, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        found[partition].append((offset, bank.Record.read(value)))
    return [sorted(records) for records in found]


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


def audit_with_spark(spark: Any, directory: Path, rounds: int, seed: int) -> Counter[str]:
    """Spark reads the live directory all the time, in batches and as a stream. How transfers ended."""
    with opened(directory) as broker:
        live = bank.LiveReads(broker, lambda: read_with_spark(spark, broker.log_dir))
        frame = frame_of(spark, broker.log_dir, subscribe=bank.TOPIC, startingOffsets="earliest",
                         isolationLevel="read_committed")  # fmt: skip
        with running(frame, directory / "checkpoint") as stream:
            outcomes = rounds_of_crashes(broker, rounds, seed, live)
            assert stream.query.exception() is None
        audit(broker, outcomes)
    final = read_with_spark(spark, broker.log_dir)
    bank.Seen(final).check_whole(outcomes)
    live.check(final)
    assert stream.values, "the stream met nothing of the load"
    stream.batches |= ran(frame, directory / "checkpoint").batches  # a batch that was stopped comes again
    assert sorted(stream.values) == sorted(record.text for records in final for _, record in records)
    return sum((told.ways for told in outcomes), start=Counter[str]())


def test_the_sum_over_all_accounts_stays_over_a_few_crashes(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        audit(broker, rounds_of_crashes(broker, rounds=3, seed=1))


def test_spark_sees_no_transfer_that_is_not_committed_while_the_broker_crashes(tmp_path: Path, spark: Any) -> None:
    audit_with_spark(spark, tmp_path, rounds=2, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_sum_over_all_accounts_stays_over_thirty_crashes(tmp_path: Path, spark: Any) -> None:
    ways = audit_with_spark(spark, tmp_path, rounds=30, seed=2)
    assert ways["timeout"] > 0, ways
    assert ways["fenced"] > 0, ways
