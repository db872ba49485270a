"""Rows of the table `findings`: the findings of kafkalog-check in a partition, or in the log directories' own files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkalog_spark.log.check.dir_files import LogDirState, check_directories
from kafkalog_spark.log.check.finding import Findings
from kafkalog_spark.log.check.partition_task import check_partition
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit


def findings_of_unit(unit: OpenUnit) -> Batches:
    """Return the findings of a partition, or of the log directories if the unit has none."""
    return unit.batches(_rows(unit))


def _rows(unit: OpenUnit) -> Iterator[dict[str, Any]]:
    findings = Findings()
    if unit.unit.location is None:
        check_directories(unit.roots, unit.locations, findings)
    else:
        local = unit.location.in_log_directory
        state = unit.task.once_per_log_dir(local, _read_log_dir_state) if local.has_checkpoints else None
        check_partition(unit.location, findings, state=state)
    findings.add_omitted()
    for finding in findings.kept:
        topic, _, number = (finding.topic_partition or "").rpartition("-")
        row = {"severity": finding.severity.value, "path": finding.path} | finding.fault._asdict()
        yield row | ({"topic": topic, "partition": int(number)} if number else {})


def _read_log_dir_state(location: PartitionLocation) -> LogDirState:
    return LogDirState.read(location.log_dir, location.store, Findings())
