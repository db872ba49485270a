"""What Aiven's plugin keeps of a segment in `__remote_log_metadata` (SegmentCustomMetadataSerde): tagged fields.

0 remote_size VARLONG, bytes of all its objects; 1 object_prefix, 2 object_key COMPACT_STRING: where log and indexes
lie, whatever the plugin's `key.prefix` has become since. The manifest lies below the prefix of today.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalog_spark.log.tiered.compact_reader import CompactReader


class CustomMetadata(NamedTuple):
    """Fields of the plugin's `custom.metadata.fields.include`; None for those that it does not include."""

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None


def parse_custom_metadata(data: bytes) -> CustomMetadata:
    """Empty data has no fields; unknown tags are passed over. Raises CorruptRemoteMetadata."""
    if not data:
        return CustomMetadata()
    found: dict[int, bytes] = CompactReader(data).tagged_fields()
    size = CompactReader(found[0]).varlong() if 0 in found else None
    texts = [CompactReader(found[tag]).string() if tag in found else None for tag in (1, 2)]
    return CustomMetadata(size, *texts)
