"""Commit log of a log directory: numbered records, each put only if its number is free, as in Delta Lake.

A writer puts a record only after it has read the record of the number before, so numbers are assigned without gaps, and
the last record describes the state of the whole directory.

    <prefix><20 digits>.json    a record (CommitRecord)
    <prefix>done                number of a commit that is complete, like all commits before it

`done` is put without a condition and may be lost in a crash. Listings begin at its number. If it is missing or
outdated, the last commit is completed once more, which has no effect.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat, WriteUnfinished
from kafkalog_spark.sink.commit_record import CommitRecord, format_record, parse_record
from kafkalog_spark.sink.log_directory import LogDirectory

_RECORD_FILE = re.compile(r"([0-9]{20})\.json")
_MAX_RECORD_BYTES = 256 << 20  # the size of a record of a million segments
_MAX_DONE_BYTES = 1000


def record_file(number: int) -> str:
    """Return the file name of a record without the prefix; for -1 an empty name, which sorts before all others."""
    return f"{number:020d}.json" if number >= 0 else ""


class LastCommit(NamedTuple):
    """The last commit.

    Attributes:
        number: Its number, -1 if there is no commit.
        done: True if the commit is known to be complete.
    """

    number: int
    done: bool


class CommitLog(ABC):
    """Reads and puts of commit records. All methods raise OSError."""

    directory: LogDirectory
    prefix: str  # of the file names
    late_puts: bool
    """True if a put without a response may take effect later."""
    look_seconds: float
    """Seconds after `look` within which the next commit may be put."""

    def record_name(self, number: int) -> str:
        return self.prefix + record_file(number)

    def look(self) -> LastCommit:
        """Return the last commit. In a bucket this takes one GET and one LIST."""
        done = self._done()
        numbers = _numbers(self._files(record_file(done - 1))) if done >= 0 else {}
        if done not in numbers:  # `done` is missing, or names a record that does not exist
            done, numbers = -1, _numbers(self._files())
        last = max(numbers, default=-1)
        return LastCommit(last, last == done)

    def _done(self) -> int:
        try:
            number = json.loads(self.directory.read(self.prefix + "done", _MAX_DONE_BYTES))["number"]
        except (FileNotFoundError, CorruptFile, ValueError, KeyError, TypeError, RecursionError):
            return -1
        return number if type(number) is int else -1

    def read(self, number: int) -> CommitRecord:
        """Return a record. Raises CorruptFile, UnsupportedFormat, FileNotFoundError."""
        name = self.record_name(number)
        try:
            return parse_record(self.directory.read(name, _MAX_RECORD_BYTES))
        except (CorruptFile, UnsupportedFormat) as error:
            error.hint = error.hint or "the record says which micro-batches are in the log: restore it from a backup"
            raise error.at(path=self.directory.path(name)) from None

    def last(self) -> tuple[LastCommit, CommitRecord]:
        """Return the last commit and its record, an empty one if there is no commit.

        Safe while another writer removes old records. Raises as `read`.
        """
        while True:
            last = self.look()
            try:
                return last, self.read(last.number) if last.number >= 0 else CommitRecord("")
            except FileNotFoundError:
                if self.look() == last:
                    raise

    def put(self, number: int, record: CommitRecord, previous: CommitRecord) -> bool:
        """Commit `record`.

        Args:
            number: Number of the record.
            record: The record.
            previous: The record of the number before.

        Returns:
            False if a record of that number exists.

        Raises:
            OSError: If the record does not exist and never will.
            WriteUnfinished: If the record exists, or may exist.
        """
        try:
            return self.directory.put_if_absent(self.record_name(number), format_record(record))
        except OSError as error:
            return self._resolve_failed_put(error, number, record, previous)

    @abstractmethod
    def _resolve_failed_put(self, error: OSError, number: int, record: CommitRecord, previous: CommitRecord) -> bool:
        """Find out whether a put that failed with `error` took effect. Returns and raises as `put`."""

    def take_number(self, number: int, previous: CommitRecord) -> bool:
        """Put a record without content, so that no late put of that number takes effect.

        Returns:
            False if a record of that number exists.
        """
        empty = CommitRecord(queries=previous.queries)
        return self.directory.put_if_absent(self.record_name(number), format_record(empty))

    def mark_done(self, number: int) -> None:
        data = json.dumps({"number": number}).encode() + b"\n"
        self.directory.replace(self.prefix + "done", data, sync=False)

    def remove_superseded(self, number: int) -> None:
        """Remove records before `number`, except those that a slow writer may still try to put."""
        numbers = _numbers(self._superseded(number)).items()
        self.directory.delete([self.prefix + file for older, file in numbers if older < number])

    def expect_put_if_absent(self) -> None:  # noqa: B027
        """Raise OSError if the store ignores the condition of a put."""

    def check_condition(self, last: LastCommit, last_record: CommitRecord) -> None:  # noqa: B027
        """Raise as `expect_put_if_absent`. Tries to overwrite the last record, which the store must refuse."""

    @abstractmethod
    def _files(self, after: str = "") -> Iterable[str]:
        """Return the names of all files without the prefix, from `after` on, sorted."""

    @abstractmethod
    def _superseded(self, number: int) -> Sequence[str]:
        """Return the file names, without the prefix, of records that may be removed if they are before `number`."""


def unfinished(directory: LogDirectory, error: Exception) -> WriteUnfinished:
    """Return the error for a commit whose record exists, but whose segments cannot all be published now."""
    return WriteUnfinished(
        f"the write is committed, but not all of its segments are published yet: {error}",
        path=directory.path(),
        hint="do not run the write again: the next write to this directory completes it, once the cause is removed",
    )


def _numbers(files: Iterable[str]) -> dict[int, str]:
    return {int(match[1]): file for file in files if (match := _RECORD_FILE.fullmatch(file))}
