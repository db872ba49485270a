"""Upload of the objects of a closed segment, in the order that its layout requires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from kafkalog_spark.errors import RemoteStorageError
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.layout import RECORDS_AT
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.tiered.chunk_codec import ENCRYPTION_OVERHEAD, ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.custom_metadata import encode_custom_metadata
from kafkalog_spark.log.tiered.manifest import INDEX_FIELDS, IndexRange, SegmentManifest, format_manifest
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, remote_key
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.store.object_store import PART

Pieces = Callable[[], Iterable[bytes]]
"""Function that returns the bytes of an object in pieces, from the beginning. It is called again for each retry."""
Put = Callable[[RemoteFile, Pieces, int], int]
"""Function `put(file, pieces, size)` that writes an object of about `size` bytes and returns its exact size."""

UPLOAD_ORDER = {
    Layout.AIVEN: (RemoteFile.LOG, RemoteFile.INDEXES, RemoteFile.MANIFEST),
    Layout.LOCAL_TIERED: (
        RemoteFile.LOG, RemoteFile.OFFSET_INDEX, RemoteFile.TIME_INDEX, RemoteFile.TRANSACTION_INDEX,
        RemoteFile.LEADER_EPOCHS, RemoteFile.PRODUCER_SNAPSHOT,
    ),
}  # fmt: skip
"""Objects of a segment in the order in which they are written. The last one makes the segment complete."""
_READ_SIZE = 1 << 20  # bytes read at a time if the file is not divided into chunks


@dataclass(frozen=True)
class LogSegmentData:
    """Files of a closed segment (Kafka's class of that name).

    Attributes:
        log: The .log file.
        indexes: Index files by kind, with the producer snapshot at the base offset of the next segment. The transaction
            index is present only if a transaction was aborted in the segment.
        leader_epochs: Content of a leader-epoch checkpoint with the epochs from the start of the log to the end of the
            segment.
    """

    log: Path
    indexes: Mapping[RemoteFile, Path]
    leader_epochs: bytes

    def index(self, kind: RemoteFile) -> bytes | None:
        """Return the bytes of an index, or None if the segment does not have it. Raises OSError."""
        if kind is RemoteFile.LEADER_EPOCHS:
            return self.leader_epochs
        return self.indexes[kind].read_bytes() if kind in self.indexes else None


def upload_segment(
    put: Put, options: RemoteStorageOptions, segment: RemoteSegment, data: LogSegmentData
) -> bytes | None:
    """Write the objects of a segment.

    Args:
        put: Function that writes one object.
        options: Layout, chunk size, compression and encryption.
        segment: Metadata of the segment.
        data: Files of the segment.

    Returns:
        The custom metadata of the segment for `__remote_log_metadata`, or None if there is none.

    Raises:
        RemoteStorageError: If the .log is shorter than the size in the metadata.
        OSError: If a file cannot be read or `put` fails.
    """
    if options.layout is Layout.AIVEN:
        return _upload_aiven(put, options, segment, data)
    return _upload_local_tiered(put, segment, data)


def _upload_local_tiered(put: Put, segment: RemoteSegment, data: LogSegmentData) -> bytes | None:
    for file in UPLOAD_ORDER[Layout.LOCAL_TIERED]:
        if file is RemoteFile.LOG:
            put(file, partial(_read_file, data.log, segment.size, _READ_SIZE), segment.size)
        elif (index := data.index(file)) is not None:
            put(file, partial(_split_into_parts, index), len(index))
    return None


def _upload_aiven(
    put: Put, options: RemoteStorageOptions, segment: RemoteSegment, data: LogSegmentData
) -> bytes | None:
    compress = options.compress
    if compress and options.compress_by_first_batch:
        with data.log.open("rb") as file:
            header = file.read(RECORDS_AT)
        compress = len(header) < RECORDS_AT or parse_header(header, 0, 0).codec == 0
    codec = ChunkCodec.for_new_segment(compress, options.keys, options.key_id)
    sizes: list[int] = []

    def chunks() -> Iterator[bytes]:
        sizes.clear()  # an upload may be retried from its first chunk
        for chunk in _read_file(data.log, segment.size, options.chunk_size):
            stored = codec.encode_chunk(chunk)
            sizes.append(len(stored))
            yield stored

    log_size = put(RemoteFile.LOG, chunks, segment.size)
    indexes, ranges = b"", {}
    for kind in INDEX_FIELDS:
        index = data.index(kind)
        if index is not None:
            stored = codec.encode_index(index)
            ranges[kind] = IndexRange(len(indexes), len(stored))
            indexes += stored
    put(RemoteFile.INDEXES, partial(_split_into_parts, indexes), len(indexes))
    if compress:
        chunk_index = ChunkIndex.of_variable(options.chunk_size, segment.size, np.array(sizes, np.int64))
    else:
        overhead = 0 if codec.cipher is None else ENCRYPTION_OVERHEAD
        chunk_index = ChunkIndex.of_fixed(
            options.chunk_size, segment.size, options.chunk_size + overhead, sizes[-1] if sizes else 0
        )
    manifest = format_manifest(SegmentManifest(chunk_index, compress, codec.encryption, ranges, segment))
    put(RemoteFile.MANIFEST, partial(_split_into_parts, manifest), len(manifest))
    fields = options.custom_fields
    return encode_custom_metadata(
        log_size + len(indexes) + len(manifest) if "REMOTE_SIZE" in fields else None,
        options.key_prefix if "OBJECT_PREFIX" in fields else None,
        remote_key(Layout.AIVEN, segment, RemoteFile.LOG).removesuffix(".log") if "OBJECT_KEY" in fields else None,
    )


def _split_into_parts(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), PART):
        yield data[at : at + PART]


def _read_file(path: Path, size: int, piece: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file. Raises RemoteStorageError if the file is shorter."""
    with path.open("rb") as file:
        remaining = size
        while remaining:
            data = file.read(min(piece, remaining))
            if not data:
                raise RemoteStorageError(
                    f"the segment has {size - remaining} bytes on disk, expected {size}", path=str(path)
                )
            remaining -= len(data)
            yield data
