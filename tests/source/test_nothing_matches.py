"""A read that finds nothing says what it looked for, where, and what is there instead."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import KafkalogError, NotALogDirectory, UnknownPartition
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.source.subscription import Subscription, unmatched_warning
from tests.source.helpers.driver import read
from tests.source.helpers.made_logs import append, numbers
from tests.source.helpers.stream_driver import Query

PRESENT = [("orders", 0), ("orders", 1), ("users", 0), ("__consumer_offsets", 0)]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    append(tmp_path / "logs", "orders", 0, numbers(0, 10), roll_first=True)
    append(tmp_path / "logs", "orders", 0, numbers(10, 20), roll_first=True)
    append(tmp_path / "logs", "orders", 1, numbers(20, 30))
    return tmp_path / "logs"


def compress(directory: Path, *base_offsets: int) -> None:
    for base_offset in base_offsets:
        log = directory / f"{base_offset:020d}.log"
        log.with_name(f"{log.name}.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(NotALogDirectory) as caught:
        read(path, **options)
    return str(caught.value)


HOLDS = "it holds __consumer_offsets, orders, users"


@pytest.mark.parametrize(
    ("subscription", "says"),
    [
        (Subscription(), None),
        (Subscription(partitions=(("orders", 1), ("users", 0))), None),
        (
            Subscription(partitions=(("orders", 1), ("orders", 7))),
            "option 'assign': /logs holds no orders-7, which are left out; it holds orders-0, orders-1",
        ),
        (Subscription(pattern="^ord"), None),
        (Subscription(pattern="^con"), f"option 'subscribePattern': '^con' matches no topic in /logs; {HOLDS}"),
        (Subscription(topics=("users",)), None),
        (Subscription(topics=("users", "pay")), f"option 'subscribe': /logs holds no topic pay; {HOLDS}"),
    ],
)
def test_subscription_without_a_match_names_the_existing_topics(subscription: Subscription, says: str | None) -> None:
    assert unmatched_warning(subscription, PRESENT, ["/logs"]) == says


def test_subscription_to_an_internal_topic_names_the_option_that_reads_it() -> None:
    assert unmatched_warning(Subscription(topics=("users", "__consumer_offsets")), PRESENT, ["/logs"]) == (
        "option 'subscribe' never reads internal topics, as in Spark's Kafka source: __consumer_offsets is left out; "
        "assign reads it, and so do tables (docs/tables.md)"
    )


def test_read_of_a_directory_without_topics_names_the_directory() -> None:
    assert unmatched_warning(Subscription(), [], ["/logs"]) == "/logs holds no topic"
    assert unmatched_warning(Subscription(), PRESENT[3:], ["/logs"]) == "/logs holds no topic that is not internal"


def test_unknown_topic_names_similar_ones(logs: Path) -> None:
    append(logs, "orders.eu", 0, numbers(0, 1))
    with pytest.raises(UnknownPartition, match=r"no topic order; did you mean orders, orders\.eu\? It holds orders, "):
        read(logs, subscribe="order")
    with pytest.raises(UnknownPartition, match=r"no topic Orders_EU; did you mean orders\.eu, orders\? "):
        read(logs, subscribe="Orders_EU")


@pytest.mark.local_only("it names local paths")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"assign": '{"orders":[1,7]}'}, "option 'assign': {} holds no orders-7"),
        ({"subscribePattern": "payments"}, "option 'subscribePattern': 'payments' matches no topic in {}; it holds"),
    ],
)
def test_batches_and_streams_warn_of_a_subscription_without_a_match(
    logs: Path, options: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = read(logs, **options).num_rows
    assert rows == (10 if "assign" in options else 0)
    assert caplog.text.count(says.format(logs)) == 1
    caplog.clear()
    query = Query(logs, startingOffsets="earliest", **options)
    for _ in range(3):
        query.trigger()
    assert caplog.text.count(says.format(logs)) == 1


@pytest.mark.local_only("it names local paths")
def test_table_of_a_topic_that_is_missing_warns(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(logs, table="consumer_offsets", allTopics=False).num_rows == 0
    text = f"table consumer_offsets is made of topic __consumer_offsets, of which {logs} holds no partition"
    assert caplog.text.count(text) == 1
    assert LogDirs.open(logs).table("consumer_offsets").read_all().num_rows == 0
    assert caplog.text.count(text) == 2


@pytest.mark.local_only("it names local paths")
def test_partition_with_compressed_segments_warns_of_missing_rows(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    compress(logs / "orders-0", 0)
    assert read(logs, subscribe="orders").num_rows == 20
    assert (
        f"rows may be missing: {logs}/orders-0 holds 1 compressed segment (00000000000000000000.log.gz), not read: "
        "decompress first; the log begins at offset 10" in caplog.text
    )
    caplog.clear()
    compress(logs / "orders-0", 10)
    assert read(logs, subscribe="orders").num_rows == 10
    assert f"{logs}/orders-0 holds no segment: it holds 2 compressed segments (00000000000000000000.log.gz, ...)" in (
        caplog.text
    )
    caplog.clear()
    query = Query(logs, startingOffsets="earliest")
    query.trigger()
    query.trigger()
    assert caplog.text.count("rows may be missing") == 1


@pytest.mark.local_only("it names local paths")
def test_partition_whose_segments_are_one_level_deeper_warns(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (logs / "orders-0").rename(logs / "data")
    (logs / "orders-0").mkdir()
    (logs / "data").rename(logs / "orders-0" / "data")
    assert read(logs, subscribe="orders").num_rows == 10
    assert f"{logs}/orders-0 holds no segment: the segments are one level deeper, in {logs}/orders-0/data" in (
        caplog.text
    )


@pytest.mark.local_only("it names local paths")
def test_empty_partition_does_not_suggest_the_log_directory_that_was_given(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (logs / "orders-2").mkdir()
    assert read(logs, subscribe="orders").num_rows == 30
    assert f"rows may be missing: {logs}/orders-2 holds no segment" in caplog.text
    assert "give that" not in caplog.text


def test_complete_log_directory_gives_no_warning(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        assert read(logs, subscribe="orders").num_rows == 30
    assert "missing" not in caplog.text


@pytest.mark.local_only("it names local paths")
def test_partition_directory_of_compressed_segments_is_refused(logs: Path) -> None:
    compress(logs / "orders-0", 0, 10)
    assert refusal(logs / "orders-0") == (
        f"{logs}/orders-0: the partition's directory holds no segment (.log file); it holds 2 compressed segments "
        "(00000000000000000000.log.gz, ...), not read: decompress first"
    )


@pytest.mark.local_only("it names local paths")
def test_parent_of_log_directories_names_them(logs: Path) -> None:
    assert refusal(logs.parent, subscribe="orders") == (
        f"{logs.parent}: is not a Kafka log directory: no <topic>-<partition> directory in it; {logs} is a log "
        "directory: give that"
    )
    logs.rename(logs.with_name("broker-0"))  # named like a partition
    append(logs.with_name("broker-1"), "orders", 2, numbers(0, 1))
    assert f"; {logs.parent}/broker-0, {logs.parent}/broker-1 are log directories: give these" in refusal(
        logs.parent, allTopics=True
    )


@pytest.mark.parametrize("exists", [False, True])
def test_path_one_level_too_deep_names_the_log_directory(logs: Path, exists: bool) -> None:
    inner = logs / "orders"
    if exists:
        inner.mkdir()
        assert refusal(inner, allTopics=True).endswith(f"; {logs} is a log directory: give that")
    else:
        text = refusal(inner, allTopics=True)
        assert text == f"{inner}: does not exist; {logs} holds orders-0, orders-1: give {logs}, and subscribe=orders"


@pytest.mark.local_only("it names local paths")
@pytest.mark.parametrize("kind", ["delete", "stray"])
def test_path_of_a_deleted_topic_names_no_partitions_of_it(logs: Path, kind: str) -> None:
    (logs / f"prices-0.{'0' * 32}-{kind}").mkdir()
    assert refusal(logs / "prices", allTopics=True) == (
        f"{logs}/prices: does not exist; {logs} is a log directory: give that"
    )


@pytest.mark.local_only("it makes directories without files")
@pytest.mark.parametrize(("empty", "rest"), [(5, ""), (6, "; and 1 more partition"), (7, "; and 2 more partitions")])
def test_only_some_partitions_without_segments_are_named(
    logs: Path, caplog: pytest.LogCaptureFixture, empty: int, rest: str
) -> None:
    for partition in range(empty):
        (logs / f"prices-{partition}").mkdir()
    read(logs, subscribe="prices")
    (warning,) = [record.message for record in caplog.records if "rows may be missing" in record.message]
    assert warning.endswith(f"prices-4 holds no segment{rest}")


def test_directory_of_archived_partitions_names_the_archives(tmp_path: Path) -> None:
    for name in ("orders-0.tar.gz", "orders-1.tar.gz"):
        (tmp_path / name).touch()
    assert "it holds archives named like partitions (orders-0.tar.gz, orders-1.tar.gz): unpack them" in refusal(
        tmp_path, allTopics=True
    )


def test_every_error_is_one_line(logs: Path) -> None:
    for path in (logs.parent, logs / "orders", logs / "orders-0" / "more"):
        with pytest.raises(KafkalogError) as caught:
            read(path, allTopics=True)
        assert "\n" not in str(caught.value)
