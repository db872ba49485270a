"""The commits of a bucket, one after the other: which is the last, whether it was brought to its end, and the next.

Numbers have no gap when they are given, because each is put only where the writer saw the one before: so the newest
record is the state of the whole. Old ones are removed when nobody can be about to write their numbers any more.

A listing of all would cost a request for each 1,000: `kafkalog.commits/done` names a commit that is complete, with all
before it, and the listing begins there. It is put without a condition, so it may be an older one: then more is listed,
and the last commit is looked at once more. Where it is missing everything is listed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.sink.bucket import COMMITS, DONE, Bucket, is_piece_name, record_file, record_name, record_number
from kafkalog_spark.sink.sink_record import (
    NewTopic,
    queries_of,
    topic_name,
    topics_of,
    topics_to_json,
    versioned_json,
    whole_number,
)

# A commit record in a bucket, `kafkalog.commits/<20 digits>.json`. To put it, where none is, is the commit.
#
#     {"version": 0, "id": "c0ff...", "job": "9f...", "queries": {"5e4b...": 17},
#      "topics": [{"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3}],
#      "segments": [{"topic": "orders", "partition": 0, "base_offset": 100, "records": 20, "size": 4711,
#                    "leader_epoch": 0, "epochs": [[0, 0]], "replaces_empty": false,
#                    "pieces": [{"name": "kafkalog.staged/9f.../0-1a2b3c-0.log", "size": 4711}]}]}
#
# id: of no other record, so that a writer whose answer was lost knows its own. queries: of every streaming query
# that ever wrote here, the last micro-batch: the newest record says all. job: null in a record that holds a number's
# place, so that a put that was given up cannot come after all.

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


_MOST_BYTES = 256 << 20
"""Of a record: one of a million segments has as many."""
_MOST_DONE = 1000

KEPT_SECONDS = 7 * 24 * 3600
"""How long a record stays after a newer one was put: a writer that looked at the commits before, and stopped for so
long, must still find its number taken. Writers look again after LOOK_SECONDS, and S3 refuses requests that were signed
15 minutes ago. Also how long staged objects stay that nobody uses: longer than any job takes (Kafka's
transactional.id.expiration.ms)."""

LOOK_SECONDS = 3600
"""A writer that has looked at the commits longer ago looks again before it puts one."""

PRUNE_EVERY = 100
"""Commits after which old records are removed: a listing and some deletions."""


@dataclass(frozen=True, slots=True)
class Look:
    """The last commit: its number, -1 where there is none, and whether all its objects are known to be there."""

    number: int
    done: bool


@dataclass(frozen=True)
class CommitLog:
    """The commits of one bucket. All methods raise OSError."""

    bucket: Bucket

    def look(self) -> Look:
        """One GET and one LIST."""
        done = self._done()
        numbers = self._numbers(done - 1) if done >= 0 else []
        if done not in numbers:  # missing, or what is there is not what it was written about
            done, numbers = -1, self._numbers(-1)
        last = max(numbers, default=-1)
        return Look(last, last == done)

    def _done(self) -> int:
        try:
            number = json.loads(self.bucket.read(DONE, _MOST_DONE))["number"]
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return -1
        return number if type(number) is int else -1

    def _numbers(self, after: int) -> list[int]:
        files, _ = self.bucket.names(COMMITS, after=record_file(after))
        return [number for file in files if (number := record_number(file)) is not None]

    def read(self, number: int) -> BucketRecord:
        """One commit. Raises CorruptFile, UnsupportedFormat, FileNotFoundError."""
        name = record_name(number)
        try:
            return parse_bucket_record(self.bucket.read(name, _MOST_BYTES))
        except (CorruptFile, UnsupportedFormat) as error:
            error.hint = error.hint or "it says which micro-batches are in the log: restore it from a backup"
            raise error.at(path=self.bucket.path(name)) from None

    def newest(self, look: Look) -> BucketRecord:
        """The record of the last commit; of none an empty one."""
        return self.read(look.number) if look.number >= 0 else BucketRecord("")

    def put(self, number: int, record: BucketRecord, previous: BucketRecord) -> bool:
        """THE commit: False when somebody else has that number. previous: the record of the number before.

        When an answer is lost and the request may yet come through, the number's place is taken by a record of nothing:
        then it cannot. Raises OSError where the commit is not there and never will be, Undecided where the store does
        not answer any more.
        """
        try:
            return self.bucket.create(record_name(number), format_bucket_record(record))
        except OSError as error:
            try:
                if self.take_place(number, previous):
                    raise
                return self.read(number).id == record.id
            except (OSError, KafkalogError) as second:
                if second is error or isinstance(second, PermissionError):
                    raise error from None
                raise Undecided(error) from second

    def take_place(self, number: int, previous: BucketRecord) -> bool:
        """Put a record of nothing at a number, so that no put of that number can come after it; False when there is
        one."""
        nothing = BucketRecord(new_record_id(), None, previous.queries)
        return self.bucket.create(record_name(number), format_bucket_record(nothing))

    def expect_conditional_put(self, look: Look, newest: BucketRecord) -> None:
        """Make sure that the store keeps the condition on which all depends: the newest record, put once more with a
        byte that means nothing, must be refused. Raises OSError with what to do where it is not."""
        if look.number < 0:
            self.bucket.expect_conditional_put(COMMITS)
        elif self.bucket.create(record_name(look.number), format_bucket_record(newest) + b"\n"):
            self.bucket.expect_conditional_put(COMMITS)  # has the sentence

    def mark_done(self, number: int) -> None:
        """All objects of the commit, and of those before it, are there."""
        self.bucket.put(DONE, json.dumps({"number": number}).encode() + b"\n")

    def prune(self, number: int) -> None:
        """After commit `number`, now and then: remove records that are older than KEPT_SECONDS, but not the newest."""
        if number == 0 or number % PRUNE_EVERY:
            return
        now = self.bucket.modified(record_name(number))
        old = self.bucket.below(COMMITS, lambda found: now - found.modified_s <= KEPT_SECONDS)
        numbers = [found for one in old if (found := record_number(one.name)) is not None and found < number]
        self.bucket.delete([record_name(found) for found in numbers])


def new_record_id() -> str:
    return uuid.uuid4().hex


class Undecided(Exception):
    """Nobody knows whether the commit was put, because the store does not answer."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error
