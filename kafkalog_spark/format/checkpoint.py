"""Checkpoint files: a version line, a line with the number of entries, then a line for each entry (CheckpointFile).

In a log directory, lines `topic partition offset`:

    recovery-point-offset-checkpoint   offset up to which a log was flushed: recovery scans from there
    replication-offset-checkpoint      high watermarks
    log-start-offset-checkpoint        log start offsets, only of logs that start above their first segment's base
    cleaner-offset-checkpoint          offset up to which compaction has cleaned a log

In a partition directory, lines `epoch startOffset`, by epoch:

    leader-epoch-checkpoint            the first offset of each leader epoch

A running broker writes them periodically, so they may be out of date after a crash.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.regular_file import read_state

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

MAX_LEADER_EPOCH_CHECKPOINT_BYTES = 4 << 20
"""Largest leader-epoch-checkpoint in bytes. With an election each hour for ten years, it has 2 MB."""

VERSION = 0

_INTEGER = re.compile(r"-?[0-9]{1,19}")

TopicPartition = tuple[str, int]


class EpochEntry(NamedTuple):
    """A leader epoch, and the offset of the first record written in it."""

    epoch: int
    start_offset: int


def parse_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Return the offsets in the order of the lines; empty data has none.

    Raises:
        CorruptFile: For a malformed line, with its number.
        UnsupportedFormat: For an unknown version.
    """
    offsets: dict[TopicPartition, int] = {}
    for line in _entries(data, "topic partition offset"):
        partition = line.integer(1, MAX_INT32)
        if partition < 0 or not valid_topic_name(line.words[0]):
            raise line.malformed()
        offsets[line.words[0], partition] = line.integer(2, MAX_INT64)
    return offsets


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _format(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def parse_leader_epochs(data: bytes) -> list[EpochEntry]:
    """Return the entries in the order of the lines; as in Kafka, they need not increase.

    Raises as `parse_offset_checkpoint`.
    """
    lines = _entries(data, "epoch startOffset")
    return [EpochEntry(line.integer(0, MAX_INT32), line.integer(1, MAX_INT64)) for line in lines]


def format_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    return _format(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def read_offset_checkpoint(path: str | os.PathLike[str]) -> dict[TopicPartition, int]:
    """As `parse_offset_checkpoint`; a missing file is an empty checkpoint."""
    return read_state(path, parse_offset_checkpoint) or {}


def write_offset_checkpoint(path: str | os.PathLike[str], offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(path, format_offset_checkpoint(offsets))


def read_leader_epochs(path: str | os.PathLike[str]) -> list[EpochEntry]:
    """As `parse_leader_epochs`; a missing file is an empty list."""
    return read_state(path, parse_leader_epochs, MAX_LEADER_EPOCH_CHECKPOINT_BYTES) or []


def write_leader_epochs(path: str | os.PathLike[str], epochs: Iterable[tuple[int, int]]) -> None:
    """Replace the file; on disk on return. Raises OSError."""
    replace_file(path, format_leader_epochs(epochs))


class _Line(NamedTuple):
    """A line of a checkpoint: its number from 1, its first byte, its words, and a description of the expected form."""

    number: int
    position: int
    words: list[str]
    form: str

    def malformed(self) -> CorruptFile:
        given = " ".join(self.words)
        shown = repr(given if len(given) <= 60 else given[:60] + "...")
        return CorruptFile(f"line {self.number} is {shown}, expected {self.form!r}", position=self.position)

    def integer(self, word: int, largest: int) -> int:
        """Parse a word as an integer from -largest-1 to largest."""
        text = self.words[word]
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -largest - 1 <= value <= largest:
            raise self.malformed()
        return value


def _lines(data: bytes, form: str) -> Iterator[_Line]:
    # Unlike in Java's readLine, a lone \r does not end a line. Latin-1 never fails; a byte that is not ASCII then fails
    # the check of the integer or topic name.
    position = 0
    for number, line in enumerate(io.BytesIO(data), start=1):
        yield _Line(number, position, [word.decode("latin-1") for word in line.split()], form)
        position += len(line)


def _entries(data: bytes, form: str) -> Iterator[_Line]:
    """Yield the lines after the version and the count. Each has as many words as `form`.

    Raises CorruptFile at the end, if the number of lines is not the count.
    """
    lines = _lines(data, form)
    head: list[int] = []
    for head_form in ("version", "number of entries"):
        line = next(lines, None)
        if line is None:
            return  # Kafka reads a file that ends before its count as empty
        line = line._replace(form=head_form)
        if len(line.words) != 1:
            raise line.malformed()
        head.append(line.integer(0, MAX_INT32))
        if head[0] != VERSION:
            raise UnsupportedFormat(f"line 1: version {head[0]} of a checkpoint file, only {VERSION} is known")
    expected, found, last = head[1], 0, 2
    words = form.count(" ") + 1
    for line in lines:
        if len(line.words) != words:
            raise line.malformed()
        yield line
        found, last = found + 1, line.number
    if found != expected:
        raise CorruptFile(
            f"line 2 announces {expected} entries, but {found} follow, up to line {last}",
            hint="the file was cut short or edited",
        )


def _format(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (VERSION, len(entries), *entries)).encode("ascii")
