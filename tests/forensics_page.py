"""docs/forensics.md: its queries, and what they have to answer over the shop of tests/report/shop_directory.py."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kafkalog_spark.log.log_dir import LogDirs
from tests.pages import listings
from tests.report import shop_directory as shop

PAGE = "docs/forensics.md"
QUERIES = [listing.code for listing in listings(PAGE, "sql")]
Rows = list[dict[str, Any]]


def setup_lines(library: str) -> str:
    """The Python block that makes the views."""
    (code,) = [listing.code for listing in listings(PAGE, "python") if library in listing.code]
    return code


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def check_answers(answers: list[Rows], root: Path, ends: Mapping[str, int]) -> None:
    """answers: rows of each query, in the order of the page; times in UTC."""
    wrote, lost, blocks, where, gone, large, read = answers
    (row,) = wrote
    assert (row["producer_id"], row["transactional_id"], row["state"]) == (shop.PRODUCER, "order-service", "committed")
    _check_lost(lost, root)
    (row,) = blocks
    assert (row["topic"], row["partition"], row["transactional_id"]) == ("orders", 1, "refund-service")
    assert (row["state"], row["first_offset"], row["waiting"]) == ("open", ends["orders-1"] - 1, 1)
    _check_where(where, root)
    assert [dict(row) for row in gone] == [
        {"records_left": 0, "tombstones": 1, "files_to_delete": 0, "batches_before_log_start": 0, "unreadable_bytes": 0}
    ]
    assert {row["producer_id"] for row in large} == {shop.PRODUCER}
    assert {(row["codec"], row["control"]) for row in large} == {("lz4", False), ("none", True)}
    batches = LogDirs.open(root).table("batches", "orders").read_all().to_pylist()
    sizes = [row["size"] for row in batches if row["partition"] == 0]
    assert (sum(row["bytes"] for row in large), sum(row["batches"] for row in large)) == (sum(sizes), len(sizes))
    first = moment(shop.START).date()
    assert {row["day"] for row in large} == {first + timedelta(days) for days in range(3)}
    nine = datetime(2026, 1, 2, 9, tzinfo=UTC)
    assert [(row["topic"], row["partition"], row["next_offset"], row["committed_at"]) for row in read] == [
        ("orders", partition, shop.committed("billing", ends[f"orders-{partition}"], 1), nine) for partition in range(3)
    ]


def _check_lost(rows: Rows, root: Path) -> None:
    """The offsets that are missing are those that no record has."""
    (row,) = rows
    dirs = LogDirs.open(root)
    one = LogDirs({("clicks", 2): dirs.locations["clicks", 2]}, dirs.roots)
    there = {offset for found in one.scan("clicks", columns=("offset",), drop_malformed=True)
             for offset in found.column(0).to_pylist()}  # fmt: skip
    missing = sorted(set(range(max(there))) - there)
    assert list(range(row["first_lost"], row["last_lost"] + 1)) == missing
    assert "CRC-32C does not match" in row["error"]
    assert row["after_time"] < row["before_time"] + timedelta(hours=2)


def _check_where(rows: Rows, root: Path) -> None:
    dirs = LogDirs.open(root)
    expected = [
        (row["partition"], row["offset"], row["timestamp"])
        for found in dirs.scan("payments", columns=("partition", "offset", "timestamp", "key"))
        for row in found.to_pylist()
        if row["key"] == b"user-7"
    ]
    assert [(row["partition"], row["at_offset"], row["timestamp"]) for row in rows] == sorted(expected)
    assert expected
    for row in rows:
        log = dirs.partition("payments", row["partition"])
        with log.open_segment(log.segment_index(row["segment"])) as file:
            header = file.header_at(row["position"])
            assert header is not None
            assert header.base_offset <= row["at_offset"] <= header.last_offset
