"""Custom metadata of Aiven's plugin: bytes in `__remote_log_metadata` that say where a segment's objects lie.

A section of tagged fields (SegmentCustomMetadataSerde): 0 `remote_size` (varlong), 1 `object_prefix` and 2 `object_key`
(compact strings), where the configuration of today may be another one than when the segment was copied.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_spark.errors import CorruptRemoteMetadata
from kafkalog_spark.format.messages import Malformed, read_tagged_fields, sized
from kafkalog_spark.format.varints import read_varlong, uvarint, write_varint

_REMOTE_SIZE, _OBJECT_PREFIX, _OBJECT_KEY = range(3)
_TEXT = sized(is_text=True, flexible=True, nullable=False)


@dataclass(frozen=True)
class CustomMetadata:
    """remote_size: bytes of all objects of the segment. object_prefix: its `key.prefix`. object_key: of its objects,
    without prefix and suffix. Each None where it is not said."""

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def encode_custom_metadata(metadata: CustomMetadata) -> bytes | None:
    """The bytes; None where nothing is said."""
    fields = {
        _REMOTE_SIZE: None if metadata.remote_size is None else _varlong(metadata.remote_size),
        _OBJECT_PREFIX: None if metadata.object_prefix is None else _TEXT.write(metadata.object_prefix),
        _OBJECT_KEY: None if metadata.object_key is None else _TEXT.write(metadata.object_key),
    }
    said = [uvarint(tag) + uvarint(len(data)) + data for tag, data in fields.items() if data is not None]
    return uvarint(len(said)) + b"".join(said) if said else None


def decode_custom_metadata(data: bytes | None) -> CustomMetadata:
    """What the bytes say; unknown fields are passed over. Raises CorruptRemoteMetadata."""
    if not data:
        return CustomMetadata()
    try:
        fields, _ = read_tagged_fields(data, 0)
        texts = {tag: _TEXT.read(fields[tag], 0)[0] for tag in (_OBJECT_PREFIX, _OBJECT_KEY) if tag in fields}
        size = read_varlong(fields[_REMOTE_SIZE], 0, len(fields[_REMOTE_SIZE]))[0] if _REMOTE_SIZE in fields else None
    except (Malformed, IndexError, ValueError) as error:
        raise CorruptRemoteMetadata(f"custom metadata of a segment: {error}") from None
    return CustomMetadata(size, texts.get(_OBJECT_PREFIX), texts.get(_OBJECT_KEY))


def _varlong(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)
