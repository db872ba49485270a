"""Objects of remote segments: their store, paths, manifests and indexes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from kafkalog_spark.errors import CorruptManifest, CorruptRemoteMetadata, KafkalogError
from kafkalog_spark.format.relative_path import joined_below
from kafkalog_spark.log.remote.bucket_store import BucketStore
from kafkalog_spark.log.remote.folder_store import FolderStore
from kafkalog_spark.log.remote.remote_indexes import read_indexes
from kafkalog_spark.log.remote.remote_segment_file import check_chunk_size
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.remote.weighted_cache import WeightedCache
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.custom_metadata import decode_object_key
from kafkalog_spark.log.tiered.manifest import MAX_MANIFEST_SIZE, SegmentManifest, parse_manifest
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile, remote_key
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.store.paths import is_local, parse_path

_MANIFEST_CACHE_BYTES = 8 << 20
"""Capacity in bytes of the cache of manifests. A manifest of 256 chunks has 4 kB, but a segment may have a million
chunks."""
_SMALL_MANIFEST_BYTES = 2 << 10  # bytes of a manifest without the positions of its chunks


class RemoteObjects:
    """Objects of remote segments in the folder or bucket of `options`. Thread-safe.

    Attributes:
        options: Location, layout and encryption.
        store: The folder or bucket.
    """

    def __init__(self, options: RemoteStorageOptions, stopping: threading.Event) -> None:
        """Create without a request.

        Args:
            options: Location, layout and encryption.
            stopping: Ends retries when it is set.

        Raises:
            OptionError: If the location is not valid.
        """
        self.options = options
        self.store: FolderStore | BucketStore
        if is_local(options.root):
            self.store = FolderStore(options.root, options.folder)
        else:
            scheme, bucket, _ = parse_path(options.root)
            self.store = BucketStore(scheme, bucket, options.storage, stopping)
        self._manifests = WeightedCache[tuple[SegmentManifest, ChunkCodec]](_MANIFEST_CACHE_BYTES, _weight_of)

    def path(self, segment: RemoteSegment, file: RemoteFile) -> str:
        """Return the path of an object. Raises CorruptRemoteMetadata."""
        prefix = self.options.key_prefix
        if file is not RemoteFile.MANIFEST and segment.custom_metadata and self.options.layout is Layout.AIVEN:
            recorded_prefix, recorded_key = decode_object_key(segment.custom_metadata)
            prefix = prefix if recorded_prefix is None else recorded_prefix
            expected_key = remote_key(Layout.AIVEN, segment, file).removesuffix(file.value)
            # The plugin writes no other key, and another one may be that of another topic.
            if recorded_key not in (None, expected_key):
                raise CorruptRemoteMetadata(
                    f"the custom metadata of the segment has the object key {recorded_key[:200]!r}, expected "
                    f"{expected_key}"
                )
        return joined_below(self.options.root, remote_key(self.options.layout, segment, file, prefix))

    def read_indexes(self, segment: RemoteSegment, kinds: Sequence[RemoteFile]) -> dict[RemoteFile, bytes]:
        """Return the decoded bytes of several indexes by kind. Raises the errors of `remote_indexes.read_indexes`."""
        manifest, codec = (
            (None, None) if self.options.layout is Layout.LOCAL_TIERED else self.manifest_and_codec(segment)
        )
        path_of = partial(self.path, segment)
        return read_indexes(self.store, path_of, manifest, codec, kinds, optional=RemoteFile.TRANSACTION_INDEX)

    def manifest_and_codec(self, segment: RemoteSegment) -> tuple[SegmentManifest, ChunkCodec]:
        """Return the manifest of a segment and the codec of its chunks, from a cache if possible.

        Raises:
            OSError: If the manifest cannot be read.
            CorruptManifest, UnsupportedFormat, KeyNotGiven: If it is damaged, not supported or cannot be decrypted.
        """
        return self._manifests.get(segment, partial(self._read_manifest, segment))

    def _read_manifest(self, segment: RemoteSegment) -> tuple[SegmentManifest, ChunkCodec]:
        path = self.path(segment, RemoteFile.MANIFEST)
        try:
            manifest = parse_manifest(self.store.read_all(path, MAX_MANIFEST_SIZE))
            manifest.check_segment(segment.partition, segment.start_offset, segment.segment_id)
            size = manifest.chunks.original_file_size
            if size != segment.size:
                raise CorruptManifest(
                    f"chunkIndex.originalFileSize is {size}, expected the {segment.size} bytes that "
                    "__remote_log_metadata says",
                    hint="the manifest is damaged, or another segment was copied over this one",
                )
            check_chunk_size(manifest, str(segment), path)
            return manifest, ChunkCodec.of(manifest, self.options.keys)
        except KafkalogError as error:
            raise error.at(path=path) from None


def _weight_of(stored: tuple[SegmentManifest, ChunkCodec]) -> int:
    return _SMALL_MANIFEST_BYTES + int(stored[0].chunks.positions.nbytes)
