"""tests/golden/kafka-4.3.0-tiered: what a real Kafka with LocalTieredStorage wrote, and said of it (make_golden.py).

clean: a cluster that was stopped as it should be. killed: one that was killed while it copied a segment. leaders: one
in which two brokers led in turns: its segments are of several brokers and leader epochs.
"""

from __future__ import annotations

import gzip
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kafkalog_spark.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, EpochEntry, read_offset_checkpoint
from kafkalog_spark.format.checkpoint import read_leader_epochs as _read_leader_epochs
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC
from kafkalog_spark.format.partition_metadata import read_partition_metadata
from kafkalog_spark.log.tiered.lineage_merge import OffsetSpan
from kafkalog_spark.log.tiered.object_keys import LOCAL_TIERED_ROOT
from kafkalog_spark.log.tiered.remote_log_events import decode_event
from kafkalog_spark.log.tiered.remote_log_state import RemoteLogState
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from tests.golden_data import GOLDEN, Row, topic_records
from tests.log.helpers.plain_decoder import decode_log

RELEASE = "kafka-4.3.0-tiered"

Event = dict[str, Any]


@dataclass(frozen=True)
class GoldenCluster:
    """One cluster's directories, and what consumers and Kafka's tools said."""

    name: str

    @property
    def data(self) -> Path:
        """The log directory."""
        return GOLDEN / RELEASE / self.name / "data"

    @property
    def remote(self) -> Path:
        """Where LocalTieredStorage's partition directories lie."""
        return GOLDEN / RELEASE / self.name / "remote" / LOCAL_TIERED_ROOT

    @property
    def _manifest(self) -> Path:
        return GOLDEN / RELEASE / self.name / "manifest"

    def partitions(self) -> list[tuple[str, int]]:
        """(topic, partition) of those that a manifest tells of."""
        said = json.loads((self._manifest / "topics.json").read_text())
        return [(topic, int(number)) for topic in sorted(said) for number in sorted(said[topic]["partitions"])]

    def said(self, topic: str, partition: int) -> dict[str, int]:
        """Log start offset, high watermark, last stable offset, and how many records consumers got."""
        found: dict[str, int] = json.loads((self._manifest / "topics.json").read_text())[topic]["partitions"][
            str(partition)
        ]
        return found

    def records(self, topic: str, partition: int) -> list[Row]:
        """What consumers returned, by offset."""
        return [row for row in topic_records(f"{RELEASE}/{self.name}", topic) if row["partition"] == partition]

    def listing(self) -> list[tuple[str, int]]:
        """Keys and sizes of the remote objects."""
        files = sorted(path for path in self.remote.rglob("*") if path.is_file())
        return [(str(path.relative_to(self.remote)), path.stat().st_size) for path in files]

    def readable(self) -> dict[TopicIdPartition, list[RemoteSegment]]:
        """The segments that may be read, by start offset."""
        return {
            partition: sorted(states.readable.values(), key=lambda one: (one.start_offset, one.end_offset))
            for partition, states in self.state().by_partition().items()
            if states.readable
        }

    def event_values(self) -> dict[tuple[int, int], bytes]:
        """(partition, offset) -> value of the records of `__remote_log_metadata`, read by the tests' own decoder."""
        return {
            (int(directory.name.rpartition("-")[2]), record.offset): record.value or b""
            for directory in sorted(self.data.glob(f"{REMOTE_LOG_METADATA_TOPIC}-*"))
            for log in sorted(directory.glob("*.log"))
            for batch in decode_log(log)
            for record in batch.records
        }

    def formatted_events(self) -> dict[tuple[int, int], Event]:
        """The same as Kafka's formatter printed them."""
        text = gzip.decompress((self._manifest / "remote-log-metadata.txt.gz").read_bytes()).decode()
        return {(event["partition"], event["offset"]): event for event in _formatted(text)}

    def state(self) -> RemoteLogState:
        return RemoteLogState(decode_event(value) for _, value in sorted(self.event_values().items()))

    def local_spans(self, topic: str, partition: int) -> list[OffsetSpan]:
        """What the local log holds, by the tests' own decoder."""
        logs = sorted((self.data / f"{topic}-{partition}").glob("*.log"))
        bases = [int(log.name[:20]) for log in logs]
        batches = decode_log(logs[-1])
        end = batches[-1].last_offset + 1 if batches else bases[-1]
        return [OffsetSpan(*span) for span in zip(bases, [*bases[1:], end], strict=True)]

    def leader_epochs(self, topic: str, partition: int) -> list[EpochEntry]:
        return _read_leader_epochs(self.data / f"{topic}-{partition}" / "leader-epoch-checkpoint")

    def log_start(self, topic: str, partition: int) -> int | None:
        """As the log directory's checkpoint says."""
        return read_offset_checkpoint(self.data / LOG_START_OFFSET_CHECKPOINT).get((topic, partition))

    def topic_id(self, topic: str, partition: int) -> uuid.UUID:
        found = read_partition_metadata(self.data / f"{topic}-{partition}" / "partition.metadata")
        assert found is not None
        return found


CLEAN, KILLED, LEADERS = (GoldenCluster(name) for name in ("clean", "killed", "leaders"))
CLUSTERS = (CLEAN, KILLED, LEADERS)


@cache
def _formatted(text: str) -> tuple[Event, ...]:
    return tuple(_parse_lines(text))


_LINE = re.compile(r"partition: (?P<partition>\d+), offset: (?P<offset>\d+), value: (?P<kind>\w+)\{(?P<body>.*)\}")
_ID = re.compile(
    r"topicIdPartition=(?P<topic_id>[\w-]{22}):(?P<topic>[\w.-]+)-(?P<number>\d+)(, id=(?P<id>[\w-]{22}))?"
)
_FIELD = re.compile(r"(\w+)=(-?\w+)(?=, |$)")
_EPOCHS = re.compile(r"segmentLeaderEpochs=\{([^}]*)\}")


def _parse_lines(text: str) -> Iterator[Event]:
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        assert found, line
        place = _ID.search(found["body"])
        assert place, line
        epochs = _EPOCHS.search(found["body"])
        yield {
            "partition": int(found["partition"]),
            "offset": int(found["offset"]),
            "kind": found["kind"],
            **place.groupdict(),
            **dict(_FIELD.findall(found["body"])),
            "epochs": [tuple(map(int, part.split("="))) for part in epochs[1].split(", ")] if epochs else None,
        }
