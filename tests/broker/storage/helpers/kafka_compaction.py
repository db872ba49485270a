"""Compaction by this broker of partitions that a real Kafka compacted, starting from the same files."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from kafkalog_broker.storage.compaction.cleanable import LogFacts, cleanable
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.compaction.cleaning_request import CleaningRequest
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.format.transaction_index import load_transaction_index
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from tests.broker.storage.helpers.cleaned_logs import Host
from tests.broker.storage.helpers.stored_logs import log_config
from tests.log.helpers import plain_decoder

HORIZON = 0x40
DELETE_RETENTION_MS = 1_000


def checkpoint(directory: Path, topic: str) -> int | None:
    """Return the offset of partition 0 of `topic` in cleaner-offset-checkpoint."""
    path = directory / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[0] == topic), None)


def time_of_cleaning(topic: str, before: Path, after: Path) -> int:
    """When Kafka cleaned a partition: the horizons that it set tell, or those of its other partitions, which it cleaned
    in the same seconds."""
    for name in (topic, "*"):
        set_now = _horizons(after, name) - _horizons(before, name)
        if set_now:
            return max(set_now) - DELETE_RETENTION_MS
    raise AssertionError(f"no horizon was set in {after}")


def _horizons(copy: Path, topic: str) -> set[int]:
    return {
        found.base_timestamp
        for path in copy.glob(f"{topic}-0/*.log")
        for found in plain_decoder.decode_log(path)
        if found.attributes & HORIZON
    }


def compacted(topic: str, before: Path, after: Path, work: Path, segment_bytes: int) -> Log:
    """Clean a copy of partition `topic`-0 of `before` as Kafka did when it made `after` of it; the closed log."""
    directory = work / f"{topic}-0"
    shutil.copytree(before / f"{topic}-0", directory)
    config = log_config(
        cleanup_policy=("compact",), segment_bytes=segment_bytes, index_interval_bytes=300,
        delete_retention_ms=DELETE_RETENTION_MS,
    )  # fmt: skip
    now_ms = time_of_cleaning(topic, before, after)
    loaded = load_log(LoadRequest(directory=directory, clean=True))
    log = Log(TopicIdPartition(topic, uuid.UUID(int=1), 0), config, loaded, now_ms)
    first_dirty = checkpoint(before, topic)
    facts = LogFacts(log.segments, 0, log.log_end_offset, log.last_stable_offset, first_dirty)
    part = cleanable(facts, config, now_ms)
    job = CleaningRequest(
        directory=directory, segments=log.segments, config=config,
        first_dirty_offset=part.first_dirty_offset, first_uncleanable_offset=part.first_uncleanable_offset,
        now_ms=now_ms,
    )  # fmt: skip
    end, _ = Cleaner(job, Host(log, now_ms), 1 << 20, 0.9, 1 << 16).clean()
    assert end == checkpoint(after, topic)
    return log


def compare(topic: str, ours: Path, theirs: Path) -> None:
    """All segments with their batches, records and aborted transactions; of a topic without compression every byte of
    every file of the log."""
    assert _names(ours) == _names(theirs)
    for path in sorted(theirs.glob("*.log")):
        mine = ours / path.name
        assert _batches(mine) == _batches(path), path.name
        base = int(path.stem)
        assert load_transaction_index(mine.with_suffix(".txnindex"), base) == load_transaction_index(
            path.with_suffix(".txnindex"), base
        )
        if all(not found.codec for found in plain_decoder.decode_log(path)):
            for suffix in (".log", ".index", ".timeindex"):
                assert mine.with_suffix(suffix).read_bytes() == path.with_suffix(suffix).read_bytes(), (topic, path)


def _names(directory: Path) -> list[str]:
    """Segments; an index of aborted transactions without entries counts as none."""
    return sorted(path.name for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex"))


def _batches(path: Path) -> list[tuple[object, ...]]:
    """Return the batches without the fields that depend on the compressed size: position, size and CRC."""
    return [
        (
            found.base_offset, found.last_offset, found.attributes, found.base_timestamp, found.max_timestamp,
            found.leader_epoch, found.producer_id, found.producer_epoch, found.base_sequence, found.records,
        )
        for found in plain_decoder.decode_log(path)
    ]  # fmt: skip
