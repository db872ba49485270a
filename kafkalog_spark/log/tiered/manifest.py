"""The manifest of a segment (`.rsm-manifest`): SegmentManifestV1 of Aiven's plugin, JSON in UTF-8.

It describes the chunks and their transformation, the positions of the indexes in the `.indexes` object and, since
September 2023, the segment itself. It is written last, so a segment with a manifest is complete.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafkalog_spark.errors import CorruptManifest, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64
from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.log.tiered.chunk_sizes import chunk_sizes_from_text, chunk_sizes_to_text
from kafkalog_spark.log.tiered.chunks import ChunkIndex, chunk_count
from kafkalog_spark.log.tiered.remote_names import RemoteFile, RemoteSegment, TopicIdPartition

_EPOCH = re.compile(r"0|[1-9][0-9]{0,9}")
_KINDS = {str: "a string", bool: "true or false", int: "an integer", dict: "an object"}

T = TypeVar("T")


class JsonFields:
    """Typed access to the fields of a JSON object. Methods raise CorruptManifest, with the name, for a wrong type."""

    def __init__(self, value: Any, name: str = "") -> None:
        if not isinstance(value, dict):
            raise CorruptManifest(f"{name or 'the manifest'} is {_shown(value)}, expected an object")
        self._value: dict[str, Any] = value
        self._name = name

    def _full(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def get(self, name: str, kind: type[T]) -> T:
        if name not in self._value:
            raise CorruptManifest(f"{self._full(name)} is missing, expected {_KINDS[kind]}")
        value = self._value[name]
        if type(value) is not kind:  # isinstance(True, int) is true
            raise CorruptManifest(f"{self._full(name)} is {_shown(value)}, expected {_KINDS[kind]}")
        return value

    def integer(self, name: str, least: int = 0) -> int:
        """Return an integer from `least` to 2^63 - 1."""
        value = self.get(name, int)
        if not least <= value <= MAX_INT64:
            raise CorruptManifest(f"{self._full(name)} is {_shown(value)}, expected {least} to 2^63-1")
        return value

    def fields(self, name: str) -> JsonFields:
        return JsonFields(self.get(name, dict), self._full(name))

    def optional(self, name: str) -> JsonFields | None:
        """Return the object in a field, or None if the field is null or missing."""
        return None if self._value.get(name) is None else self.fields(name)

    def nullable(self, name: str) -> JsonFields | None:
        """Return the object in a required field, or None if the field is null."""
        if name not in self._value:
            raise CorruptManifest(f"{self._full(name)} is missing, expected an object or null")
        return self.optional(name)

    def epochs(self) -> tuple[EpochEntry, ...]:
        """Return the fields of this object, which map leader epochs to start offsets, in order of epochs."""
        for name in self._value:
            if not _EPOCH.fullmatch(name) or int(name) > MAX_INT32:
                raise CorruptManifest(f"{self._name} has the key {_shown(name)}, expected a leader epoch")
        return tuple(sorted(EpochEntry(int(name), self.integer(name)) for name in self._value))


def _shown(value: Any) -> str:
    """Return a short text for a value from the manifest, which may be of any type and size."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:40]}..."


MOST_OF_MANIFEST = 64 << 20  # size limit in bytes; the sizes of a million chunks take 5 MB

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
    """Parsed manifest.

    Attributes:
        chunks: Positions of the chunks in the `.log` object.
        compressed: True if the chunks are compressed.
        encryption: None if chunks and indexes are not encrypted.
        indexes: Range of each index in the `.indexes` object. The transaction index can be absent. None in manifests
            before October 2023, where each index is an object of its own.
        segment: None in manifests before September 2023; then only the object key identifies the segment.
    """

    chunks: ChunkIndex
    compressed: bool
    encryption: SegmentEncryption | None
    indexes: Mapping[RemoteFile, IndexRange] | None
    segment: RemoteSegment | None

    @property
    def plain(self) -> bool:
        """True if the `.log` object equals the segment byte for byte."""
        return not self.compressed and self.encryption is None

    def check_is_of(self, partition: TopicIdPartition, start_offset: int, segment_id: UUID) -> None:
        """Raise CorruptManifest, without a path, if the manifest belongs to another segment."""
        segment = self.segment
        if segment is None or (segment.partition, segment.start_offset, segment.segment_id) == (
            partition, start_offset, segment_id,
        ):  # fmt: skip
            return
        raise CorruptManifest(f"it is of another segment than its key: {segment}", hint="was the object copied?")


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
    encryption = None
    if (cipher_fields := manifest.optional("encryption")) is not None:
        key_id, colon, wrapped = cipher_fields.get("dataKey", str).rpartition(":")
        if not colon or not key_id:
            raise CorruptManifest("encryption.dataKey is not <key id>:<base64>")
        aad = _base64(cipher_fields.get("aad", str), "encryption.aad")
        encryption = SegmentEncryption(key_id, _base64(wrapped, "encryption.dataKey"), aad)
    index = manifest.fields("chunkIndex")
    chunk_size, file_size = index.integer("originalChunkSize", 1), index.integer("originalFileSize")
    kind = index.get("type", str)
    if kind == "fixed":
        transformed = index.integer("transformedChunkSize"), index.integer("finalTransformedChunkSize")
        chunks = ChunkIndex.of_fixed(chunk_size, file_size, *transformed)
    elif kind == "variable":
        sizes = chunk_sizes_from_text(index.get("transformedChunks", str), chunk_count(chunk_size, file_size))
        chunks = ChunkIndex.of_variable(chunk_size, file_size, sizes)
    else:
        raise UnsupportedFormat(f"chunkIndex.type is {kind[:20]!r}, 'fixed' and 'variable' are known")
    if encryption is None and not compressed and chunks.object_size != chunks.original_file_size:
        raise CorruptManifest(
            f"neither compressed nor encrypted, but {chunks.original_file_size} bytes became {chunks.object_size}",
            hint="originalFileSize, the chunk sizes, compression or encryption was changed after the upload",
        )
    index_ranges: dict[RemoteFile, IndexRange] | None = None
    if (indexes := manifest.optional("segmentIndexes")) is not None:
        index_ranges = {}
        for file, name in INDEX_FIELDS.items():
            fields = indexes.nullable(name) if file is RemoteFile.TRANSACTION_INDEX else indexes.fields(name)
            if fields is not None:
                index_ranges[file] = IndexRange(fields.integer("position"), fields.integer("size"))
    segment = _segment(manifest.optional("remoteLogSegmentMetadata"), chunks.original_file_size)
    return SegmentManifest(chunks, compressed, encryption, index_ranges, segment)


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptManifest(f"{name} is not base64: {error}") from None


def _segment(metadata: JsonFields | None, size: int) -> RemoteSegment | None:
    if metadata is None:
        return None
    segment_id = metadata.fields("remoteLogSegmentId")
    topic_id_partition = segment_id.fields("topicIdPartition")
    topic_partition = topic_id_partition.fields("topicPartition")
    start, end = metadata.integer("startOffset"), metadata.integer("endOffset", -1)
    if end < start - 1:
        raise CorruptManifest(f"remoteLogSegmentMetadata.endOffset {end} is below startOffset {start}")
    epochs = metadata.fields("segmentLeaderEpochs").epochs()
    try:
        partition = TopicIdPartition(
            topic_partition.get("topic", str),
            uuid_from_text(topic_id_partition.get("topicId", str)),
            topic_partition.integer("partition"),
        )
        if not valid_topic_name(partition.topic):
            raise ValueError(f"{partition.topic[:60]!r} is no topic's name")
        segment = uuid_from_text(segment_id.get("id", str))
    except ValueError as error:
        raise CorruptManifest(f"remoteLogSegmentMetadata.remoteLogSegmentId: {error}") from None
    timestamp, broker_id, event_timestamp = (
        metadata.integer(name, -1) for name in ("maxTimestampMs", "brokerId", "eventTimestampMs")
    )
    return RemoteSegment(partition, segment, start, end, epochs, size, timestamp, broker_id, event_timestamp)


def format_manifest(manifest: SegmentManifest) -> bytes:
    """Return the content of a manifest object, with the fields that current versions of the plugin write."""
    chunks = manifest.chunks
    index: dict[str, Any] = {
        "type": "variable" if manifest.compressed else "fixed",
        "originalChunkSize": chunks.original_chunk_size,
        "originalFileSize": chunks.original_file_size,
    }
    if manifest.compressed:
        index["transformedChunks"] = chunk_sizes_to_text(chunks.sizes)
    else:
        index["transformedChunkSize"] = int(chunks.sizes[0]) if chunks.count else 0
        index["finalTransformedChunkSize"] = int(chunks.sizes[-1]) if chunks.count else 0
    value: dict[str, Any] = {"version": "1", "chunkIndex": index}
    if manifest.indexes is not None:
        index_ranges = {file: index_range._asdict() for file, index_range in manifest.indexes.items()}
        value["segmentIndexes"] = {name: index_ranges.get(file) for file, name in INDEX_FIELDS.items()}
    value["compression"] = manifest.compressed
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
