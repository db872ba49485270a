"""Log directories: what lies in them, and what their checkpoints say of the partitions.

    result = check_log_dirs(["/data/kafka-logs"])
    result.findings.errors, result.findings.notes

Checkpoints are read before the logs: read later, they could be ahead of what was seen of a log that is written to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafkalog_spark.errors import KafkalogError, NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE
from kafkalog_spark.log.check.dir_files import (
    DirFiles,
    check_checkpoints,
    check_listing,
    check_topic_ids,
    read_dir_files,
)
from kafkalog_spark.log.check.finding import Finding, Findings
from kafkalog_spark.log.check.partition_check import PartitionCheck, PartitionResult
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.discovery import LOG_DIR_MARKS, log_bytes, refuse_copies
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.remote.tiered_log import TieredLocation
from kafkalog_spark.log.tiered.tier_options import NO_TIER, TierOptions

if TYPE_CHECKING:
    from kafkalog_spark.store.storage_options import StorageOptions


_OF_PARTITION = (PARTITION_METADATA_FILE, LEADER_EPOCH_CHECKPOINT)


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
    storage: how object stores among the paths are reached; tier: of remote segments. on_bytes: called with (bytes done,
    bytes in all) as it goes on. Raises NotALogDirectory when a path is none, or where a partition lies in two of them:
    each is checked alone.
    """
    dirs = LogDirs.open(paths, storage, tier)
    _refuse_what_only_has_such_names(dirs)
    refuse_copies(dirs.copies, dirs.copies)
    result = CheckResult(Findings(on_finding))
    tiers = [place for place in dirs.places.values() if isinstance(place, TieredLocation)]
    remote_only = {(place.topic, place.partition) for place in tiers if not place.is_local}
    of_log_dirs = {key: place.local for key, place in dirs.places.items() if key not in remote_only}
    parents = {place.log_dir: place.store for place in of_log_dirs.values()}
    of_path = {path: read_dir_files(path, store, result.findings) for path, store in parents.items()}
    tier_roots = {root for root in dirs.roots for place in tiers if _lies_in(root.path, place)}
    for path, store in (root for root in dirs.roots if root not in tier_roots):
        if path in of_path or not names.parse_partition_dir(os.path.basename(path)):
            check_listing(path, store, result.findings)
    total = sum(map(_bytes_of, of_log_dirs.values()))
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if on_bytes is not None:
            on_bytes(done, total)

    for key, place in of_log_dirs.items():
        said = of_path[place.log_dir]
        log = _open(place, said, result.findings)
        if log is not None:
            check = PartitionCheck(log, result.findings, closed or said.closed, count, records)
            try:
                result.partitions[key] = check.run()
            except OSError as error:
                result.findings.add_unreadable(error, error.filename or place.directory, log.name)
    remote_results = {(place.topic, place.partition): _check_tier(place, result, count, records) for place in tiers}
    for path, said in of_path.items():
        check_checkpoints(path, said, dirs.places, result.partitions, result.findings, closed=closed or said.closed)
    check_topic_ids({key: found.topic_id for key, found in result.partitions.items()}, dirs.places, result.findings)
    for key, found in remote_results.items():
        result.partitions[key] = _together(result.partitions.get(key), found)
    result.findings.tell_rest()
    result.bytes = done
    return result


def _refuse_what_only_has_such_names(dirs: LogDirs) -> None:
    """Raise NotALogDirectory for a local directory that holds nothing of Kafka's but directories with names like
    x-1: of those, and of all else in it, there would be a note each."""
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
        found = os.listdir(directory)
    except OSError:
        return True  # whoever opens it says what is wrong
    return any(names.parse_segment_file(name) or name in _OF_PARTITION for name in found)


def _lies_in(root: str, place: TieredLocation) -> bool:
    return any(remote.directory.startswith(root + "/") for remote in place.remote) and not (
        place.is_local and place.directory.startswith(root + "/")
    )


def _check_tier(
    place: TieredLocation, result: CheckResult, count: Callable[[int], None], records: bool
) -> PartitionResult:
    from kafkalog_spark.log.check.tier_check import TierCheck

    return TierCheck(place, result.findings, count, records).run()


def _together(local: PartitionResult | None, remote: PartitionResult) -> PartitionResult:
    """Results for the local and the remote part of a partition, joined."""
    if local is None:
        return remote
    return replace(
        local,
        segments=local.segments + remote.segments,
        batches=local.batches + remote.batches,
        records=local.records + remote.records,
        is_damaged=local.is_damaged or remote.is_damaged,
    )


def _bytes_of(place: PartitionLocation) -> int:
    """Bytes of a partition's .log files; 0 when it cannot be listed: whoever opens it says what is wrong."""
    if not place.store.remote:
        return log_bytes(place.directory)
    try:
        files = place.store.list(place.directory).files
    except OSError:
        return 0
    return sum(facts.size for name, facts in files.items() if name.endswith(names.LOG_SUFFIX))


def _open(place: PartitionLocation, said: DirFiles, findings: Findings) -> PartitionLog | None:
    key = (place.topic, place.partition)
    try:
        return place.open_unread(
            OpenHints(
                said.checkpoints[RECOVERY_POINT_CHECKPOINT].get(key),
                said.checkpoints[LOG_START_OFFSET_CHECKPOINT].get(key),
                pass_over_damage=True,
            )
        )
    except KafkalogError as error:
        if place.exists():
            findings.add_error(error, place.directory, f"{place.topic}-{place.partition}")
        return None
