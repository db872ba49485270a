"""Producer IDs that a Kafka cluster has allocated, read from its metadata log (KIP-730)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.batch_header import check_crc
from kafkalog_spark.format.layout import RECORDS_AT
from kafkalog_spark.format.messages.internal import message
from kafkalog_spark.format.messages.wire import Malformed
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC, LOG_SUFFIX
from kafkalog_spark.format.records import read_records
from kafkalog_spark.format.regular_file import descriptor
from kafkalog_spark.log.read.header_windows import header_windows
from kafkalog_spark.store.local_store import DescriptorFile

_logger = logging.getLogger(__name__)

BLOCK = 1000  # producer IDs that a controller allocates at a time
_SNAPSHOT_SUFFIX = ".checkpoint"  # suffix of KRaft's snapshots, whose batches are those of a log
_PRODUCER_IDS = b"\x01\x0f\x00"
"""First bytes of a ProducerIdsRecord's value: frame version 1, apiKey 15, version 0 (MetadataRecordSerde)."""

_read_producer_ids = message("ProducerIdsRecord").read[0]


def next_producer_id(value: bytes) -> int | None:
    """Return the first unallocated ID of a ProducerIdsRecord; None for any other record."""
    if not value.startswith(_PRODUCER_IDS):
        return None
    try:
        return int(_read_producer_ids(value, len(_PRODUCER_IDS))[0].next_producer_id)
    except Malformed:
        return None


def next_cluster_producer_id(directory: Path) -> int:
    """Return the first producer ID that a Kafka cluster has not allocated, by the metadata log in a log directory.

    Of a damaged file only the records before the damage are read. At least one block then counts as allocated.

    Returns:
        0 without a metadata log.

    Raises:
        OSError: If the process is out of file descriptors.
    """
    largest = 0
    for suffix in (_SNAPSHOT_SUFFIX, LOG_SUFFIX):
        for path in sorted((directory / f"{CLUSTER_METADATA_TOPIC}-0").glob(f"*{suffix}")):
            try:
                for producer_id in _next_producer_ids_in(path):
                    largest = max(largest, producer_id)
            except (KafkalogError, OSError) as error:
                if is_transient(error):
                    raise
                _logger.warning("%s: producer IDs after the damage in %s are unknown", error, path)
                largest = max(largest, BLOCK)
    return largest


def _next_producer_ids_in(path: Path) -> Iterator[int]:
    """Yield the result of `next_producer_id` for each ProducerIdsRecord in a file of the metadata log."""
    with descriptor(path) as fd:
        for window, wrong in header_windows(DescriptorFile(fd), os.fstat(fd).st_size):
            for row in range(len(window.table)):
                header = window.header(row)
                batch = bytes(window.batch(row))
                # Kafka does not compress these batches, and only few of them contain the record.
                if header.is_control or header.codec or _PRODUCER_IDS not in batch:
                    continue
                check_crc(header, batch)
                payload = batch[RECORDS_AT:]
                for record in read_records(payload, header.record_count, header.base_timestamp):
                    producer_id = next_producer_id(payload[record.value_at : record.value_at + record.value_size])
                    if producer_id is not None:
                        yield producer_id
            if wrong is not None:
                raise wrong
