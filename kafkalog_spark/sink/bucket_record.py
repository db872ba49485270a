"""A commit record in a bucket, `kafkalog.commits/<20 digits>.json`. To put it, where none is, is the commit.

    {"version": 0, "id": "c0ff...", "job": "9f...", "queries": {"5e4b...": 17},
     "topics": [{"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3}],
     "segments": [{"topic": "orders", "partition": 0, "base_offset": 100, "records": 20, "size": 4711,
                   "leader_epoch": 0, "epochs": [[0, 0]], "replaces_empty": false,
                   "pieces": [{"name": "kafkalog.staged/9f.../0-1a2b3c-0.log", "size": 4711}]}]}

id: of no other record, so that a writer whose answer was lost knows its own. queries: of every streaming query that
ever wrote here, the last micro-batch: the newest record says all. job: null in a record that holds a number's place,
so that a put that was given up cannot come after all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.log.format.checkpoint import EpochEntry
from kafkalog_spark.sink.bucket_names import COMMITS, is_piece_name
from kafkalog_spark.sink.sink_record import (
    NewTopic,
    queries_of,
    topic_name,
    topics_of,
    topics_to_json,
    versioned_json,
    whole_number,
)

VERSION = 0


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """A staged object, its name from the root on. size: bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class BucketSegment:
    """A segment that the commit makes of staged pieces. size: bytes of the .log.

    epochs: what the leader epoch checkpoint is to say first, None when it says so already. replaces_empty: an empty
    segment of the same base offset is there (a broker's active one), whose objects are replaced.
    """

    topic: str
    partition: int
    base_offset: int
    records: int
    size: int
    leader_epoch: int
    pieces: tuple[StagedPiece, ...]
    epochs: tuple[EpochEntry, ...] | None = None
    replaces_empty: bool = False

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(frozen=True)
class BucketRecord:
    """What a commit record says. segments: by partition and offset."""

    id: str
    job: str | None = None
    queries: Mapping[str, int] = field(default_factory=dict)
    topics: tuple[NewTopic, ...] = ()
    segments: tuple[BucketSegment, ...] = ()

    def has_batch(self, query: str, batch: int) -> bool:
        """Whether that micro-batch, or a later one of the query, is in the log."""
        return self.queries.get(query, -1) >= batch

    def by_partition(self) -> dict[tuple[str, int], list[BucketSegment]]:
        """The segments of each partition, by offset."""
        found: dict[tuple[str, int], list[BucketSegment]] = {}
        for segment in self.segments:
            found.setdefault(segment.key, []).append(segment)
        return found


def format_bucket_record(record: BucketRecord) -> bytes:
    """The object's bytes."""
    content = {
        "version": VERSION,
        "id": record.id,
        "job": record.job,
        "queries": dict(record.queries),
        "topics": topics_to_json(record.topics),
        "segments": [
            {
                "topic": segment.topic,
                "partition": segment.partition,
                "base_offset": segment.base_offset,
                "records": segment.records,
                "size": segment.size,
                "leader_epoch": segment.leader_epoch,
                "epochs": None if segment.epochs is None else [list(entry) for entry in segment.epochs],
                "replaces_empty": segment.replaces_empty,
                "pieces": [{"name": piece.name, "size": piece.size} for piece in segment.pieces],
            }
            for segment in record.segments
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode("utf-8")


def parse_bucket_record(data: bytes) -> BucketRecord:
    """Parse an object's bytes. Raises CorruptFile for anything but what `format_bucket_record` writes,
    UnsupportedFormat for the record of a later release."""
    content = versioned_json(data, f"a record of {COMMITS}", VERSION)
    try:
        return BucketRecord(
            str(content["id"]),
            None if content["job"] is None else str(content["job"]),
            queries_of(content["queries"]),
            topics_of(content["topics"]),
            tuple(_segment(entry) for entry in content["segments"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(f"{type(error).__name__}: {error}") from None


def _segment(entry: Any) -> BucketSegment:
    epochs = entry["epochs"]
    return BucketSegment(
        topic=topic_name(entry["topic"]),
        partition=whole_number(entry["partition"]),
        base_offset=whole_number(entry["base_offset"]),
        records=whole_number(entry["records"]),
        size=whole_number(entry["size"]),
        leader_epoch=whole_number(entry["leader_epoch"]),
        pieces=tuple(StagedPiece(_piece(piece["name"]), whole_number(piece["size"])) for piece in entry["pieces"]),
        epochs=None if epochs is None else tuple(EpochEntry(whole_number(e), whole_number(o)) for e, o in epochs),
        replaces_empty=entry["replaces_empty"] is True,
    )


def _piece(name: Any) -> str:
    if not isinstance(name, str) or not is_piece_name(name):
        raise ValueError(f"{name!r} is no name of a staged object")
    return name
