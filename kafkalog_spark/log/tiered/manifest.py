"""The manifest of a segment (`.rsm-manifest`): SegmentManifestV1 of Aiven's plugin, JSON in UTF-8.

It says how the segment was cut and transformed, where its indexes lie in the `.indexes` object, and, since September
2023, which segment it is. It is written last: where it is, the segment is whole.
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
    """Typed access to the fields of a JSON object, by name. Raises CorruptManifest for another type, with the name."""

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
        if type(value) is not kind:  # True is an int to isinstance
            raise CorruptManifest(f"{self._full(name)} is {_shown(value)}, expected {_KINDS[kind]}")
        return value

    def integer(self, name: str, least: int = 0) -> int:
        """An integer from `least` to 2^63 - 1."""
        value = self.get(name, int)
        if not least <= value <= MAX_INT64:
            raise CorruptManifest(f"{self._full(name)} is {_shown(value)}, expected {least} to 2^63-1")
        return value

    def fields(self, name: str) -> JsonFields:
        return JsonFields(self.get(name, dict), self._full(name))

    def optional(self, name: str) -> JsonFields | None:
        """The object in a field; None when it is null or missing."""
        return None if self._value.get(name) is None else self.fields(name)

    def nullable(self, name: str) -> JsonFields | None:
        """The object in a field that must be there; None when it is null."""
        if name not in self._value:
            raise CorruptManifest(f"{self._full(name)} is missing, expected an object or null")
        return self.optional(name)

    def epochs(self) -> tuple[EpochEntry, ...]:
        """This object as {"epoch": start offset}, by epoch."""
        for name in self._value:
            if not _EPOCH.fullmatch(name) or int(name) > MAX_INT32:
                raise CorruptManifest(f"{self._name} has the key {_shown(name)}, expected a leader epoch")
        return tuple(sorted(EpochEntry(int(name), self.integer(name)) for name in self._value))


def _shown(value: Any) -> str:
    """A value's beginning: manifests may hold anything."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:40]}..."


MOST_OF_MANIFEST = 64 << 20  # bytes. The sizes of a million chunks take 5 MB.

INDEX_FIELDS = {
    RemoteFile.OFFSET_INDEX: "offset",
    RemoteFile.TIME_INDEX: "timestamp",
    RemoteFile.PRODUCER_SNAPSHOT: "producerSnapshot",
    RemoteFile.LEADER_EPOCHS: "leaderEpoch",
    RemoteFile.TRANSACTION_INDEX: "transaction",
}
"""The manifest's names of the indexes, in the order in which they lie in the object."""


class IndexRange(NamedTuple):
    """Where an index lies in the `.indexes` object, encrypted or not: bytes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class SegmentEncryption:
    """AES-256-GCM of chunks and indexes. key_id: of the RSA key pair; wrapped_key: the data key, encrypted with it.
    aad: additional authenticated data of every chunk."""

    key_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """indexes: by kind; None for a legacy manifest (before October 2023), whose indexes are objects of their own;
    without a transaction index the kind is missing. segment: None before September 2023: then the key must do."""

    chunks: ChunkIndex
    compressed: bool
    encryption: SegmentEncryption | None
    indexes: Mapping[RemoteFile, IndexRange] | None
    segment: RemoteSegment | None

    @property
    def plain(self) -> bool:
        """The `.log` object is the segment, byte for byte."""
        return not self.compressed and self.encryption is None

    def check_is_of(self, partition: TopicIdPartition, start_offset: int, segment_id: UUID) -> None:
        """Raise CorruptManifest, without a path, if it is of another segment than this one."""
        segment = self.segment
        if segment is None or (segment.partition, segment.start_offset, segment.segment_id) == (
            partition, start_offset, segment_id,
        ):  # fmt: skip
            return
        raise CorruptManifest(f"it is of another segment than its key: {segment}", hint="was the object copied?")


def parse_manifest(data: bytes) -> SegmentManifest:
    """Fields not known are passed over. Raises CorruptManifest without a path, UnsupportedFormat for other versions."""
    try:
        manifest = JsonFields(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise CorruptManifest(f"not JSON in UTF-8: {error}") from None
    version = manifest.get("version", str)
    if version != "1":
        raise UnsupportedFormat(f"manifest version {version[:20]!r}, only '1' is known")
    compressed = manifest.get("compression", bool)
    encryption = None
    if (given := manifest.optional("encryption")) is not None:
        key_id, colon, wrapped = given.get("dataKey", str).rpartition(":")
        if not colon or not key_id:
            raise CorruptManifest("encryption.dataKey is not <key id>:<base64>")
        aad = _base64(given.get("aad", str), "encryption.aad")
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
            hint="originalFileSize, the chunk sizes, compression or encryption is not what it was",
        )
    places: dict[RemoteFile, IndexRange] | None = None
    if (indexes := manifest.optional("segmentIndexes")) is not None:
        places = {}
        for file, name in INDEX_FIELDS.items():
            place = indexes.nullable(name) if file is RemoteFile.TRANSACTION_INDEX else indexes.fields(name)
            if place is not None:
                places[file] = IndexRange(place.integer("position"), place.integer("size"))
    segment = _segment(manifest.optional("remoteLogSegmentMetadata"), chunks.original_file_size)
    return SegmentManifest(chunks, compressed, encryption, places, segment)


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptManifest(f"{name} is not base64: {error}") from None


def _segment(given: JsonFields | None, size: int) -> RemoteSegment | None:
    if given is None:
        return None
    segment_id = given.fields("remoteLogSegmentId")
    topic_id_partition = segment_id.fields("topicIdPartition")
    topic_partition = topic_id_partition.fields("topicPartition")
    start, end = given.integer("startOffset"), given.integer("endOffset", -1)
    if end < start - 1:
        raise CorruptManifest(f"remoteLogSegmentMetadata.endOffset {end} is below startOffset {start}")
    epochs = given.fields("segmentLeaderEpochs").epochs()
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
    timestamp, broker_id, at = (given.integer(name, -1) for name in ("maxTimestampMs", "brokerId", "eventTimestampMs"))
    return RemoteSegment(partition, segment, start, end, epochs, size, timestamp, broker_id, at)


def format_manifest(manifest: SegmentManifest) -> bytes:
    """The object's bytes, fields as the plugin of today writes them."""
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
        places = {file: place._asdict() for file, place in manifest.indexes.items()}
        value["segmentIndexes"] = {name: places.get(file) for file, name in INDEX_FIELDS.items()}
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
