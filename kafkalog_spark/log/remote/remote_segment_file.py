"""The .log of a remote segment as a SegmentFile.

A compressed or encrypted .log is fetched and decoded chunk by chunk, in the threads that read ahead.
"""

from __future__ import annotations

import errno
import logging
import threading
from contextlib import AbstractContextManager
from functools import partial

from kafkalog_spark.errors import CorruptChunk, CorruptLog, UnsupportedFormat
from kafkalog_spark.format.index_file import read_index_entries
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.remote.remote_indexes import read_index
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.manifest import SegmentManifest
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.store.interface import FetchBlock, FileFacts, OpenFile

DECODED_BLOCK = 4 << 20
"""Bytes of the chunks that are decoded together; at least one chunk. During decoding, the stored bytes of the chunks
are in memory, too."""

MAX_CHUNK_SIZE = 128 << 20
"""Largest chunk in bytes. The plugin accepts a chunk.size of up to 2^30-1; its documentation uses 4 MiB. Without a
limit, a small object could decompress to a chunk that exceeds the memory of a worker. Decoding needs two to three times
the size of a chunk."""
_log = logging.getLogger(__name__)


def open_remote(
    stored: StoredSegment, keys: KeyRing, topic_partition: str, *, pass_over_damage: bool = False
) -> SegmentFile:
    """Open the .log of a remote segment.

    Args:
        stored: The segment.
        keys: Private keys, for encrypted segments.
        topic_partition: Topic-partition, for messages.
        pass_over_damage: True to log damage and continue where possible (mode=DROPMALFORMED).

    Raises:
        FileNotFoundError: If the segment was deleted.
        OSError: If the object cannot be opened.
        KeyNotGiven: If the private key of an encrypted segment is missing.
        CorruptManifest, CorruptLog, UnsupportedFormat: If the objects are damaged or not supported.
    """
    file = stored.remote_dir.store.open(stored.log_path, stored.objects[RemoteFile.LOG][1])
    manifest = stored.manifest
    has_chunks = manifest is not None and not manifest.is_plain
    try:
        _check_object_size(stored, file.size, topic_partition, pass_over_damage=pass_over_damage)
        if manifest is not None and has_chunks:
            check_chunk_size(manifest, topic_partition, stored.path_of(RemoteFile.MANIFEST))
            file = _open_chunks(stored, manifest, file, keys, pass_over_damage=pass_over_damage)
    except BaseException:
        file.close()
        raise
    return SegmentFile(
        file,
        stored.remote_dir.directory,
        stored.files,
        partial(_index_entries, stored, keys),
        stored.segment.until,
        topic_partition,
        # Decoding a chunk costs as much as a request, so treat the file as remote: few lookups, and read-ahead.
        is_remote=stored.remote_dir.store.is_remote or has_chunks,
        pass_over_damage=pass_over_damage,
    )


def _check_object_size(stored: StoredSegment, size: int, topic_partition: str, *, pass_over_damage: bool) -> None:
    if stored.object_size in (None, size):
        return
    source = "its manifest" if stored.manifest is not None else "__remote_log_metadata"
    damage = CorruptLog(
        f"the object has {size} bytes, {source} says {stored.object_size}",
        topic_partition=topic_partition,
        path=stored.log_path,
        hint="it was truncated or replaced after it was written",
    )
    if not pass_over_damage:
        raise damage
    _log.warning("mode=DROPMALFORMED: %s", damage)


def _open_chunks(
    stored: StoredSegment, manifest: SegmentManifest, file: OpenFile, keys: KeyRing, *, pass_over_damage: bool
) -> OpenFile:
    """Return a file with the decoded bytes of the object `file`, which it closes."""
    from kafkalog_spark.store.object_file import ObjectFile  # loaded only if chunks are read

    chunks, codec, path = manifest.chunks, ChunkCodec.of(manifest, keys), stored.log_path
    read = stored.remote_dir.store.ranges(path, stored.objects[RemoteFile.LOG][1] or FileFacts(file.size, ""))
    # Several blocks are fetched at once, but decoded one after the other, to bound the memory.
    decode_lock = threading.Lock()
    return ObjectFile(
        chunks.original_file_size,
        lambda begin, end: read_chunks(chunks, codec, path, read, begin, end, decode_lock, pass_over_damage),
        has_changed=file.has_changed,
        on_close=file.close,
        align=chunks.original_chunk_size,
        block=DECODED_BLOCK,
    )


def check_chunk_size(manifest: SegmentManifest, topic_partition: str, path: str) -> None:
    """Raise UnsupportedFormat if the chunks of a manifest are too large to be decoded in memory."""
    chunks = manifest.chunks
    largest = max(min(chunks.original_chunk_size, chunks.original_file_size), int(chunks.sizes.max(initial=0)))
    if largest > MAX_CHUNK_SIZE:
        raise UnsupportedFormat(
            f"its chunks have {largest} bytes (originalChunkSize {chunks.original_chunk_size}), at most "
            f"{MAX_CHUNK_SIZE} are supported: a chunk is decoded as a whole, in memory",
            topic_partition=topic_partition,
            path=path,
            hint="upload such segments with a smaller chunk.size (the plugin's documentation uses 4 MiB), or read them "
            "through a broker",
        )


def read_chunks(
    chunks: ChunkIndex,
    codec: ChunkCodec,
    path: str,
    read: FetchBlock,
    begin: int,
    end: int,
    guard: AbstractContextManager[object],
    pass_over_damage: bool = False,
) -> bytearray:
    """Return the bytes [begin, end) of a segment, decoded from the chunks of its object.

    Args:
        chunks: Positions of the chunks.
        codec: Codec of the chunks.
        path: Path of the object, for errors.
        read: Reads a byte range of the object.
        begin: Position of the first byte in the segment.
        end: Position after the last byte in the segment.
        guard: Held while a chunk is decoded.
        pass_over_damage: Return zeros for a damaged chunk. Zeros are not a valid batch header, so readers skip them.

    Raises:
        CorruptChunk: If a chunk is damaged, unless damage is passed over.
    """
    stored_range = chunks.object_range(begin, end)
    data = memoryview(read(stored_range.begin, stored_range.end))
    target = bytearray(end - begin)
    target_view = memoryview(target)  # assignment to a slice of a bytearray would copy the bytes twice
    for chunk, first, last in chunks.slices(begin, end):
        stored_chunk = data[chunk.position - stored_range.begin :][: chunk.size]
        position = chunk.original_position + first - begin
        try:
            with guard:
                target_view[position : position + last - first] = memoryview(
                    codec.decode_chunk(stored_chunk, chunk, path)
                )[first:last]
        except CorruptChunk as error:
            if not pass_over_damage:
                raise
            _log.warning("mode=DROPMALFORMED: %s", error)
    return target


def _index_entries(stored: StoredSegment, keys: KeyRing, name: str, entry_size: int) -> bytes:
    """Return the entries of an index, for a SegmentFile.

    Args:
        name: File name of the index, from `StoredSegment.files`.

    Raises:
        OSError: If the index is damaged, too: a SegmentFile ignores an index that cannot be read.
    """
    try:
        data = read_index(stored, keys, RemoteFile("." + name.rpartition(".")[2]))
    except CorruptChunk as error:
        raise OSError(errno.EIO, str(error)) from error
    return read_index_entries(lambda position, size: data[position : position + size], entry_size)
