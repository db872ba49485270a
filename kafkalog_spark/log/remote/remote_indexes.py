"""Indexes, leader epochs and producer snapshots of remote segments, decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

from kafkalog_spark.errors import CorruptChunk, CorruptManifest
from kafkalog_spark.format.checkpoint import EpochEntry, parse_leader_epochs
from kafkalog_spark.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from kafkalog_spark.format.transaction_index import AbortedTransaction, parse_transaction_index
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.manifest import IndexRange, SegmentManifest
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.store.interface import FileFacts, Store

MAX_INDEX_SIZE = 256 << 20
"""Largest size in bytes of an index. An offset index with an entry for each batch of 300 bytes has 30 MB."""


def read_index(stored: StoredSegment, keys: KeyRing, file: RemoteFile) -> bytes:
    """Return the decoded bytes of an index, the leader epochs or the producer snapshot; empty if the segment has none.

    Raises:
        FileNotFoundError: If the segment was deleted.
        OSError: If the object cannot be read.
        KeyNotGiven: If the private key of an encrypted segment is missing.
        CorruptManifest, CorruptChunk: If the objects are damaged.
    """
    if not stored.has(file):
        return b""
    codec = None if stored.manifest is None else ChunkCodec.of(stored.manifest, keys)
    facts = stored.objects.get(RemoteFile.INDEXES, (None, None))[1]
    return read_indexes(stored.remote_dir.store, stored.path_of, stored.manifest, codec, [file], facts).get(file, b"")


def read_indexes(
    store: Store,
    path_of: Callable[[RemoteFile], str],
    manifest: SegmentManifest | None,
    codec: ChunkCodec | None,
    files: Iterable[RemoteFile],
    facts: FileFacts | None = None,
    optional: RemoteFile | None = None,
) -> dict[RemoteFile, bytes]:
    """Return the decoded bytes of several indexes by file, without empty ones.

    If the segment has an `.indexes` object, they are read with one request.

    Args:
        store: Store of the objects.
        path_of: Returns the path of an object.
        manifest: The manifest in Aiven's layout; None in others.
        codec: Codec of the indexes; None if they are not encoded.
        files: Requested indexes.
        facts: Listed facts of the `.indexes` object, if known.
        optional: Index whose own object may be missing.

    Raises:
        As `read_index`.
    """
    if manifest is None or manifest.indexes is None:
        return _read_index_objects(store, path_of, codec, files, optional)
    assert codec is not None
    ranges = manifest.indexes
    requested = {file: ranges[file] for file in files if file in ranges and ranges[file].size}
    if not requested:
        return {}
    path = path_of(RemoteFile.INDEXES)
    facts = facts or FileFacts(max(index.position + index.size for index in ranges.values()), "")
    begin = min(index.position for index in requested.values())
    end = min(max(index.position + index.size for index in requested.values()), facts.size)
    if end - begin > MAX_INDEX_SIZE:
        raise CorruptManifest(
            f"its indexes take {end - begin} bytes, at most {MAX_INDEX_SIZE} are read",
            path=path_of(RemoteFile.MANIFEST),
        )
    data = memoryview(store.ranges(path, facts)(begin, end) if begin < end else b"")
    return {
        file: bytes(codec.decode_index(data[index.position - begin :][: index.size], index, path))
        for file, index in requested.items()
    }


def _read_index_objects(
    store: Store,
    path_of: Callable[[RemoteFile], str],
    codec: ChunkCodec | None,
    files: Iterable[RemoteFile],
    optional: RemoteFile | None,
) -> dict[RemoteFile, bytes]:
    """Read indexes that have an object each: in LocalTieredStorage, and in Aiven's layout before October 2023."""
    indexes = {}
    for file in files:
        try:
            data = store.read_all(path_of(file), MAX_INDEX_SIZE)
        except FileNotFoundError:
            if file is not optional:
                raise
            continue
        if codec is not None:
            data = bytes(codec.decode_index(data, IndexRange(0, len(data)), path_of(file)))
        indexes[file] = data
    return indexes


def read_leader_epochs(stored: StoredSegment, keys: KeyRing) -> list[EpochEntry]:
    """Return the leader epochs from the start of the log to the end of the segment.

    Raises CorruptFile, UnsupportedFormat, and the errors of `read_index`.
    """
    return parse_leader_epochs(read_index(stored, keys, RemoteFile.LEADER_EPOCHS))


def read_producers(stored: StoredSegment, keys: KeyRing) -> list[ProducerEntry]:
    """Return the state of the producers after the last record of the segment.

    Raises CorruptSnapshot, UnsupportedFormat, and the errors of `read_index`.
    """
    return parse_producer_snapshot(read_index(stored, keys, RemoteFile.PRODUCER_SNAPSHOT))


def read_aborted_transactions(stored: StoredSegment, keys: KeyRing) -> list[AbortedTransaction] | None:
    """Return the transactions whose abort marker is in the segment, from its transaction index.

    Returns:
        None if the size of the transaction index is not recorded (LocalTieredStorage, manifests from before October
        2023). The index could then be truncated, so the batches must be read instead.

    Raises:
        CorruptIndex: If the index is damaged.
        CorruptChunk: If the size of the `.indexes` object differs from the manifest.
        OSError, KeyNotGiven, CorruptManifest: As `read_index`.
    """
    if stored.segment.transaction_index_empty:
        return []
    if stored.manifest is None or stored.manifest.indexes is None:
        return None
    check_indexes_size(stored)
    data = read_index(stored, keys, RemoteFile.TRANSACTION_INDEX)
    return parse_transaction_index(data, stored.segment.start_offset)


def check_indexes_size(stored: StoredSegment) -> None:
    """Check that the `.indexes` object ends where the last index in the manifest ends.

    Raises:
        CorruptChunk: If it does not: an index is truncated, or is missing in the manifest.
        OSError: If the object cannot be opened.
    """
    assert stored.manifest is not None
    assert stored.manifest.indexes is not None
    path = stored.path_of(RemoteFile.INDEXES)
    facts = stored.objects[RemoteFile.INDEXES][1]
    if facts is None:  # the listing of a local directory has no facts
        with closing(stored.remote_dir.store.open(path)) as file:
            facts = FileFacts(file.size, "")
    expected = max((each.position + each.size for each in stored.manifest.indexes.values()), default=0)
    if facts.size != expected:
        raise CorruptChunk(
            f"the object has {facts.size} bytes, expected {expected} by segmentIndexes of its manifest",
            path=path,
            hint="an index is truncated, or the manifest is damaged",
        )
