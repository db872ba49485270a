"""The manifest of a segment (`.rsm-manifest`): SegmentManifestV1 of Aiven's plugin, JSON in UTF-8.

It contains the sizes of the chunks, their compression and encryption, the positions of the indexes in the `.indexes`
object and, since September 2023, the metadata of the segment. It is written last, so a segment with a manifest is
complete.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_spark.errors import CorruptManifest, UnsupportedFormat
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.log.tiered.chunk_sizes import chunk_sizes_from_text, chunk_sizes_to_text
from kafkalog_spark.log.tiered.chunks import ChunkIndex, chunk_count
from kafkalog_spark.log.tiered.json_fields import JsonFields
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

MAX_MANIFEST_SIZE = 64 << 20  # bytes; the sizes of a million chunks take 5 MB

INDEX_FIELDS = {
    RemoteFile.OFFSET_INDEX: "offset",
    RemoteFile.TIME_INDEX: "timestamp",
    RemoteFile.PRODUCER_SNAPSHOT: "producerSnapshot",
    RemoteFile.LEADER_EPOCHS: "leaderEpoch",
    RemoteFile.TRANSACTION_INDEX: "transaction",
}
"""Field of each index in the manifest, in the order of the indexes in the `.indexes` object."""


class IndexRange(NamedTuple):
    """Position and stored size of an index in the `.indexes` object, in bytes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class SegmentEncryption:
    """Parameters of the AES-256-GCM encryption of chunks and indexes.

    Attributes:
        key_id: ID of the RSA key pair.
        wrapped_key: Data key, encrypted with the RSA key.
        aad: Additional authenticated data of every chunk and index.
    """

    key_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """Content of a manifest.

    Attributes:
        chunks: Positions of the chunks in the `.log` object.
        is_compressed: True if the chunks are compressed.
        encryption: None if chunks and indexes are not encrypted.
        indexes: Range of each index in the `.indexes` object. The transaction index can be absent. None in manifests
            from before October 2023, when each index had an object of its own.
        segment: Metadata of the segment. None in manifests from before September 2023; then only the object key
            identifies the segment.
    """

    chunks: ChunkIndex
    is_compressed: bool
    encryption: SegmentEncryption | None
    indexes: Mapping[RemoteFile, IndexRange] | None
    segment: RemoteSegment | None

    @property
    def is_plain(self) -> bool:
        """True if the `.log` object equals the segment byte for byte."""
        return not self.is_compressed and self.encryption is None

    def check_segment(self, partition: TopicIdPartition, start_offset: int, segment_id: UUID) -> None:
        """Raise CorruptManifest, without a path, if the manifest contains the metadata of another segment."""
        segment = self.segment
        if segment is None or (segment.partition, segment.start_offset, segment.segment_id) == (
            partition, start_offset, segment_id,
        ):  # fmt: skip
            return
        raise CorruptManifest(f"the manifest is that of another segment: {segment}", hint="was the object copied?")


def parse_manifest(data: bytes) -> SegmentManifest:
    """Parse a manifest; unknown fields are ignored.

    Raises:
        CorruptManifest: If a field is missing or invalid; without a path.
        UnsupportedFormat: If the version or the type of the chunk index is unknown.
    """
    try:
        manifest = JsonFields(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise CorruptManifest(f"not JSON in UTF-8: {error}") from None
    version = manifest.get("version", str)
    if version != "1":
        raise UnsupportedFormat(f"manifest version {version[:20]!r}, only '1' is known")
    compressed = manifest.get("compression", bool)
    encryption = _parse_encryption(manifest.get_optional_object("encryption"))
    chunks = _parse_chunk_index(manifest.get_object("chunkIndex"))
    if encryption is None and not compressed and chunks.object_size != chunks.original_file_size:
        raise CorruptManifest(
            f"neither compressed nor encrypted, but {chunks.original_file_size} bytes became {chunks.object_size}",
            hint="originalFileSize, the chunk sizes, compression or encryption was changed after the upload",
        )
    indexes = _parse_index_ranges(manifest.get_optional_object("segmentIndexes"))
    segment = _parse_segment(manifest.get_optional_object("remoteLogSegmentMetadata"), chunks.original_file_size)
    return SegmentManifest(chunks, compressed, encryption, indexes, segment)


def _parse_encryption(fields: JsonFields | None) -> SegmentEncryption | None:
    if fields is None:
        return None
    key_id, colon, wrapped_key = fields.get("dataKey", str).rpartition(":")
    if not colon or not key_id:
        raise CorruptManifest("encryption.dataKey is not <key id>:<base64>")
    aad = _decode_base64(fields.get("aad", str), "encryption.aad")
    return SegmentEncryption(key_id, _decode_base64(wrapped_key, "encryption.dataKey"), aad)


def _decode_base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptManifest(f"{name} is not base64: {error}") from None


def _parse_chunk_index(fields: JsonFields) -> ChunkIndex:
    chunk_size, file_size = fields.get_integer("originalChunkSize", 1), fields.get_integer("originalFileSize")
    index_type = fields.get("type", str)
    if index_type == "fixed":
        transformed_size = fields.get_integer("transformedChunkSize")
        return ChunkIndex.of_fixed(
            chunk_size, file_size, transformed_size, fields.get_integer("finalTransformedChunkSize")
        )
    if index_type == "variable":
        sizes = chunk_sizes_from_text(fields.get("transformedChunks", str), chunk_count(chunk_size, file_size))
        return ChunkIndex.of_variable(chunk_size, file_size, sizes)
    raise UnsupportedFormat(f"chunkIndex.type is {index_type[:20]!r}, 'fixed' and 'variable' are known")


def _parse_index_ranges(fields: JsonFields | None) -> dict[RemoteFile, IndexRange] | None:
    if fields is None:
        return None
    ranges: dict[RemoteFile, IndexRange] = {}
    for file, name in INDEX_FIELDS.items():
        is_nullable = file is RemoteFile.TRANSACTION_INDEX
        index = fields.get_nullable_object(name) if is_nullable else fields.get_object(name)
        if index is not None:
            ranges[file] = IndexRange(index.get_integer("position"), index.get_integer("size"))
    return ranges


def _parse_segment(metadata: JsonFields | None, size: int) -> RemoteSegment | None:
    if metadata is None:
        return None
    segment_id = metadata.get_object("remoteLogSegmentId")
    topic_id_partition = segment_id.get_object("topicIdPartition")
    topic_partition = topic_id_partition.get_object("topicPartition")
    start, end = metadata.get_integer("startOffset"), metadata.get_integer("endOffset", -1)
    if end < start - 1:
        raise CorruptManifest(f"remoteLogSegmentMetadata.endOffset {end} is below startOffset {start}")
    epochs = metadata.get_object("segmentLeaderEpochs").get_epochs()
    try:
        partition = TopicIdPartition(
            topic_partition.get("topic", str),
            uuid_from_text(topic_id_partition.get("topicId", str)),
            topic_partition.get_integer("partition"),
        )
        if not valid_topic_name(partition.topic):
            raise ValueError(f"{partition.topic[:60]!r} is not a valid topic name")
        segment = uuid_from_text(segment_id.get("id", str))
    except ValueError as error:
        raise CorruptManifest(f"remoteLogSegmentMetadata.remoteLogSegmentId: {error}") from None
    timestamp, broker_id, event_timestamp = (
        metadata.get_integer(name, -1) for name in ("maxTimestampMs", "brokerId", "eventTimestampMs")
    )
    return RemoteSegment(partition, segment, start, end, epochs, size, timestamp, broker_id, event_timestamp)


def format_manifest(manifest: SegmentManifest) -> bytes:
    """Return the content of a manifest object, with the fields that current versions of the plugin write."""
    chunks = manifest.chunks
    index: dict[str, Any] = {
        "type": "variable" if manifest.is_compressed else "fixed",
        "originalChunkSize": chunks.original_chunk_size,
        "originalFileSize": chunks.original_file_size,
    }
    if manifest.is_compressed:
        index["transformedChunks"] = chunk_sizes_to_text(chunks.sizes)
    else:
        index["transformedChunkSize"] = int(chunks.sizes[0]) if chunks.count else 0
        index["finalTransformedChunkSize"] = int(chunks.sizes[-1]) if chunks.count else 0
    value: dict[str, Any] = {"version": "1", "chunkIndex": index}
    if manifest.indexes is not None:
        index_ranges = {file: index_range._asdict() for file, index_range in manifest.indexes.items()}
        value["segmentIndexes"] = {name: index_ranges.get(file) for file, name in INDEX_FIELDS.items()}
    value["compression"] = manifest.is_compressed
    if manifest.encryption is not None:
        value["encryption"] = {
            "dataKey": f"{manifest.encryption.key_id}:{base64.b64encode(manifest.encryption.wrapped_key).decode()}",
            "aad": base64.b64encode(manifest.encryption.aad).decode(),
        }
    if (segment := manifest.segment) is not None:
        value["remoteLogSegmentMetadata"] = {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": uuid_to_text(segment.partition.topic_id),
                    "topicPartition": {"topic": segment.partition.topic, "partition": segment.partition.partition},
                },
                "id": uuid_to_text(segment.segment_id),
            },
            "startOffset": segment.start_offset,
            "endOffset": segment.end_offset,
            "maxTimestampMs": segment.max_timestamp,
            "brokerId": segment.broker_id,
            "eventTimestampMs": segment.event_timestamp,
            "segmentLeaderEpochs": {str(epoch): offset for epoch, offset in segment.leader_epochs},
        }
    return json.dumps(value, separators=(",", ":")).encode("utf-8")
