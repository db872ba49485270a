"""Custom metadata of Aiven's plugin: the location of the objects of a segment.

It is stored in the events of the segment, and remains valid if the configuration of the plugin changes after the copy.
Its tagged fields are 0 `remote_size` (varlong), 1 `object_prefix` and 2 `object_key` (compact strings). Source:
SegmentCustomMetadataSerde.
"""

from __future__ import annotations

from kafkalog_spark.errors import CorruptRemoteMetadata
from kafkalog_spark.format.messages.wire import Malformed, compact_string, read_compact_string, read_tagged_fields
from kafkalog_spark.format.varints import uvarint, write_varint


def encode_custom_metadata(remote_size: int | None, object_prefix: str | None, object_key: str | None) -> bytes | None:
    """Return the custom metadata of a segment, or None if no field is present.

    Args:
        remote_size: Total size of the objects of the segment in bytes.
        object_prefix: `key.prefix` of the segment.
        object_key: Common key of the objects, without prefix and suffix.
    """
    size = bytearray()
    if remote_size is not None:
        write_varint(size, remote_size)
    texts = (b"" if text is None else compact_string(text) for text in (object_prefix, object_key))
    fields = [uvarint(tag) + uvarint(len(data)) + data for tag, data in enumerate((bytes(size), *texts)) if data]
    return uvarint(len(fields)) + b"".join(fields) if fields else None


def decode_object_key(data: bytes) -> tuple[str | None, str | None]:
    """Return `object_prefix` and `object_key` of custom metadata, each None if it is absent.

    Raises:
        CorruptRemoteMetadata: If the bytes cannot be decoded.
    """
    try:
        fields, _ = read_tagged_fields(data, 0)
        prefix, key = (read_compact_string(fields[tag], 0)[0] if tag in fields else None for tag in (1, 2))
    except (Malformed, IndexError, ValueError) as error:
        raise CorruptRemoteMetadata(f"custom metadata of a segment: {error}") from None
    return prefix, key
