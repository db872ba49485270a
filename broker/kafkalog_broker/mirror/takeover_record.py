"""The file `kafkalog.mirror.takeover.json`: where each log ended when a mirror became a broker of its own.

    {"version": 0, "done": true, "partitions": [
      {"topic": "orders", "partition": 0, "log_end_offset": 90, "cut_end": 120, "leader_epoch": 4}]}

Offsets log_end_offset to cut_end - 1 of the source were removed here; none were if both are equal. Consumers that
return to the source resume at log_end_offset. leader_epoch is the epoch in which this broker writes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import DAMAGED_SUFFIX, read_state, replace_file

_log = logging.getLogger(__name__)

TAKEOVER_FILE = "kafkalog.mirror.takeover.json"
VERSION = 0


@dataclass(frozen=True, slots=True)
class Taken:
    topic: str
    partition: int
    log_end_offset: int
    cut_end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TakeoverRecord:
    """is_done: nothing is left to be done."""

    partitions: tuple[Taken, ...]
    is_done: bool


def _read_or_set_aside(directory: Path) -> TakeoverRecord | None:
    """The record, None if there is none. A damaged one is renamed `.damaged`, so that it does not end every start.

    Raises UnsupportedFormat, OSError.
    """
    path = directory / TAKEOVER_FILE
    try:
        return read_record(directory)
    except CorruptFile as error:
        damaged = path.with_name(path.name + DAMAGED_SUFFIX)
        path.replace(damaged)
        _log.error("%s; it is kept as %s; a takeover that an earlier start began stays unfinished", error, damaged)
        return None


def read_record(directory: Path) -> TakeoverRecord | None:
    """Raises CorruptFile, UnsupportedFormat, OSError."""
    return read_state(directory / TAKEOVER_FILE, _parse)


def write_record(directory: Path, record: TakeoverRecord) -> None:
    """On disk on return. Raises OSError."""
    content = {"version": VERSION, "done": record.is_done, "partitions": list(map(asdict, record.partitions))}
    replace_file(directory / TAKEOVER_FILE, json.dumps(content, indent=1).encode() + b"\n")


def _parse(data: bytes) -> TakeoverRecord:
    try:
        content = json.loads(data)
        version = content["version"]
        if version != VERSION:
            raise UnsupportedFormat(f"version {version} of {TAKEOVER_FILE}, only {VERSION} is known")
        return TakeoverRecord(tuple(_taken(**entry) for entry in content["partitions"]), bool(content["done"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"expected a JSON object with version, done and partitions: {error}") from None


def _taken(topic: str, **numbers: int) -> Taken:
    if not isinstance(topic, str) or not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise ValueError(f"{topic!r} with {numbers}: expected a topic and whole numbers from 0 on")
    return Taken(topic, **numbers)
