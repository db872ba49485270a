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
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.sink.bucket import Bucket
from kafkalog_spark.sink.bucket_names import COMMITS, DONE, record_file, record_name, record_number
from kafkalog_spark.sink.bucket_record import BucketRecord, format_bucket_record, parse_bucket_record

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
