"""Commit log: numbered records `<commits><20 digits>.json`, each made by whoever is first (put-if-absent), as in Delta.

    {"version": 0, "id": "c0ff...", "job": "9f...", "queries": {"5e4b...": 17},
     "topics": [{"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3}],
     "segments": [{"topic": "orders", "partition": 0, "base_offset": 100, "records": 20,
                   "leader_epoch": 0, "epochs": [[0, 0]], "replaces_empty": false,
                   "pieces": [{"name": "kafkalog.staged/9f.../0-1a2b3c-0.log", "size": 4711}]}]}

To put a record is the commit. Numbers have no gap when they are given, because each is put only where the writer saw
the one before: so the newest record is the state of the whole. Old ones are removed when nobody can be about to write
their numbers any more (Medium.superseded).

`<commits>done` names a commit that is complete, with all before it, and listings begin there. It is put without a
condition, and may be lost in a crash: where it is missing or old, the last commit is looked at once more.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat, WriteUnfinished
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.sink.commit_plan import CommitRecord, NewTopic, PlannedSegment, StagedPiece
from kafkalog_spark.sink.medium import Medium, record_file, record_number

VERSION = 0

_PIECE = re.compile(r"kafkalog\.(staged/[0-9a-f]{32}/[0-9]+|sink-[0-9a-f]{32}-[0-9]+)-[0-9a-f]+-[0-9]+\.log")
_MOST_BYTES = 256 << 20
"""Limit of a record: one of a million segments has as many."""
_MOST_DONE = 1000


def format_record(record: CommitRecord) -> bytes:
    """Bytes of a record."""
    content = {
        "version": VERSION,
        "id": record.id,
        "job": record.job,
        "queries": dict(record.queries),
        "topics": [
            {"name": topic.name, "id": uuid_to_text(topic.id), "partitions": topic.partitions}
            for topic in record.topics
        ],
        "segments": [
            {
                "topic": segment.topic,
                "partition": segment.partition,
                "base_offset": segment.base_offset,
                "records": segment.records,
                "leader_epoch": segment.leader_epoch,
                "epochs": None if segment.epochs is None else [list(entry) for entry in segment.epochs],
                "replaces_empty": segment.replaces_empty,
                "pieces": [{"name": piece.name, "size": piece.size} for piece in segment.pieces],
            }
            for segment in record.segments
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode("utf-8")


def parse_record(data: bytes) -> CommitRecord:
    """The reverse. Raises CorruptFile for anything but what `format_record` writes, UnsupportedFormat for the record of
    a later release."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise CorruptFile(f"this is not JSON: {error}") from None
    if not isinstance(content, dict) or type(content.get("version")) is not int:
        raise CorruptFile("expected a JSON object with an integer 'version'")
    if content["version"] != VERSION:
        raise UnsupportedFormat(
            f"version {content['version']} of a record of kafkalog.commits, only {VERSION} is known",
            hint="a later release of kafkalog wrote to this directory; use that one",
        )
    try:
        return CommitRecord(
            str(content["id"]),
            None if content["job"] is None else str(content["job"]),
            {str(query): _whole_number(batch) for query, batch in content["queries"].items()},
            tuple(
                NewTopic(_topic_name(topic["name"]), uuid_from_text(topic["id"]), _whole_number(topic["partitions"]))
                for topic in content["topics"]
            ),
            tuple(_segment(entry) for entry in content["segments"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(f"{type(error).__name__}: {error}") from None


def _segment(entry: Any) -> PlannedSegment:
    epochs = entry["epochs"]
    return PlannedSegment(
        topic=_topic_name(entry["topic"]),
        partition=_whole_number(entry["partition"]),
        base_offset=_whole_number(entry["base_offset"]),
        records=_whole_number(entry["records"]),
        leader_epoch=_whole_number(entry["leader_epoch"]),
        pieces=tuple(StagedPiece(_piece(piece["name"]), _whole_number(piece["size"])) for piece in entry["pieces"]),
        epochs=None if epochs is None else tuple(EpochEntry(_whole_number(e), _whole_number(o)) for e, o in epochs),
        replaces_empty=entry["replaces_empty"] is True,
    )


def _topic_name(value: Any) -> str:
    if not isinstance(value, str) or not valid_topic_name(value):
        raise ValueError(f"{value!r} is no name of a topic")
    return value


def _whole_number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number from 0 on")
    return value


def _piece(name: Any) -> str:
    if not isinstance(name, str) or not _PIECE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a staged file")
    return name


@dataclass(frozen=True, slots=True)
class Look:
    """The last commit: its number, -1 where there is none, and True where everything of it is known to be there."""

    number: int
    done: bool


@dataclass(frozen=True)
class CommitLog:
    """Commits of one log directory. All methods raise OSError."""

    medium: Medium

    def record_name(self, number: int) -> str:
        return self.medium.commits + record_file(number)

    def look(self) -> Look:
        """The last commit. In a bucket a GET and a LIST."""
        done = self._done()
        numbers = self._numbers(done - 1) if done >= 0 else []
        if done not in numbers:  # missing, or what is there is not what it was written about
            done, numbers = -1, self._numbers(-1)
        last = max(numbers, default=-1)
        return Look(last, last == done)

    def _done(self) -> int:
        try:
            number = json.loads(self.medium.read(self.medium.commits + "done", _MOST_DONE))["number"]
        except (FileNotFoundError, CorruptFile, ValueError, KeyError, TypeError, RecursionError):
            return -1
        return number if type(number) is int else -1

    def _numbers(self, after: int) -> list[int]:
        files = self.medium.commit_files(record_file(after))
        return [number for file in files if (number := record_number(file)) is not None]

    def read(self, number: int) -> CommitRecord:
        """Record of a commit. Raises CorruptFile, UnsupportedFormat, FileNotFoundError."""
        name = self.record_name(number)
        try:
            return parse_record(self.medium.read(name, _MOST_BYTES))
        except (CorruptFile, UnsupportedFormat) as error:
            error.hint = error.hint or "it says which micro-batches are in the log: restore it from a backup"
            raise error.at(path=self.medium.path(name)) from None

    def newest(self, look: Look) -> CommitRecord:
        """Record of the last commit; of none an empty one."""
        return self.read(look.number) if look.number >= 0 else CommitRecord("")

    def last(self) -> tuple[Look, CommitRecord]:
        """`look` and `newest`, also while another writer goes on and removes what it superseded."""
        while True:
            look = self.look()
            try:
                return look, self.newest(look)
            except FileNotFoundError:
                if self.look() == look:
                    raise

    def put(self, number: int, record: CommitRecord, previous: CommitRecord) -> bool:
        """Commit `record`; False when somebody else has that number. previous: the record of the number before.

        When an answer is lost and the request may yet come through, the number's place is taken by a record of nothing:
        then it cannot. Raises OSError where the commit is not there and never will be, WriteUnfinished where it is, or
        may be.
        """
        try:
            return self.medium.create(self.record_name(number), format_record(record))
        except OSError as error:
            if self.medium.remote:
                return self._resolve(number, record, previous, error)
            try:
                decided = self.read(number).id == record.id
            except (OSError, KafkalogError):
                decided = False
            if decided:  # only its last fsync failed
                raise unfinished(self.medium, error) from error
            raise

    def _resolve(self, number: int, record: CommitRecord, previous: CommitRecord, error: OSError) -> bool:
        try:
            if self.take_place(number, previous):
                raise error
            return self.read(number).id == record.id
        except (OSError, KafkalogError) as second:
            if second is error or isinstance(second, PermissionError):
                raise error from None
            raise WriteUnfinished(
                "the store stopped answering while the commit was written, so it is not known whether it was: "
                f"{error.strerror or error}",
                path=self.medium.path(),
                hint="when it answers again, look at the log before you run the write again (a stream does so by "
                "itself)",
            ) from second

    def take_place(self, number: int, previous: CommitRecord) -> bool:
        """Put a record of nothing at a number, so that no put of that number can come after it; False when there is
        one."""
        nothing = CommitRecord(new_record_id(), None, previous.queries)
        return self.medium.create(self.record_name(number), format_record(nothing))

    def expect_put_if_absent(self, look: Look, newest: CommitRecord) -> None:
        """Make sure that the store keeps the condition on which all depends: the newest record, put once more with a
        byte that means nothing, must be refused. Raises OSError with what to do where it is not."""
        if not self.medium.remote:
            return
        if look.number < 0 or self.medium.create(self.record_name(look.number), format_record(newest) + b"\n"):
            self.medium.expect_put_if_absent()  # has the message

    def mark_done(self, number: int) -> None:
        """Record that everything of the commit, and of those before it, is there."""
        self.medium.replace_hint(self.medium.commits + "done", json.dumps({"number": number}).encode() + b"\n")

    def prune(self, number: int) -> None:
        """After commit `number`: remove records that nobody needs any more, but not the newest."""
        self.medium.delete([self.medium.commits + file for file in self.medium.superseded(number)])


def new_record_id() -> str:
    return uuid.uuid4().hex


def unfinished(medium: Medium, error: Exception) -> WriteUnfinished:
    """Error for a commit that is decided and not complete."""
    return WriteUnfinished(
        f"the write is decided, but not all of it is in its place yet: {error}",
        path=medium.path(),
        hint="do not run it again: the next write to this directory finishes it, when the cause is gone",
    )
