"""What real Kafka said about the logs in tests/golden: the oracle of most tests.

    for log in golden_logs():                  # every partition of every release
        for row in log.records(): ...          # what Kafka's consumer returned
        for path in log.segments():
            for batch in log.batches(path): ...  # what DumpLogSegments printed

Row: a dict with the keys of COLUMNS and `headers`, `committed`, as plain Python values:
    topic str, partition int, offset int, timestamp int (ms; -1 without one), timestampType int (-1 none, 0 CreateTime,
    1 LogAppendTime), key and value bytes or None, headers list of (str, bytes or None), empty without headers,
    committed bool: a read_committed consumer saw it.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
KAFKA_4_3 = "kafka-4.3.0"
KAFKA_2_8 = "kafka-2.8.2"
RELEASES = (KAFKA_4_3, KAFKA_2_8)

Row = dict[str, Any]

# librdkafka's names; the numbers are those of Spark's timestampType column
_TIMESTAMP_TYPES = {"None": -1, "CreateTime": 0, "LogAppendTime": 1}


@dataclass(frozen=True)
class DumpedRecord:
    """One record inside a batch as DumpLogSegments printed it (only for 2.8.2, which was dumped deeply)."""

    offset: int
    timestamp: int  # ms
    key_size: int  # bytes, -1: null
    value_size: int  # bytes, -1: null


@dataclass(frozen=True)
class DumpedBatch:
    """One record batch (magic 2), message or wrapper message (magic 0, 1) as DumpLogSegments printed it.

    None: not printed for this format. `base_offset` of a wrapper is that of its first inner message.
    """

    base_offset: int
    last_offset: int
    position: int  # byte in the file
    size: int  # bytes
    magic: int
    codec: str  # none, gzip, snappy, lz4, zstd
    crc: int
    is_valid: bool
    timestamp: int  # ms; the largest of the batch
    timestamp_type: int  # as in a row
    count: int | None = None
    base_sequence: int | None = None
    last_sequence: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    leader_epoch: int | None = None
    transactional: bool | None = None
    control: bool | None = None
    delete_horizon: int | None = None  # ms
    records: tuple[DumpedRecord, ...] = ()


@dataclass(frozen=True)
class GoldenLog:
    """One partition of a golden directory, with what Kafka's consumers said about it."""

    release: str
    topic: str
    partition: int
    directory: Path
    crashed: bool  # the copy taken after kill -9
    log_start_offset: int
    high_watermark: int  # the log end offset too: one replica
    record_count: int
    committed_count: int

    @property
    def name(self) -> str:
        """Kafka's topic-partition, as in directory names."""
        return f"{self.topic}-{self.partition}"

    def __str__(self) -> str:
        return f"{self.release}/{'crashed' if self.crashed else 'data'}/{self.name}"

    def records(self, committed_only: bool = False) -> list[Row]:
        """What a read_uncommitted (or read_committed) consumer returned, by offset."""
        rows = [row for row in topic_records(self.release, self.topic) if row["partition"] == self.partition]
        return [row for row in rows if row["committed"]] if committed_only else rows

    def segments(self) -> list[Path]:
        """The .log files, by base offset."""
        return sorted(self.directory.glob("*.log"))

    def batches(self, segment: Path) -> tuple[DumpedBatch, ...]:
        """The batches of one of `segments()`. A crashed log holds the same bytes as after its clean restart."""
        return dumped_segments(self.release)[f"{self.name}/{segment.name}"]


def data_dir(release: str = KAFKA_4_3, *, crashed: bool = False) -> Path:
    """The log directory (Kafka's log.dirs) of a release; `crashed` exists for 4.3.0 only."""
    return GOLDEN / release / ("crashed" if crashed else "data")


def golden_logs(
    release: str | None = None, topic: str | None = None, *, crashed: bool | None = None
) -> list[GoldenLog]:
    """The partitions that have a manifest (internal topics have none), narrowed to what is given."""
    found = [
        log
        for name in RELEASES
        if release in (None, name)
        for kind in ((False, True) if name == KAFKA_4_3 else (False,))
        if crashed in (None, kind)
        for log in _logs_of(name, kind)
        if topic in (None, log.topic)
    ]
    if not found:
        raise LookupError(f"no golden log for release={release} topic={topic} crashed={crashed}")
    return found


def _logs_of(release: str, crashed: bool) -> Iterator[GoldenLog]:
    manifest = json.loads((GOLDEN / release / "manifest" / "topics.json").read_text())
    for topic in sorted(manifest):
        for partition, said in sorted(manifest[topic]["partitions"].items(), key=lambda item: int(item[0])):
            directory = data_dir(release, crashed=crashed) / f"{topic}-{partition}"
            if directory.is_dir():
                yield GoldenLog(
                    release=release,
                    topic=topic,
                    partition=int(partition),
                    directory=directory,
                    crashed=crashed,
                    log_start_offset=said["log_start_offset"],
                    high_watermark=said["high_watermark"],
                    record_count=said["records"],
                    committed_count=said["committed_records"],
                )


@cache
def topic_records(release: str, topic: str) -> tuple[Row, ...]:
    """The rows of a topic, by partition and offset. Shared between tests: do not change them."""
    with gzip.open(GOLDEN / release / "manifest" / f"{topic}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [_row(topic, json.loads(line)) for line in lines]
    return tuple(sorted(rows, key=lambda row: (row["partition"], row["offset"])))


def _row(topic: str, said: dict[str, Any]) -> Row:
    kind = _TIMESTAMP_TYPES[said["timestamp_type"]]
    return {
        "key": _bytes(said["key"]),
        "value": _bytes(said["value"]),
        "topic": topic,
        "partition": said["partition"],
        "offset": said["offset"],
        # librdkafka returns 0 where the format has no timestamp; Kafka's own consumer, and our table, say -1
        "timestamp": -1 if kind == -1 else said["timestamp"],
        "timestampType": kind,
        "headers": [(name, _bytes(value)) for name, value in said["headers"]],
        "committed": said["committed"],
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


@cache
def dumped_segments(release: str) -> dict[str, tuple[DumpedBatch, ...]]:
    """`topic-partition/segment.log` -> its batches, internal topics included."""
    with gzip.open(GOLDEN / release / "manifest" / "dump-log-segments.txt.gz", "rt", encoding="utf-8") as lines:
        return parse_dump(lines)


def parse_dump(lines: Iterator[str] | Any) -> dict[str, tuple[DumpedBatch, ...]]:
    """The text of DumpLogSegments (any release from 2.8 on) as batches by `topic-partition/segment.log`.

    Raises ValueError for a line it does not know: DumpLogSegments says what is wrong with a file in such lines.
    """
    segments: dict[str, list[DumpedBatch]] = {}
    batches: list[DumpedBatch] = []
    head: dict[str, str] | None = None
    inner: list[DumpedRecord] = []

    def close() -> None:
        nonlocal head, inner
        if head is not None:
            batches.append(_batch(head, tuple(inner)))
        head, inner = None, []

    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("Dumping "):
            close()
            batches = segments.setdefault("/".join(Path(line.removeprefix("Dumping ")).parts[-2:]), [])
        elif re.match(r"(Log starting|Starting) offset: \d+$", line) or not line:
            pass
        elif line.startswith("|"):
            inner.append(_record(_fields(line.removeprefix("|"))))
        elif line.startswith(("baseOffset:", "offset:")):
            close()
            head = _fields(line)
        else:
            raise ValueError(f"DumpLogSegments printed a line that is not known here: {line[:200]}")
    close()
    return {name: tuple(found) for name, found in segments.items()}


def _fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


def _timestamp(fields: dict[str, str]) -> tuple[int, int]:
    for name, kind in (("CreateTime", 0), ("LogAppendTime", 1), ("NoTimestampType", -1)):
        if name in fields:
            return int(fields[name]), kind
    raise ValueError(f"no timestamp type in {fields}")


def _record(fields: dict[str, str]) -> DumpedRecord:
    timestamp, _ = _timestamp(fields)
    return DumpedRecord(int(fields["offset"]), timestamp, int(fields["keySize"]), int(fields["valueSize"]))


def _batch(fields: dict[str, str], inner: tuple[DumpedRecord, ...]) -> DumpedBatch:
    timestamp, kind = _timestamp(fields)
    common: dict[str, Any] = {
        "position": int(fields["position"]),
        "size": int(fields["size"]),
        "magic": int(fields["magic"]),
        "codec": fields["compresscodec"].lower(),
        "crc": int(fields["crc"]),
        "is_valid": fields["isvalid"] == "true",
        "timestamp": timestamp,
        "timestamp_type": kind,
        "records": inner,
    }
    if "baseOffset" not in fields:  # magic 0 or 1: one line a message or wrapper, its offset is the last one's
        last = int(fields["offset"])
        return DumpedBatch(base_offset=inner[0].offset if inner else last, last_offset=last, **common)
    horizon = re.search(r"\d+", fields.get("deleteHorizonMs", ""))
    return DumpedBatch(
        base_offset=int(fields["baseOffset"]),
        last_offset=int(fields["lastOffset"]),
        count=int(fields["count"]),
        base_sequence=int(fields["baseSequence"]),
        last_sequence=int(fields["lastSequence"]),
        producer_id=int(fields["producerId"]),
        producer_epoch=int(fields["producerEpoch"]),
        leader_epoch=int(fields["partitionLeaderEpoch"]),
        transactional=fields["isTransactional"] == "true",
        control=fields["isControl"] == "true",
        delete_horizon=int(horizon.group()) if horizon else None,
        **common,
    )
