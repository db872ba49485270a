"""The check in pieces that know nothing of each other, so that tasks can run them: each partition, and the rest.

Together they find what `check_log_dirs` finds, but for partitions that lie in several of the log directories: here the
copy that is read is looked at, there they are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.check.dir_files import (
    check_checkpoints,
    check_listing,
    check_topic_ids,
    read_dir_files,
)
from kafkalog_spark.log.check.finding import Finding, Findings
from kafkalog_spark.log.check.partition_check import PartitionCheck
from kafkalog_spark.log.check.tier_check import TierCheck
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from kafkalog_spark.log.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.read.path_patterns import Root
from kafkalog_spark.log.read.tiered_place import TieredPlace


def check_partition(place: PartitionPlace) -> list[Finding]:
    """What is wrong with one partition, and with what its log directory's checkpoints say of it."""
    findings = Findings()
    if not isinstance(place, TieredPlace) or place.is_local:
        _check_local(place.local, findings)
    if isinstance(place, TieredPlace):
        TierCheck(place, findings, _nobody_asks).run()
    findings.tell_rest()
    return findings.kept


def _check_local(place: PartitionPlace, findings: Findings) -> None:
    key = (place.topic, place.partition)
    name = f"{place.topic}-{place.partition}"
    said = read_dir_files(place.log_dir, place.store, Findings())  # its faults are check_directories' to tell
    try:
        log = place.open_unread(
            recovery_point=said.checkpoints[RECOVERY_POINT_CHECKPOINT].get(key),
            log_start_checkpoint=said.checkpoints[LOG_START_OFFSET_CHECKPOINT].get(key),
            pass_over_damage=True,
        )
        found = PartitionCheck(log, findings, said.closed, _nobody_asks).run()
    except KafkalogError as error:
        if place.exists():
            findings.add_error(error, place.directory, name)
        return
    except OSError as error:
        findings.add_unreadable(error, error.filename or place.directory, name)
        return
    check_checkpoints(place.log_dir, said, {key: place}, {key: found}, findings, closed=said.closed)


def check_directories(roots: Iterable[Root], places: Mapping[TopicPartition, PartitionPlace]) -> list[Finding]:
    """What is wrong with the files of log directories themselves, and with topic ids."""
    findings = Findings()
    local = {key: place.local for key, place in places.items() if not isinstance(place, TieredPlace) or place.is_local}
    parents = {place.log_dir: place.store for place in local.values()}
    for path, store in parents.items():
        read_dir_files(path, store, findings)
    for path, store in roots:
        if path in parents or (not local and not names.parse_partition_dir(os.path.basename(path))):
            check_listing(path, store, findings)
    ids = {key: place.topic_id() for key, place in local.items()}
    check_topic_ids({key: None if i is None else uuid_to_text(i) for key, i in ids.items()}, local, findings)
    findings.tell_rest()
    return findings.kept


def _nobody_asks(_: int) -> None:
    """Bytes done are shown by nobody."""
