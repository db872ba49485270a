"""Spark reads the bank live, in batches and as a stream, while the broker is killed: read_committed shows no transfer
that is not committed, and each one whole in the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.broker.clients.helpers import bank
from tests.broker.clients.helpers.bank_crashes import audit, opened, rounds_of_crashes
from tests.spark.helpers.streams import frame_of, ran, running

pytestmark = pytest.mark.end_to_end


def read_with_spark(spark: Any, log_dir: Path) -> list[bank.Visible]:
    table = spark.read.format("kafkalog").option("path", str(log_dir)).option("subscribe", bank.TOPIC)
    rows = table.option("isolationLevel", "read_committed").load().select("partition", "offset", "value").toArrow()
    found: list[bank.Visible] = [[] for _ in range(bank.PARTITIONS)]
    for partition, offset, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        found[partition].append((offset, bank.Record.read(value)))
    return [sorted(records) for records in found]


def audit_with_spark(spark: Any, directory: Path, rounds: int, seed: int) -> Counter[str]:
    """Spark reads the live directory all the time, in batches and as a stream. How transfers ended."""
    with opened(directory) as broker:
        live = bank.LiveReads(broker, lambda: read_with_spark(spark, broker.log_dir))
        frame = frame_of(spark, broker.log_dir, subscribe=bank.TOPIC, startingOffsets="earliest",
                         isolationLevel="read_committed")  # fmt: skip
        with running(frame, directory / "checkpoint") as stream:

            def met() -> bool:
                assert stream.query.exception() is None
                return bool(stream.values)

            outcomes = rounds_of_crashes(broker, rounds, seed, live, met)
            assert stream.query.exception() is None
        audit(broker, outcomes)
    final = read_with_spark(spark, broker.log_dir)
    bank.Seen(final).check_whole(outcomes)
    live.check(final)
    assert stream.values, "the stream met nothing of the load"
    stream.batches |= ran(frame, directory / "checkpoint").batches  # a batch that was stopped comes again
    assert sorted(stream.values) == sorted(record.text for records in final for _, record in records)
    return sum((told.ways for told in outcomes), start=Counter[str]())


@pytest.mark.timeout(900)  # each wait for something has its own limit; with several users a machine needs minutes
def test_read_committed_shows_no_uncommitted_transfer_over_a_broker_crash(tmp_path: Path, spark: Any) -> None:
    audit_with_spark(spark, tmp_path, rounds=1, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sum_of_all_accounts_is_constant_over_thirty_crashes(tmp_path: Path, spark: Any) -> None:
    ways = audit_with_spark(spark, tmp_path, rounds=30, seed=2)
    assert ways["timeout"] > 0, ways
    assert ways["fenced"] > 0, ways
