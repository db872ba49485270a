"""The file `kafkalog.mirror.takeover.json`: log end offsets at the moment when a mirror became an independent broker.

    {"version": 0, "done": true, "partitions": [
      {"topic": "orders", "partition": 0, "log_end_offset": 90, "cut_end": 120, "leader_epoch": 4}]}

The offsets log_end_offset to cut_end - 1 of the source were removed here; none if both are equal. Consumers that return
to the source resume at log_end_offset. leader_epoch is the epoch in which this broker writes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import DAMAGED_SUFFIX, replace_file
from kafkalog_spark.format.regular_file import read_state

_log = logging.getLogger(__name__)

TAKEOVER_FILE = "kafkalog.mirror.takeover.json"
VERSION = 0


@dataclass(frozen=True, slots=True)
class PartitionTakeover:
    """Log end offset, source's log end offset and new leader epoch of one partition, as described above."""

    topic: str
    partition: int
    log_end_offset: int
    cut_end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TakeoverRecord:
    """Content of the file. `is_done` is True once all steps of the takeover are completed."""

    partitions: tuple[PartitionTakeover, ...]
    is_done: bool


def read_or_set_aside(directory: Path) -> TakeoverRecord | None:
    """Return the record, or None without one. A damaged file gets the suffix `.damaged`, so that later starts succeed.

    Raises UnsupportedFormat, OSError.
    """
    path = directory / TAKEOVER_FILE
    try:
        return read_record(directory)
    except CorruptFile as error:
        damaged = path.with_name(path.name + DAMAGED_SUFFIX)
        path.replace(damaged)
        _log.error("%s; the file is kept as %s; a takeover begun by an earlier start stays unfinished", error, damaged)
        return None


def read_record(directory: Path) -> TakeoverRecord | None:
    """Read the record, or None without one. Raises CorruptFile, UnsupportedFormat, OSError."""
    return read_state(directory / TAKEOVER_FILE, _parse)


def write_record(directory: Path, record: TakeoverRecord) -> None:
    """Write the record and sync it to disk. Raises OSError."""
    content = {"version": VERSION, "done": record.is_done, "partitions": list(map(asdict, record.partitions))}
    replace_file(directory / TAKEOVER_FILE, json.dumps(content, indent=1).encode() + b"\n")


def _parse(data: bytes) -> TakeoverRecord:
    try:
        content = json.loads(data)
        version = content["version"]
        if version != VERSION:
            raise UnsupportedFormat(f"{TAKEOVER_FILE} has version {version}, only {VERSION} is supported")
        return TakeoverRecord(
            tuple(_partition_takeover(**entry) for entry in content["partitions"]), bool(content["done"])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"expected a JSON object with version, done and partitions: {error}") from None


def _partition_takeover(topic: str, **numbers: int) -> PartitionTakeover:
    if not isinstance(topic, str) or not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise ValueError(f"{topic!r} with {numbers}: expected a topic and non-negative integers")
    return PartitionTakeover(topic, **numbers)
