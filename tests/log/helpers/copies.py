"""Partitions in several log directories, as the brokers of a cluster leave them, for tests."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from pathlib import Path

from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE, MetaProperties, write_meta_properties
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    format_partition_metadata,
)
from tests.source.helpers.made_logs import append, numbers

IDS = (uuid.UUID(int=1), uuid.UUID(int=2))


def copy_of(
    log_dir: Path,
    topic: str,
    partition: int,
    values: Sequence[str],
    *,
    epoch: int | None = None,
    topic_id: uuid.UUID | None = None,
    cluster: str | None = None,
) -> Path:
    """A partition's directory with these records, the leader epoch and the ids."""
    append(log_dir, topic, partition, values)
    directory = log_dir / f"{topic}-{partition}"
    (directory / LEADER_EPOCH_CHECKPOINT).unlink(missing_ok=True)
    (directory / PARTITION_METADATA_FILE).unlink(missing_ok=True)
    if epoch is not None:
        (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(format_leader_epochs([(0, 0), (epoch, 0)]))
    if topic_id is not None:
        (directory / PARTITION_METADATA_FILE).write_bytes(format_partition_metadata(topic_id))
    if cluster is not None:
        date = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
        write_meta_properties(log_dir / META_PROPERTIES_FILE, MetaProperties(1, cluster_id=cluster, node_id=1), date)
    return directory


def two_brokers(path: Path) -> tuple[Path, Path]:
    """Replication factor 1 of `orders`, both with Kafka's own topics: orders-0 and orders-1 on one broker each."""
    first, second = path / "broker-1", path / "broker-2"
    copy_of(first, "orders", 0, numbers(0, 5), topic_id=IDS[0], cluster="east")
    copy_of(second, "orders", 1, numbers(10, 13), topic_id=IDS[0], cluster="east")
    for broker in (first, second):
        copy_of(broker, "__consumer_offsets", 0, numbers(0, 2))
    return first, second
