"""Checks the files directly in log directories: checkpoints, meta.properties, and names of directories.

Checkpoints are read before the logs. If they were read afterwards, they might be ahead of a log that is being written.
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
_KAFKA_FILES = {META_PROPERTIES_FILE, names.CLEAN_SHUTDOWN_FILE, names.LOCK_FILE, "bootstrap.checkpoint", *CHECKPOINTS}
_OWN_PREFIX = "kafkalog."
"""Prefix of the files that kafkalog-broker keeps beside Kafka's, and of the sink's directories in a bucket."""


@dataclass(frozen=True, slots=True)
class LogDirState:
    """State of a log directory, according to the files directly in it.

    Attributes:
        is_clean_shutdown: True if it has a clean-shutdown marker.
        checkpoints: Offsets by file name and partition. A missing or unreadable file has none.
    """

    is_clean_shutdown: bool
    checkpoints: Mapping[str, Mapping[TopicPartition, int]]

    @classmethod
    def read(cls, path: str, store: Store, findings: Findings) -> LogDirState:
        """Read the files of the log directory `path`, and report those that cannot be parsed to `findings`."""
        is_clean_shutdown = names.CLEAN_SHUTDOWN_FILE in store.list(path).names
        checkpoints = {}
        for name in CHECKPOINTS:
            file = os.path.join(path, name)
            parsed = findings.read(file, partial(parsed_file, store, file, checkpoint.parse_offset_checkpoint))
            checkpoints[name] = parsed or {}
        findings.read(os.path.join(path, META_PROPERTIES_FILE), partial(read_meta_properties, store, path))
        return cls(is_clean_shutdown, checkpoints)


def check_directories(
    roots: Iterable[Root], locations: Mapping[TopicPartition, PartitionLocation], findings: Findings
) -> dict[str, LogDirState]:
    """Check the files of log directories, and that all partitions of a topic have the same topic id.

    Args:
        roots: Paths of the check.
        locations: All partitions in them.
        findings: Gets the faults.

    Returns:
        The state of each log directory, by its path.
    """
    local = local_logs(locations)
    log_dirs = {location.log_dir: location.store for location in local.values()}
    states = {path: LogDirState.read(path, store, findings) for path, store in log_dirs.items()}
    tiered = [location for location in locations.values() if isinstance(location, TieredLocation)]
    for path, store in roots:
        is_partition = path not in log_dirs and names.parse_partition_dir(os.path.basename(path))
        if not is_partition and not _is_remote_root(path, tiered):
            _check_listing(path, store, findings)
    _check_topic_ids(local, findings)
    return states


def has_local_log(location: PartitionLocation) -> bool:
    """Return True if a log directory has a part of the log, or all of it."""
    return not isinstance(location, TieredLocation) or location.is_local


def local_logs(locations: Mapping[TopicPartition, PartitionLocation]) -> dict[TopicPartition, PartitionLocation]:
    """Return the locations of the partitions that have a local log, without their remote segments."""
    return {key: location.in_log_directory for key, location in locations.items() if has_local_log(location)}


def _is_remote_root(path: str, tiered: Iterable[TieredLocation]) -> bool:
    """Return True if `path` has remote segments of a partition whose local log, if any, is elsewhere."""
    below = f"{path}/"
    for location in tiered:
        has_local = location.is_local and location.directory.startswith(below)
        if not has_local and any(remote.directory.startswith(below) for remote in location.remote):
            return True
    return False


def _check_listing(path: str, store: Store, findings: Findings) -> None:
    listing = store.list(path)
    for name in sorted(listing.names):
        file = os.path.join(path, name)
        if listing.is_directory(name):
            parsed = names.parse_partition_dir(name)
            if store.is_remote and name.startswith(_OWN_PREFIX):
                continue
            if parsed is None and name != names.INDEX_CACHE_DIR:
                what = "not a partition directory (<topic>-<partition>): Apache Kafka refuses to start with it"
                findings.add(Severity.ERROR, file, Fault(what))
            elif parsed is not None and parsed.kind not in (DirKind.LIVE, DirKind.METADATA):
                findings.add(Severity.NOTE, file, Fault(f"skipped: -{parsed.kind.value} directory"))
        elif name.endswith(TEMPORARY_SUFFIX):
            findings.add(Severity.NOTE, file, Fault("temporary file left over from a crash"))
        elif name not in _KAFKA_FILES and not name.startswith(_OWN_PREFIX):
            findings.add(Severity.NOTE, file, Fault("not a broker file"))


def _check_topic_ids(local: Mapping[TopicPartition, PartitionLocation], findings: Findings) -> None:
    ids: dict[str, tuple[uuid.UUID, int]] = {}
    for (topic, partition), location in local.items():
        try:
            topic_id = location.topic_id()
        except NotALogDirectory:
            continue  # the check of the partition reads the same file, and reports the error
        if topic_id is not None:
            first_id, first = ids.setdefault(topic, (topic_id, partition))
            if first_id != topic_id:
                expected = f"that of partition {first}, {uuid_to_text(first_id)}"
                fault = Fault("the topic id", expected=expected, got=uuid_to_text(topic_id))
                findings.for_partition(f"{topic}-{partition}").add(Severity.ERROR, location.directory, fault)


def check_checkpoints(
    location: PartitionLocation,
    state: LogDirState,
    result: PartitionResult,
    findings: Findings,
    *,
    was_closed_cleanly: bool,
) -> None:
    """Compare a partition's offsets in the checkpoints of its log directory with the result of its check."""
    if result.is_deleted or result.is_incomplete:
        return
    end = result.log_end_offset
    for name, offsets in state.checkpoints.items():
        offset = offsets.get((location.topic, location.partition))
        if offset is None:
            continue
        if not 0 <= offset <= end:
            expected = f"0 to {end}, the log end offset"
        elif was_closed_cleanly and name == checkpoint.RECOVERY_POINT_CHECKPOINT and offset != end:
            expected = f"{end}, the log end offset, after a clean stop"
        else:
            continue
        # Flushed offsets cannot be in a torn tail. The high watermark and the cleaner's checkpoint can.
        is_flushed = name in (checkpoint.RECOVERY_POINT_CHECKPOINT, checkpoint.LOG_START_OFFSET_CHECKPOINT)
        severity = Severity.NOTE if result.has_torn_tail and not is_flushed else Severity.ERROR
        fault = Fault(f"the offset in {name}", offset=offset, expected=expected, got=str(offset))
        findings.add(severity, os.path.join(location.log_dir, name), fault)
