"""Read and decoding of one block of the .log of a remote segment."""

from __future__ import annotations

from kafkalog_spark.log.remote.remote_objects import RemoteObjects
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.store.interface import FileFacts


def read_block(objects: RemoteObjects, segment: RemoteSegment, begin: int, end: int, *, decodes_parts: bool) -> bytes:
    """Return the decoded bytes [begin, end) of a .log.

    Args:
        decodes_parts: True if the block is a part of a large chunk; False if it consists of whole chunks.

    Raises:
        OSError: If an object cannot be read.
        CorruptManifest, CorruptChunk, UnsupportedFormat, KeyNotGiven: As `RemoteStorage.fetch`.
    """
    manifest, codec = objects.manifest_and_codec(segment)
    path = objects.path(segment, RemoteFile.LOG)
    read = objects.store.ranges(path, FileFacts(manifest.chunks.object_size, ""))
    if manifest.is_plain:
        return bytes(read(begin, end))
    if decodes_parts:
        slices = manifest.chunks.slices(begin, end)
        parts = [codec.decode_chunk_part(read, chunk, first, last, path) for chunk, first, last in slices]
        return parts[0] if len(parts) == 1 else b"".join(parts)
    stored = manifest.chunks.object_range(begin, end)
    data = memoryview(read(stored.begin, stored.end))
    # The block consists of whole chunks. A single chunk is returned without a copy.
    chunks = [
        codec.decode_chunk(data[chunk.position - stored.begin :][: chunk.size], chunk, path)
        for chunk in map(manifest.chunks.chunk, stored.chunks)
    ]
    only = chunks[0]
    return only if len(chunks) == 1 and isinstance(only, bytes) else b"".join(chunks)
