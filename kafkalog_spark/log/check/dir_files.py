"""Pieces of a check that know nothing of each other, so that tasks can run them: each partition, and the files of log
directories themselves.

Checkpoints are read before the logs: read later, they could be ahead of what was seen of a log that is written to.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format import checkpoint, names
from kafkalog_spark.format.atomic_file import TEMPORARY_SUFFIX
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.names import DirKind
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.check.finding import Fault, Findings, Severity
from kafkalog_spark.log.check.partition_check import PartitionResult
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.read.state_files import parsed_file, read_meta_properties
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.store.interface import Store

CHECKPOINTS = (
    checkpoint.RECOVERY_POINT_CHECKPOINT,
    checkpoint.LOG_START_OFFSET_CHECKPOINT,
    checkpoint.HIGH_WATERMARK_CHECKPOINT,
    checkpoint.CLEANER_OFFSET_CHECKPOINT,
)
_KAFKAS = {META_PROPERTIES_FILE, names.CLEAN_SHUTDOWN_FILE, names.LOCK_FILE, "bootstrap.checkpoint", *CHECKPOINTS}
_OWN_PREFIX = "kafkalog."
"""Prefix of the files that kafkalog-broker keeps beside Kafka's, and of the sink's directories in a bucket."""


@dataclass(frozen=True, slots=True)
class DirFiles:
    """closed: it has a clean-shutdown marker. checkpoints: by file name."""

    closed: bool
    checkpoints: Mapping[str, Mapping[TopicPartition, int]]

    @classmethod
    def read(cls, path: str, store: Store, findings: Findings) -> DirFiles:
        closed, checkpoints = names.CLEAN_SHUTDOWN_FILE in store.list(path).names, {}
        for name in CHECKPOINTS:
            file = os.path.join(path, name)
            parsed = findings.read(file, partial(parsed_file, store, file, checkpoint.parse_offset_checkpoint))
            checkpoints[name] = parsed or {}
        findings.read(os.path.join(path, META_PROPERTIES_FILE), partial(read_meta_properties, store, path))
        return cls(closed, checkpoints)


def check_directories(
    roots: Iterable[Root], places: Mapping[TopicPartition, PartitionLocation], findings: Findings
) -> dict[str, DirFiles]:
    """Check the files of log directories themselves, and topic ids; the files' contents, by log directory."""
    local = local_places(places)
    parents = {place.log_dir: place.store for place in local.values()}
    files = {path: DirFiles.read(path, store, findings) for path, store in parents.items()}
    tiers = [place for place in places.values() if isinstance(place, TieredLocation)]
    for path, store in roots:
        of_tier = any(
            any(remote.directory.startswith(path + "/") for remote in place.remote)
            and not (place.is_local and place.directory.startswith(path + "/"))
            for place in tiers
        )
        if not of_tier and (path in parents or not names.parse_partition_dir(os.path.basename(path))):
            _check_listing(path, store, findings)
    ids: dict[str, tuple[uuid.UUID, int]] = {}
    for (topic, partition), place in local.items():
        try:
            topic_id = place.topic_id()
        except NotALogDirectory:
            continue  # the check of the partition reads the same file, and reports the error
        if topic_id is not None:
            first_id, first = ids.setdefault(topic, (topic_id, partition))
            if first_id != topic_id:
                expected = f"that of partition {first}, {uuid_to_text(first_id)}"
                fault = Fault("the topic id", expected=expected, got=uuid_to_text(topic_id))
                findings.of(f"{topic}-{partition}").add(Severity.ERROR, place.directory, fault)
    return files


def _is_local(place: PartitionLocation) -> bool:
    return not isinstance(place, TieredLocation) or place.is_local


def local_places(places: Mapping[TopicPartition, PartitionLocation]) -> dict[TopicPartition, PartitionLocation]:
    return {key: place.local for key, place in places.items() if _is_local(place)}


def _check_listing(path: str, store: Store, findings: Findings) -> None:
    listing = store.list(path)
    for name in sorted(listing.names):
        file = os.path.join(path, name)
        if listing.is_directory(name):
            parsed = names.parse_partition_dir(name)
            if store.remote and name.startswith(_OWN_PREFIX):
                continue
            if parsed is None and name != names.INDEX_CACHE_DIR:
                what = "is no partition's directory (<topic>-<partition>): Apache Kafka does not start with it"
                findings.add(Severity.ERROR, file, Fault(what))
            elif parsed is not None and parsed.kind not in (DirKind.LIVE, DirKind.METADATA):
                findings.add(Severity.NOTE, file, Fault(f"is not looked at: a -{parsed.kind.value} directory"))
        elif name.endswith(TEMPORARY_SUFFIX):
            findings.add(Severity.NOTE, file, Fault("is left over from a crash"))
        elif name not in _KAFKAS and not name.startswith(_OWN_PREFIX):
            findings.add(Severity.NOTE, file, Fault("is no file of a broker"))


def _check_checkpoints(
    place: PartitionLocation, files: DirFiles, result: PartitionResult, findings: Findings, *, closed: bool
) -> None:
    if result.gone or result.is_damaged:
        return
    end = result.log_end_offset
    for name, offsets in files.checkpoints.items():
        offset = offsets.get((place.topic, place.partition))
        if offset is None:
            continue
        if not 0 <= offset <= end:
            expected = f"0 to {end}, the log end offset"
        elif closed and name == checkpoint.RECOVERY_POINT_CHECKPOINT and offset != end:
            expected = f"{end}, the log end offset, after a clean stop"
        else:
            continue
        # What was flushed cannot be torn; a high watermark or the cleaner may have been further.
        flushed = name in (checkpoint.RECOVERY_POINT_CHECKPOINT, checkpoint.LOG_START_OFFSET_CHECKPOINT)
        severity = Severity.NOTE if result.has_torn_tail and not flushed else Severity.ERROR
        fault = Fault(f"the offset in {name}", offset=offset, expected=expected, got=str(offset))
        findings.add(severity, os.path.join(place.log_dir, name), fault)
