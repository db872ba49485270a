"""partition.metadata: the topic ID of a partition directory (PartitionMetadataFile, KIP-516, Kafka >= 2.8).

    version: 0
    topic_id: FEjhIyDdTCKRqdTaanlPnA

The file does not end with a newline. The ID is a UUID in 22 characters of URL-safe base64 (Kafka's Uuid.toString).
"""

from __future__ import annotations

import base64
import os
import re
import uuid

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format.atomic_file import TEMPORARY_SUFFIX, replace_file
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT
from kafkalog_spark.format.regular_file import read_state

PARTITION_METADATA_FILE = "partition.metadata"
MOST_BYTES = 4 << 10  # size limit of partition.metadata in bytes; its two lines have 45
VERSION = 0

_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
# Newer versions are accepted, as in Kafka, which rejects only negative ones.
_FILE = re.compile(rb"version:\s+[0-9]{1,9}\r?\ntopic_id:\s+(\S+)\s*")
_ZERO = uuid.UUID(int=0)  # Kafka's Uuid.ZERO_UUID: no topic has it


def new_uuid() -> uuid.UUID:
    """Return a random UUID whose text does not begin with a dash, which a command line would parse as an option."""
    while uuid_to_text(value := uuid.uuid4()).startswith("-"):
        pass
    return value


def uuid_to_text(value: uuid.UUID) -> str:
    """Return a UUID as 22 characters of URL-safe base64, as Kafka writes topic, directory and cluster IDs."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> uuid.UUID:
    """Parse a UUID that `uuid_to_text` wrote.

    Raises:
        ValueError: If the text is not 22 characters of URL-safe base64.
    """
    if not _UUID_TEXT.fullmatch(text):
        raise ValueError(f"a UUID is written as 22 characters of URL-safe base64, got {text[:60]!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def parse_partition_metadata(data: bytes) -> uuid.UUID:
    """Return the topic ID in the content of a partition.metadata file.

    Raises:
        CorruptFile: If the content is malformed, or the ID is all zeros, which is not the ID of any topic.
    """
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
    """Return the topic ID in the file, or None if the file does not exist (brokers before 2.8).

    Raises:
        CorruptFile: If the file is malformed or not a regular file.
        OSError: If the file cannot be read.
    """
    return read_state(path, parse_partition_metadata, MOST_BYTES)


def write_partition_metadata(path: str | os.PathLike[str], topic_id: uuid.UUID) -> None:
    """Replace the file and fsync it, as Kafka does before the first record of the partition. Raises OSError."""
    replace_file(path, format_partition_metadata(topic_id))


OWN_FILES = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA_FILE})
"""State files of a partition directory, each of them replaced by a rename."""
UNFINISHED = frozenset(name + TEMPORARY_SUFFIX for name in OWN_FILES)
"""Temporary files that a crash before the rename leaves; the next start removes them."""
