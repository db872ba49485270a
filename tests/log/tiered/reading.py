"""Tiers read as a table, and what Kafka's consumers read of the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.log.tiered.tier_options import TierOptions
from tests.log.helpers.rows import ALL_COLUMNS, plain_rows
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode, write_tree
from tests.log.tiered.golden_tiered import GoldenCluster

Rows = list[dict[str, Any]]

WITH_KEY = TierOptions.of({f"tiered.encryption.key.{KEY_ID}": str(KEYS / "one.pem")})


def readable(cluster: GoldenCluster) -> list[RemoteSegment]:
    """All segments of a golden cluster that are wholly copied."""
    return [segment for segments in cluster.readable().values() for segment in segments]


def aiven_tree(
    cluster: GoldenCluster, target: Path, mode: AivenMode, chunk_size: int, key_prefix: str = "", topic: str = ""
) -> Path:
    """The cluster's remote segments (those of a topic) in Aiven's layout."""
    for name, data in _aiven_files(cluster, mode, chunk_size, key_prefix, topic).items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return target


@cache
def _aiven_files(
    cluster: GoldenCluster, mode: AivenMode, chunk_size: int, key_prefix: str, topic: str
) -> dict[str, bytes]:
    """Its files by their paths: written once, copied for each test."""
    segments = [segment for segment in readable(cluster) if topic in ("", segment.partition.topic)]
    with TemporaryDirectory() as made:
        write_tree(cluster.remote, segments, Path(made), mode, chunk_size, key_prefix)
        files = (path for path in Path(made).rglob("*") if path.is_file())
        return {str(path.relative_to(made)): path.read_bytes() for path in files}


def opened(*roots: object, topic: str, partition: int = 0, tier: TierOptions = WITH_KEY) -> PartitionLog:
    return LogDirs.open([str(root) for root in roots], tier=tier).partition(topic, partition)


def rows_of(log: PartitionLog, *, committed: bool = False, start: int | None = None, end: int | None = None) -> Rows:
    """The records of a log, or of offsets [start, end), as plain rows."""
    request = ScanRequest(columns=ALL_COLUMNS, read_committed=committed)
    if end is None:
        end = last_stable_offset(log) if committed else log.log_end_offset
    return plain_rows(scan_partition(log, log.log_start_offset if start is None else start, end, request))


def consumed(
    cluster: GoldenCluster, topic: str, partition: int = 0, *, committed: bool = False, start: int = 0, end: int = 2**63
) -> Rows:
    """What a consumer returned, of offsets [start, end)."""
    return [
        {name: value for name, value in row.items() if name != "committed"}
        for row in cluster.records(topic, partition)
        if start <= row["offset"] < end and (row["committed"] or not committed)
    ]
