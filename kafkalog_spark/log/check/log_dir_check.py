"""Check of log directories. Its pieces know nothing of each other, so that tasks can run them: each partition, and the
files of log directories themselves.

Checkpoints are read before the logs: read later, they could be ahead of what was seen of a log that is written to.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kafkalog_spark.errors import KafkalogError, NotALogDirectory
from kafkalog_spark.format import checkpoint, names
from kafkalog_spark.format.atomic_file import TEMPORARY_SUFFIX
from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.format.names import DirKind
from kafkalog_spark.format.partition_metadata import OWN_FILES, uuid_to_text
from kafkalog_spark.log.check.finding import Fault, Finding, Findings, Severity
from kafkalog_spark.log.check.partition_check import PartitionCheck, PartitionResult
from kafkalog_spark.log.check.tier_check import TierCheck
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.discovery import LOG_DIR_MARKS, Root, log_bytes, refuse_copies
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation, parsed_file, read_meta_properties
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.log.tiered.tier_options import NO_TIER, TierOptions
from kafkalog_spark.store.interface import Store

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions

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


def check_partition(
    place: PartitionLocation,
    findings: Findings,
    files: DirFiles | None = None,
    *,
    closed: bool = False,
    on_bytes: Callable[[int], None] = lambda _: None,
    records: bool = False,
) -> PartitionResult | None:
    """Check a partition: its directory, its entries in the checkpoints, its remote segments. None when nothing of it
    can be read, or it is gone. files: of its log directory, whose own faults are for check_directories to tell."""
    result = None
    findings = findings.of(f"{place.topic}-{place.partition}")
    if _is_local(place):
        local = place.local
        files = files or DirFiles.read(local.log_dir, local.store, Findings())
        closed = closed or files.closed
        key = (place.topic, place.partition)
        recovery_point = files.checkpoints[checkpoint.RECOVERY_POINT_CHECKPOINT].get(key)
        log_start = files.checkpoints[checkpoint.LOG_START_OFFSET_CHECKPOINT].get(key)
        try:
            log = local.open_unread(OpenHints(recovery_point, log_start, pass_over_damage=True))
            result = PartitionCheck(log, findings, closed, on_bytes, records).run()
            _check_checkpoints(local, files, result, findings, closed=closed)
        except (KafkalogError, OSError) as error:
            if isinstance(error, OSError) or local.exists():
                findings.add_unreadable(error, local.directory)
    if isinstance(place, TieredLocation):
        result = TierCheck(place, findings, on_bytes, records, result or PartitionResult()).run()
    return result


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
        topic_id = place.topic_id()
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


@dataclass(slots=True)
class CheckResult:
    """Totals of a check, and its findings. bytes: of .log files."""

    findings: Findings
    partitions: dict[TopicPartition, PartitionResult] = field(default_factory=dict)
    bytes: int = 0


def check_log_dirs(
    paths: Iterable[str | os.PathLike[str]],
    storage: StorageOptions | None = None,
    tier: TierOptions = NO_TIER,
    *,
    closed: bool = False,
    records: bool = False,
    on_finding: Callable[[Finding], None] | None = None,
    on_bytes: Callable[[int, int], None] | None = None,
) -> CheckResult:
    """Look at every file of log directories, or of single partition directories. Changes nothing.

    closed: the brokers were stopped cleanly, so that a torn tail or a padded index is an error; a directory with a
    clean-shutdown marker is taken so anyway. records: decode them, too: a valid CRC does not say that they can be read.
    storage: how object stores are reached; tier: of remote segments. on_bytes: called with (bytes done, bytes in all).
    Raises NotALogDirectory when a path is none, or where a partition lies in two of them: each is checked alone.
    """
    dirs = LogDirs.open(paths, storage, tier)
    _refuse_what_only_has_such_names(dirs)
    refuse_copies(dirs.copies, dirs.copies)
    result = CheckResult(Findings(on_finding))
    of_path = check_directories(dirs.roots, dirs.places, result.findings)
    total = sum(map(_bytes_of, local_places(dirs.places).values()))

    def count(size: int) -> None:
        result.bytes += size
        if on_bytes is not None:
            on_bytes(result.bytes, total)

    for key, place in dirs.places.items():
        files = of_path.get(place.log_dir)
        checked = check_partition(place, result.findings, files, closed=closed, on_bytes=count, records=records)
        if checked is not None:
            result.partitions[key] = checked
    result.findings.tell_rest()
    return result


def _refuse_what_only_has_such_names(dirs: LogDirs) -> None:
    """Raise NotALogDirectory for a local directory that has nothing of Kafka's but directories named like x-1."""
    for path, store in dirs.roots:
        of_root = [place.directory for place in dirs.places.values() if place.log_dir == path]
        tiered = any(isinstance(place, TieredLocation) and place.remote for place in dirs.places.values())
        if not of_root or tiered or store.remote or LOG_DIR_MARKS & set(store.list(path).names):
            continue
        if not any(map(_may_be_partition, of_root)):
            raise NotALogDirectory(
                f"is not a Kafka log directory: {os.path.basename(of_root[0])} in it is named like a partition's "
                "directory, but has no file of a partition, nor has another one, and there is no meta.properties",
                path=path,
                hint="give what log.dirs names",
            )


def _may_be_partition(directory: str) -> bool:
    try:
        entries = os.listdir(directory)
    except OSError:
        return True  # whoever opens it says what is wrong
    return any(names.parse_segment_file(name) or name in OWN_FILES for name in entries)


def _bytes_of(place: PartitionLocation) -> int:
    """Bytes of a partition's .log files; 0 when it cannot be listed: whoever opens it says what is wrong."""
    if not place.store.remote:
        return log_bytes(place.directory)
    try:
        files = place.store.list(place.directory).files
    except OSError:
        return 0
    return sum(facts.size for name, facts in files.items() if name.endswith(names.LOG_SUFFIX))
