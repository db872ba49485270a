"""How far a cluster of Kafka's has come in giving out producer ids, by the metadata log in a log directory (KRaft)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.format.batch_header import check_crc
from kafkalog_spark.log.format.cluster_metadata import PRODUCER_IDS, next_producer_id
from kafkalog_spark.log.format.durable import descriptor
from kafkalog_spark.log.format.layout import RECORDS_AT
from kafkalog_spark.log.format.names import CLUSTER_METADATA_TOPIC, LOG_SUFFIX
from kafkalog_spark.log.format.records import read_records
from kafkalog_spark.log.read.header_windows import header_windows
from kafkalog_spark.log.store.local_store import DescriptorFile

_logger = logging.getLogger(__name__)

_SNAPSHOT_SUFFIX = ".checkpoint"
"""Of KRaft's snapshots, whose batches are those of a log."""


def next_of_cluster(directory: Path) -> int:
    """The first id that no broker has got; 0 where the metadata log is not here. What cannot be read is logged."""
    largest = 0
    for suffix in (_SNAPSHOT_SUFFIX, LOG_SUFFIX):
        for path in sorted((directory / f"{CLUSTER_METADATA_TOPIC}-0").glob(f"*{suffix}")):
            try:
                for found in _ids_in(path):
                    largest = max(largest, found)
            except (KafkalogError, OSError) as error:
                _logger.warning("%s: producer ids after it are not known (%s)", error, path)
    return largest


def _ids_in(path: Path) -> Iterator[int]:
    with descriptor(path) as fd:
        for window, wrong in header_windows(DescriptorFile(fd), os.fstat(fd).st_size):
            for row in range(len(window.table)):
                header, batch = window.header(row), bytes(window.batch(row))
                # Kafka does not compress them, and one in thousands of batches has the record.
                if header.is_control or header.codec or PRODUCER_IDS not in batch:
                    continue
                check_crc(header, batch)
                payload = batch[RECORDS_AT:]
                for record in read_records(payload, header.record_count, header.base_timestamp):
                    found = next_producer_id(payload[record.value_at : record.value_at + record.value_size])
                    if found is not None:
                        yield found
            if wrong is not None:
                raise wrong
