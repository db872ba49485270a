"""The file that says what became of a mirror when a broker took it over: `kafkalog.mirror.takeover.json`.

    {"version": 0, "done": true, "partitions": [
      {"topic": "orders", "partition": 0, "log_end_offset": 90, "cut_end": 120, "leader_epoch": 4}]}

Offsets log_end_offset to cut_end - 1 of the source were cut off here; nothing was where both are the same. Whoever goes
back to the source begins there. leader_epoch: what this broker writes with.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.log.format.durable import read_state, replace_file

TAKEOVER_FILE = "kafkalog.mirror.takeover.json"
VERSION = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition: its log ends at log_end_offset now, and did at cut_end."""

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


def read_record(directory: Path) -> TakeoverRecord | None:
    """None where there is none. Raises CorruptFile, UnsupportedFormat, OSError."""
    return read_state(directory / TAKEOVER_FILE, _parse)


def write_record(directory: Path, record: TakeoverRecord) -> None:
    """On disk on return. Raises OSError."""
    content = {"version": VERSION, "done": record.is_done, "partitions": [asdict(one) for one in record.partitions]}
    replace_file(directory / TAKEOVER_FILE, json.dumps(content, indent=1).encode() + b"\n")


def _parse(data: bytes) -> TakeoverRecord:
    try:
        content = json.loads(data)
        version = content["version"]
        if version != VERSION:
            raise UnsupportedFormat(f"version {version} of {TAKEOVER_FILE}, only {VERSION} is known")
        return TakeoverRecord(tuple(Taken(**one) for one in content["partitions"]), bool(content["done"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"expected a JSON object with version, done and partitions: {error}") from None
