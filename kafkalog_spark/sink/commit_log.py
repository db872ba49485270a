"""Commit log of a log directory: numbered records, put if absent, as in Delta.

Numbers have no gap when they are given, because a record is put only by a writer that saw the one before. So the newest
record is the state of the whole directory.

    <prefix><20 digits>.json    a record (CommitRecord)
    <prefix>done                number of a commit that is complete, with all before it

`done` is put without a condition and may be lost in a crash. Listings begin at its number; where it is missing or old,
the last commit is completed once more, which changes nothing.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat, WriteUnfinished
from kafkalog_spark.sink.commit_plan import CommitRecord, format_record, parse_record
from kafkalog_spark.sink.log_directory import LogDirectory

_RECORD_FILE = re.compile(r"([0-9]{20})\.json")
_MOST_RECORD_BYTES = 256 << 20  # a record of a million segments has as many
_MOST_DONE_BYTES = 1000


def record_file(number: int) -> str:
    """Return the name of a record without the prefix; for -1 an empty one, which sorts before all."""
    return f"{number:020d}.json" if number >= 0 else ""


class LastCommit(NamedTuple):
    """Number of the last commit, -1 if there is none. done: it is known to be complete."""

    number: int
    done: bool


class CommitLog(ABC):
    """Reads and puts of commit records. All methods raise OSError."""

    directory: LogDirectory
    prefix: str  # of the names of its files
    late_puts: bool
    """True if a put whose answer was lost may take effect later."""
    look_seconds: float
    """How long a look at the last commit allows to put the next one."""

    def record_name(self, number: int) -> str:
        return self.prefix + record_file(number)

    def look(self) -> LastCommit:
        """Return the last commit. In a bucket this takes one GET and one LIST."""
        done = self._done()
        numbers = _numbers(self._files(record_file(done - 1))) if done >= 0 else {}
        if done not in numbers:  # missing, or of records that are not here
            done, numbers = -1, _numbers(self._files())
        last = max(numbers, default=-1)
        return LastCommit(last, last == done)

    def _done(self) -> int:
        try:
            number = json.loads(self.directory.read(self.prefix + "done", _MOST_DONE_BYTES))["number"]
        except (FileNotFoundError, CorruptFile, ValueError, KeyError, TypeError, RecursionError):
            return -1
        return number if type(number) is int else -1

    def read(self, number: int) -> CommitRecord:
        """Return a record. Raises CorruptFile, UnsupportedFormat, FileNotFoundError."""
        name = self.record_name(number)
        try:
            return parse_record(self.directory.read(name, _MOST_RECORD_BYTES))
        except (CorruptFile, UnsupportedFormat) as error:
            error.hint = error.hint or "it says which micro-batches are in the log: restore it from a backup"
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
        """Commit `record`; False if the number is taken. previous: the record of the number before.

        Raises:
            OSError: If the record is not there and never will be.
            WriteUnfinished: If it is there, or may be.
        """
        try:
            return self.directory.put_if_absent(self.record_name(number), format_record(record))
        except OSError as error:
            return self._resolve_failed_put(error, number, record, previous)

    @abstractmethod
    def _resolve_failed_put(self, error: OSError, number: int, record: CommitRecord, previous: CommitRecord) -> bool:
        """Find out whether a put that failed with `error` took effect. Returns and raises as `put`."""

    def take_number(self, number: int, previous: CommitRecord) -> bool:
        """Put a record without content, so that no late put of that number takes effect; False if it is taken."""
        empty = CommitRecord(queries=previous.queries)
        return self.directory.put_if_absent(self.record_name(number), format_record(empty))

    def mark_done(self, number: int) -> None:
        data = json.dumps({"number": number}).encode() + b"\n"
        self.directory.replace(self.prefix + "done", data, sync=False)

    def remove_superseded(self, number: int) -> None:
        """Remove records before `number` that no writer can be about to put again."""
        numbers = _numbers(self._superseded(number)).items()
        self.directory.delete([self.prefix + file for older, file in numbers if older < number])

    def expect_put_if_absent(self) -> None:  # noqa: B027
        """Raise OSError if the store ignores the condition of a put."""

    def check_condition(self, last: LastCommit, newest: CommitRecord) -> None:  # noqa: B027
        """Raise as `expect_put_if_absent`, by a put that the last commit's record must prevent."""

    @abstractmethod
    def _files(self, after: str = "") -> Iterable[str]:
        """Return the names of all files without the prefix, from `after` on, sorted."""

    @abstractmethod
    def _superseded(self, number: int) -> Sequence[str]:
        """Return names of files, without the prefix, that may be removed after commit `number` if they are older."""


def unfinished(directory: LogDirectory, error: Exception) -> WriteUnfinished:
    """Return the error for a commit that is decided and cannot be completed now."""
    return WriteUnfinished(
        f"the write is decided, but not all of it is in its place yet: {error}",
        path=directory.path(),
        hint="do not run it again: the next write to this directory finishes it, when the cause is gone",
    )


def _numbers(files: Iterable[str]) -> dict[int, str]:
    return {int(match[1]): file for file in files if (match := _RECORD_FILE.fullmatch(file))}
