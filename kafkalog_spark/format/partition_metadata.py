"""partition.metadata: the topic id of a partition directory (PartitionMetadataFile, KIP-516, Kafka >= 2.8).

    version: 0
    topic_id: FEjhIyDdTCKRqdTaanlPnA

Without a newline at the end. The id is a UUID in 22 characters of URL-safe base64 (Kafka's Uuid.toString).
"""

from __future__ import annotations

import base64
import os
import re
import uuid

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format.atomic_file import TEMPORARY_SUFFIX, read_state, replace_file
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT

PARTITION_METADATA_FILE = "partition.metadata"
MOST_BYTES = 4 << 10  # largest partition.metadata in bytes: it has two lines, of 45 bytes
VERSION = 0

_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
# Newer versions are read as Kafka reads them: it only rejects negative ones.
_FILE = re.compile(rb"version:\s+[0-9]{1,9}\r?\ntopic_id:\s+(\S+)\s*")
_ZERO = uuid.UUID(int=0)  # Kafka's Uuid.ZERO_UUID: no topic has it


def new_uuid() -> uuid.UUID:
    """A random id whose text begins with no dash, which command lines take for an option (Uuid)."""
    while uuid_to_text(value := uuid.uuid4()).startswith("-"):
        pass
    return value


def uuid_to_text(value: uuid.UUID) -> str:
    """22 characters of URL-safe base64, as Kafka writes topic, directory and cluster ids."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> uuid.UUID:
    """The UUID written by `uuid_to_text`; raises ValueError for any other text."""
    if not _UUID_TEXT.fullmatch(text):
        raise ValueError(f"a UUID is written as 22 characters of URL-safe base64, got {text[:60]!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def parse_partition_metadata(data: bytes) -> uuid.UUID:
    """The topic id. Raises CorruptFile, also for the id of all zeros, which no topic has."""
    parts = _FILE.fullmatch(data)
    if not parts:
        raise CorruptFile(f"expected the lines 'version: 0' and 'topic_id: <id>', got {data[:60]!r}")
    try:
        topic_id = uuid_from_text(parts[1].decode("latin-1"))
    except ValueError as error:
        raise CorruptFile(f"topic_id cannot be read: {error}", position=parts.start(1)) from None
    if topic_id == _ZERO:
        raise CorruptFile("topic_id is all zeros, which is no topic's id", position=parts.start(1))
    return topic_id


def format_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: {VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")


def read_partition_metadata(path: str | os.PathLike[str]) -> uuid.UUID | None:
    """As `parse_partition_metadata`; None when there is no such file (brokers before 2.8)."""
    return read_state(path, parse_partition_metadata, MOST_BYTES)


def write_partition_metadata(path: str | os.PathLike[str], topic_id: uuid.UUID) -> None:
    """Replace the file; on disk on return, as in Kafka before the first record of the partition. Raises OSError."""
    replace_file(path, format_partition_metadata(topic_id))


# What a partition's directory holds besides its segments: small files, each written aside and renamed.

OWN_FILES = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA_FILE})
UNFINISHED = frozenset(name + TEMPORARY_SUFFIX for name in OWN_FILES)
"""Files that a crash leaves between the writing of one of them and its renaming; the next start removes them."""
