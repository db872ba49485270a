"""The table `findings`: what kafkalog-check reports, a partition at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.log.check.dir_files import check_directories, check_partition
from kafkalog_spark.log.check.finding import Finding
from kafkalog_spark.log.read.discovery import Root
from kafkalog_spark.log.read.partition_place import PartitionPlace
from kafkalog_spark.log.tables.table import FINDINGS, collected


def partition_finding_rows(place: PartitionPlace, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Rows of findings about a partition's directory and its entries in checkpoints."""
    yield from _rows(check_partition(place), columns)


def directory_finding_rows(
    roots: Iterable[Root], places: Mapping[TopicPartition, PartitionPlace], columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Rows of findings about log directories themselves: their own files, topic ids that differ."""
    yield from _rows(check_directories(roots, places), columns)


def _rows(findings: list[Finding], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    rows = (_row(finding) for finding in findings)
    yield from collected(FINDINGS.schema(columns), ([row[name] for name in columns] for row in rows))


def _row(finding: Finding) -> dict[str, object]:
    topic, partition = None, None
    if finding.topic_partition is not None:
        topic, _, number = finding.topic_partition.rpartition("-")
        partition = int(number)
    fault = finding.fault
    return {
        "topic": topic,
        "partition": partition,
        "severity": finding.severity.value,
        "path": finding.path,
        "position": fault.position,
        "offset": fault.offset,
        "what": fault.what,
        "expected": fault.expected,
        "got": fault.got,
    }
