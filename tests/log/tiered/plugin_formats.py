"""What the plugins write, as bytes and text: object keys, manifests, sizes of chunks."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import numpy as np
import zstandard

from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.tiered.manifest import INDEX_FIELDS, SegmentManifest
from kafkalog_spark.log.tiered.remote_names import LOCAL_TIERED_SUFFIX, Layout, RemoteFile, RemoteSegment

_U32 = struct.Struct(">I")
_HEAD = struct.Struct(">IIB")


def remote_key(layout: Layout, segment: RemoteSegment, file: RemoteFile, key_prefix: str = "") -> str:
    """The key of one object of a segment, as Aiven's plugin or Kafka 4.3's LocalTieredStorage makes it.

    Raises KeyError for files that the layout does not have: LocalTieredStorage has no manifests and joined indexes.
    """
    topic, topic_id, partition = segment.partition
    if layout is Layout.AIVEN:
        return f"{key_prefix}{topic}-{uuid_to_text(topic_id)}/{partition}/{segment.name}{file.value}"
    folder = f"{topic}-{partition}-{uuid_to_text(topic_id)}"
    return f"{key_prefix}{folder}/{segment.name}{LOCAL_TIERED_SUFFIX[file]}"


def encode_chunk_sizes(sizes: np.ndarray) -> bytes:
    """The bytes that `decode_chunk_sizes` reads, as the plugin writes them. Sizes in bytes, 0 to 2^31 - 1."""
    count = len(sizes)
    if count < 2:
        return _U32.pack(count) + b"".join(_U32.pack(int(size)) for size in sizes)
    base = int(sizes[:-1].min())
    rest = sizes[:-1] - base
    width = max(1, (int(rest.max()).bit_length() + 7) // 8)
    digits = rest.astype(">u8").view(np.uint8).reshape(count - 1, 8)[:, 8 - width :]
    return _HEAD.pack(count, base, width) + digits.tobytes() + _U32.pack(int(sizes[-1]))


def chunk_sizes_to_text(sizes: np.ndarray) -> str:
    """The manifest's text for `sizes`."""
    return base64.b64encode(zstandard.ZstdCompressor().compress(encode_chunk_sizes(sizes))).decode("ascii")


def format_manifest(manifest: SegmentManifest) -> bytes:
    """The object's bytes, fields as the plugin of today writes them."""
    chunks = manifest.chunks
    index: dict[str, Any] = {
        "type": "variable" if manifest.compressed else "fixed",
        "originalChunkSize": chunks.original_chunk_size,
        "originalFileSize": chunks.original_file_size,
    }
    if not manifest.compressed:
        index["transformedChunkSize"] = int(chunks.sizes[0]) if chunks.count else 0
        index["finalTransformedChunkSize"] = int(chunks.sizes[-1]) if chunks.count else 0
    else:
        index["transformedChunks"] = chunk_sizes_to_text(chunks.sizes)
    value: dict[str, Any] = {"version": "1", "chunkIndex": index}
    if manifest.indexes is not None:
        value["segmentIndexes"] = {
            name: manifest.indexes[file]._asdict() if file in manifest.indexes else None
            for file, name in INDEX_FIELDS.items()
        }
    value["compression"] = manifest.compressed
    if manifest.encryption is not None:
        value["encryption"] = {
            "dataKey": f"{manifest.encryption.key_id}:{_to_base64(manifest.encryption.wrapped_key)}",
            "aad": _to_base64(manifest.encryption.aad),
        }
    if manifest.segment is not None:
        value["remoteLogSegmentMetadata"] = _segment_fields(manifest.segment)
    return json.dumps(value, separators=(",", ":")).encode("utf-8")


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _segment_fields(segment: RemoteSegment) -> dict[str, Any]:
    partition = segment.partition
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": uuid_to_text(partition.topic_id),
                "topicPartition": {"topic": partition.topic, "partition": partition.partition},
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
