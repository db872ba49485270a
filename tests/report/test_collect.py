"""The facts of a report against the tables that they are made of, asked in SQL, and against what the directory was made
of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafkalog_spark.errors import UnknownPartition
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.report import batch_totals
from kafkalog_spark.report import collect as collect_module
from kafkalog_spark.report.collect import collect
from kafkalog_spark.report.facts import Facts
from tests.log.helpers.batch_builder import V2Record, batch
from tests.report import shop_directory as shop


def facts_of(root: Path, *top_keys: str, check: bool = True) -> Facts:
    return collect(LogDirs.open(root), 0, lambda *_: None, top_keys=top_keys, with_check=check)


def sql(root: Path, query: str) -> list[tuple[Any, ...]]:
    batches = LogDirs.open(root).table("batches").read_all()
    assert batches.num_rows
    found: list[tuple[Any, ...]] = duckdb.sql(query).fetchall()
    return found


@pytest.mark.parametrize("which", ["shop", "golden"])
def test_sums_equal_the_batches_table(which: str, shop_dir: Path, facts: Facts, golden: Path) -> None:
    root = shop_dir
    if which == "golden":
        root, facts = golden, facts_of(golden, check=False)
    said = sql(
        root,
        "SELECT topic, codec, count(*), sum(record_count)::BIGINT, sum(size)::BIGINT, "
        "epoch_ms(max(max_timestamp)) FROM batches WHERE valid GROUP BY ALL",
    )
    found = {
        (topic.topic, codec.codec): (codec.batches, codec.records, codec.size)
        for topic in facts.topics
        for codec in topic.codecs
    }
    assert found == {(topic, codec): (batches, records, size) for topic, codec, batches, records, size, _ in said}
    newest = {topic: max(at for name, *_, at in said if name == topic) for topic, *_ in said}
    assert {topic.topic: topic.last_timestamp for topic in facts.topics} == newest
    timed = sum(sum(series.records) for series in facts.rates) + facts.outside
    assert timed == sum(records for *_, records, _, _ in said)
    assert sum(producer.size for producer in facts.producers) == sum(size for *_, size, _ in said)


def test_compression_ratios_equal_the_batches(shop_dir: Path, facts: Facts) -> None:
    batches = LogDirs.open(shop_dir).table("batches", columns=["topic", "codec", "size", "compression_ratio"])
    found = batches.read_all()
    assert found.num_rows
    exact = duckdb.sql(
        "SELECT topic, sum(size * compression_ratio) / sum(size) FROM found WHERE codec <> 'none' GROUP BY topic"
    ).fetchall()
    sampled = {codec.topic: codec.ratio for topic in facts.topics for codec in topic.codecs if codec.ratio is not None}
    assert sampled.keys() == {"clicks", "orders", "payments", "stock"}
    for topic, ratio in exact:
        assert sampled[topic] == pytest.approx(ratio, rel=0.35)  # eight batches of hundreds


def test_compression_ratios_are_exact_when_every_batch_is_decompressed(golden: Path) -> None:
    facts = facts_of(golden, check=False)
    found = {codec.topic: codec for topic in facts.topics for codec in topic.codecs if codec.batches == 3}
    batches = LogDirs.open(golden).table("batches", "large", columns=["codec", "size", "compression_ratio"])
    rows = [row for row in batches.read_all().to_pylist() if row["codec"] == "zstd"]
    assert len(rows) == 3
    expected = sum(row["size"] * row["compression_ratio"] for row in rows) / sum(row["size"] for row in rows)
    assert found["large"].ratio == pytest.approx(expected)


def test_facts_equal_the_contents_of_the_shop(facts: Facts) -> None:
    assert facts.cluster_ids == ("shop-cluster",)
    assert [topic.topic for topic in facts.topics] == [
        "clicks", "orders", "payments", "audit", "stock", "__consumer_offsets", "__transaction_state",
    ]  # fmt: skip
    by_name = {f"{one.topic}-{one.partition}": one for one in facts.partitions}
    pauses = {name: one.longest_pause for name, one in by_name.items() if one.longest_pause and name[0] != "_"}
    assert {name for name, pause in pauses.items() if pause > (len(shop.OUTAGE) - 1) * shop.HOUR} == {
        "payments-0", "payments-1",
    }  # fmt: skip
    assert by_name["stock-0"].missing > 50
    assert by_name["stock-0"].missing == by_name["stock-0"].log_end_offset - by_name["stock-0"].records
    assert [name for name, one in by_name.items() if one.damaged_bytes] == [shop.DAMAGED]
    assert (facts.errors, facts.notes) == (1, 0)
    assert [f"{found['topic']}-{found['partition']}" for found in facts.findings] == [shop.DAMAGED]
    (opened,) = facts.open_transactions
    assert (opened["topic"], opened["partition"], opened["producer_id"]) == ("orders", 1, shop.OPEN_PRODUCER)
    assert (opened["transactional_id"], opened["state"], opened["records"]) == ("refund-service", "open", 1)
    assert [group["group_id"] for group in facts.groups] == ["dashboard", "fraud", "billing"]
    for lag in facts.lags:
        end = by_name[f"{lag['topic']}-{lag['partition']}"].log_end_offset
        assert (lag["log_end_offset"], lag["lag"]) == (end, end - shop.committed(lag["group_id"], end, 2))
    assert {producer.producer_id for producer in facts.producers} == {-1, shop.PRODUCER, shop.OPEN_PRODUCER}


def test_most_frequent_keys_equal_those_of_the_records(shop_dir: Path, facts: Facts) -> None:
    keys: Counter[bytes] = Counter()
    for rows in LogDirs.open(shop_dir).scan("orders", columns=("key",)):
        keys.update(rows.column(0).to_pylist())
    (found,) = facts.top_keys
    assert (found.topic, found.records, found.missed) == ("orders", keys.total(), 0)
    assert {key.key: key.records for key in found.keys}.items() <= dict(keys).items()
    assert [key.records for key in found.keys] == sorted(keys.values(), reverse=True)[:25]


def test_errors_are_shown_despite_many_earlier_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn tail is a note, a damaged batch with a good one after it is an error; the last partition has that."""
    monkeypatch.setattr(collect_module, "MAX_FINDINGS", 3)
    good = batch(0, [V2Record(0, shop.START, None, b"v" * 20)])
    after = batch(1, [V2Record(1, shop.START, None, b"v" * 20)])
    for partition in range(7):
        directory = tmp_path / f"orders-{partition}"
        directory.mkdir()
        data = good + after[:-3] if partition < 5 else good[:-1] + b"!" + after
        (directory / f"{segment_name(0)}.log").write_bytes(data)
    facts = facts_of(tmp_path)
    assert (facts.notes or 0) >= 5
    assert facts.errors == 2
    assert [(found["severity"], found["topic"], found["partition"]) for found in facts.findings] == [
        ("error", "orders", 5), ("error", "orders", 6), ("note", "orders", 0),
    ]  # fmt: skip


def test_segments_of_a_long_timeline_are_merged(shop_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_totals, "MAX_SEGMENTS", 2)
    facts = facts_of(shop_dir, check=False)
    segments = LogDirs.open(shop_dir).table("segments", "clicks").read_all().to_pylist()
    for partition in range(shop.PARTITIONS["clicks"]):
        of = [segment for segment in facts.segments if (segment.topic, segment.partition) == ("clicks", partition)]
        real = [row for row in segments if row["partition"] == partition]
        assert len(of) <= 4 < len(real)
        assert sum(segment.segments for segment in of) == len(real)
        damaged = sum(row["damaged_bytes"] for row in real)
        assert sum(segment.size for segment in of) == sum(row["size"] for row in real) - damaged
        assert of[0].base_offset == real[0]["segment"]


def test_unknown_topic_is_an_error_and_an_old_format_is_accepted(shop_dir: Path, golden_legacy: Path) -> None:
    with pytest.raises(UnknownPartition, match="topic shoes"):
        facts_of(shop_dir, "shoes")
    facts = facts_of(golden_legacy)
    by_topic = {topic.topic: topic for topic in facts.topics}
    assert by_topic["v1-none"].records == by_topic["v0-none"].records == 500
    assert by_topic["v1-gzip"].records == 500  # a wrapper says its last offset only
    assert by_topic["v0-none"].first_timestamp is None
