"""Loads and streams over the log directories of several brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import NotALogDirectory
from tests.log.helpers.copies import IDS, copy_of, two_brokers
from tests.source.helpers.driver import Load, read
from tests.source.helpers.made_logs import append, numbers
from tests.source.helpers.stream_driver import Query


def _values(*paths: Path, **options: Any) -> list[str]:
    return sorted(value.decode() for value in read(*paths, **options)["value"].to_pylist())


def test_internal_topics_in_several_directories_do_not_prevent_a_read(tmp_path: Path) -> None:
    brokers = two_brokers(tmp_path)
    assert _values(*brokers, subscribe="orders") == sorted([*numbers(0, 5), *numbers(10, 13)])
    assert _values(*brokers, subscribe="orders", replicas="error") == sorted([*numbers(0, 5), *numbers(10, 13)])
    assert _values(*brokers, assign='{"orders":[1]}') == numbers(10, 13)


def test_replicated_partition_is_read_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = two_brokers(tmp_path)
    copy_of(second, "orders", 0, numbers(0, 4), topic_id=IDS[0])  # a follower that lags
    assert _values(first, second, assign='{"orders":[0]}') == numbers(0, 5)
    assert _values(second, first, assign='{"orders":[0]}') == numbers(0, 5)
    assert len(caplog.messages) == 2
    with pytest.raises(NotALogDirectory, match=r"orders-0 .* the partition lies in .* too"):
        Load(first, second, subscribe="orders", replicas="error").scan()


def test_topic_of_two_clusters_is_refused_by_name(tmp_path: Path) -> None:
    copy_of(tmp_path / "a", "orders", 0, numbers(0, 5), topic_id=IDS[0])
    copy_of(tmp_path / "b", "orders", 0, numbers(0, 5), topic_id=IDS[1])
    with pytest.raises(NotALogDirectory, match="different topics named orders"):
        Load(tmp_path / "a", tmp_path / "b", subscribe="orders").scan()
    with pytest.raises(NotALogDirectory, match="different topics named orders"):
        Query(tmp_path / "a", tmp_path / "b", subscribe="orders", startingOffsets="earliest").trigger()


def test_stream_reads_the_replica_that_is_ahead_and_every_record_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for broker in (first, second):
        copy_of(broker, "t", 0, numbers(0, 3))
    query = Query(first, second, subscribe="t", startingOffsets="earliest")
    assert query.trigger() == [numbers(0, 3)]
    append(second, "t", 0, numbers(3, 6))
    assert query.trigger() == [numbers(3, 6)]
    append(first, "t", 0, numbers(3, 8))
    assert query.trigger() == [numbers(6, 8)]
    assert query.trigger() == []
    assert [message.count("replicas=longest") for message in caplog.messages] == [1, 1, 1]  # once for each change


def test_stream_continues_with_the_other_replica_when_one_is_deleted(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for broker in (first, second):
        copy_of(broker, "t", 0, numbers(0, 3))
    query = Query(first, second, subscribe="t", startingOffsets="earliest")
    assert query.trigger() == [numbers(0, 3)]
    (first / "t-0").rename(first / f"t-0.{'0' * 32}-delete")  # the replica has moved to another broker
    append(second, "t", 0, numbers(3, 5))
    assert query.trigger() == [numbers(3, 5)]


def test_stream_follows_a_pattern_to_new_directories(tmp_path: Path) -> None:
    copy_of(tmp_path / "broker-1", "t", 0, numbers(0, 3))
    query = Query(tmp_path / "broker-*", subscribe="t", startingOffsets="earliest")
    assert query.trigger() == [numbers(0, 3)]
    copy_of(tmp_path / "broker-2", "t", 1, numbers(5, 7))
    assert query.trigger() == [numbers(5, 7)]
