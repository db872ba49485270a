"""Any rows, any cut into tasks and Arrow batches, any codec: what is read back is what was written, in order."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searches import examples
from tests.sink.helpers.written_logs import START, check_log, read, table, write
from tests.sink.test_task_writer import plain_murmur2

COUNTS = {"a": 1, "b.b": 3, "c": 7}
FIRST = b"first"  # the record that makes each topic

header = st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.none() | st.binary(max_size=20)})
row = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=20),
        # Hypothesis draws what it finds in our sources, too
        "value": st.none() | st.binary(max_size=300).filter(lambda value: value != FIRST),
        "headers": st.none() | st.lists(header, max_size=3),
        "topic": st.sampled_from(sorted(COUNTS)),
        "partition": st.none() | st.just(0),
    }
)


def expected_headers(given: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    return given or None  # Kafka has no difference between none and an empty list


@st.composite
def tasks(draw: st.DrawFn) -> list[list[list[dict[str, Any]]]]:
    """Of each task its batches, of each batch its rows; the timestamp tells the rows apart, and goes up and down."""
    found = draw(
        st.lists(st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=4), min_size=1, max_size=4)
    )
    number = 0
    for batches in found:
        for batch in batches:
            for one in batch:
                one["timestamp"] = START + number * 7919 % 10_007 * 1000  # of no other row
                one["id"] = number
                number += 1
    return found


def round_trip(made: list[list[list[dict[str, Any]]]], **options: Any) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log_dir = Path(scratch) / "data"
        for topic, count in COUNTS.items():
            write(log_dir, table([{"value": FIRST, "partition": 0}]), topic=topic, numPartitions=count)
        given = [[table({k: v for k, v in r.items() if k != "id"} for r in batch) for batch in task] for task in made]
        write(log_dir, *given, **options)
        check_log(log_dir)
        rows = [r for task in made for batch in task for r in batch]
        found = [r for r in read(log_dir) if r["value"] != FIRST]
        assert len(found) == len(rows)
        waiting = {name: [r for r in rows if r["topic"] == name] for name in COUNTS}
        partitions: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for r in found:
            partitions.setdefault((r["topic"], r["partition"]), []).append(r)
        for (topic, partition), in_log in partitions.items():
            at = -1
            for r in in_log:  # each is one of the rows that are left, behind the one before
                at = next(
                    i["id"]
                    for i in waiting[topic]
                    if i["id"] > at
                    and (i["key"], i["value"], i["timestamp"]) == (r["key"], r["value"], r["timestamp"])
                    and expected_headers(i["headers"]) == r["headers"]
                    and belongs(i, partition)
                )
                waiting[topic] = [i for i in waiting[topic] if i["id"] != at]
        assert not any(waiting.values())


def belongs(given: dict[str, Any], partition: int) -> bool:
    if given["partition"] is not None:
        return bool(given["partition"] == partition)
    if given["key"] is not None:
        return plain_murmur2(given["key"]) % COUNTS[given["topic"]] == partition
    return True


@given(
    tasks(),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.sampled_from([(200, 500), (2000, 3000), ("64k", "1g")]),
)
@settings(max_examples=examples(40))
def test_written_rows_are_read_back(made: list[list[list[dict[str, Any]]]], codec: str, sizes: tuple[Any, Any]) -> None:
    batch_size, segment_bytes = sizes
    limit = {} if segment_bytes == "1g" else {"max_message_bytes": 4000, "segment_bytes": 4000}
    round_trip(made, compression_type=codec, batch_size=batch_size, **limit)


@pytest.mark.slow
@given(tasks(), st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.sampled_from([300, 2000, "64k"]))
@settings(max_examples=600)
def test_many_written_rows_are_read_back(
    made: list[list[list[dict[str, Any]]]], codec: str, batch_size: object
) -> None:
    round_trip(made, compression_type=codec, batch_size=batch_size)
