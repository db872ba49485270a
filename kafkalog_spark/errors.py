"""Errors of kafkalog: KafkalogError, its subclasses, and functions for their texts.

The code that detects a fault states what is wrong and at which byte. The code that knows the file adds its path with
`KafkalogError.at`. The text is one line, because Spark shows only the first line of an exception.
"""

from __future__ import annotations

import re
from copyreg import __newobj__  # type: ignore[attr-defined]
from typing import Any, Self


class KafkalogError(Exception):
    """Base class of all errors of kafkalog. Each attribute except `what` is None if it does not apply.

    Attributes:
        what: Sentence that says what is wrong.
        topic_partition: Partition, such as "orders-0".
        path: File or directory.
        position: Position in the file, in bytes.
        offset: Kafka offset.
        hint: Advice to the user.
    """

    def __init__(
        self,
        what: str,
        *,
        topic_partition: str | None = None,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.topic_partition = topic_partition
        self.path = path
        self.position = position
        self.offset = offset
        self.hint = hint

    def at(self, **where: Any) -> Self:
        """Set those of the given attributes that are None, and return self."""
        for name, value in where.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        location = [] if self.topic_partition is None else [self.topic_partition]
        if self.path is not None:
            location.append(str(self.path))
        if self.position is not None:
            location.append(f"at byte {self.position}")
        if self.offset is not None:
            location.append(f"(offset {self.offset})")
        text = f"{' '.join(location)}: {self.what}" if location else self.what
        if self.hint:
            text = with_hint(text, self.hint)
        return printable(text)  # names of files and options may contain any character

    def __reduce__(self) -> tuple[Any, ...]:  # Spark's workers send errors to the driver
        return __newobj__, (type(self), self.what), self.__dict__


def with_hint(text: str, hint: str) -> str:
    """Return a text followed by a hint.

    If the text ends with a full stop, as Spark's texts do, the hint becomes a sentence: it begins with a capital
    letter, unless its first word is the name of an option.
    """
    if not text.endswith("."):
        return f"{text}; {hint}"
    first_word = hint.split(maxsplit=1)[0].rstrip(":,")
    is_plain_word = first_word.isalpha() and first_word.islower()
    return f"{text} {hint[0].upper() + hint[1:] if is_plain_word else hint}"


def printable(text: str) -> str:
    """Return a text as one line that is safe to print: white space becomes one space, the rest is `escaped`."""
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """Escape characters that are not printable, as Python does, such as `\\x1b`.

    These are control characters, and bytes of file names that are not UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def in_utf8(text: str) -> str:
    """Escape lone surrogates, such as `\\udcff`, which UTF-8 and Arrow cannot hold.

    Python uses them for bytes of file names that are not UTF-8.
    """
    return text.encode("utf-8", "backslashreplace").decode()


class OptionError(KafkalogError, ValueError):
    """An option's value cannot be used. The text names the option, the expected form and the given value."""


class MalformedOffsets(KafkalogError, ValueError):
    """Offsets in a stream's checkpoint that neither this source nor Spark's Kafka source writes."""


class NotALogDirectory(KafkalogError):
    """The path is missing, unreadable or holds no Kafka partition."""


class UnknownPartition(KafkalogError):
    """A topic or partition that the log directories do not hold."""


class OffsetOutOfRange(KafkalogError):
    """An offset outside [log start offset, log end offset]."""


class DataLoss(OffsetOutOfRange):
    """Requested records are not in the log any more."""


class UnexpectedAppendOffset(OffsetOutOfRange):
    """Batches from a leader that do not begin at the log end offset."""


class CorruptLog(KafkalogError):
    """Bytes on disk that Kafka does not write."""


class CorruptBatch(CorruptLog):
    """A record batch (v2) or message set (v0, v1) is damaged."""


class DecompressesTooFar(CorruptBatch):
    """The records of a batch decompress to more bytes than the caller allows."""


class CorruptIndex(CorruptLog):
    """An .index, .timeindex or .txnindex file is damaged."""


class CorruptSnapshot(CorruptLog):
    """A producer .snapshot file is damaged."""


class CorruptFile(CorruptLog):
    """A checkpoint, partition.metadata or meta.properties file is damaged."""


class CorruptManifest(CorruptLog):
    """The manifest of a tiered segment is damaged, or cannot be decrypted with the given keys."""


class CorruptChunk(CorruptLog):
    """A chunk or an index of a tiered segment cannot be decrypted or decompressed, or has a wrong size."""


class CorruptRemoteMetadata(CorruptLog):
    """A record of __remote_log_metadata, or the custom metadata of a plugin in it, is damaged."""


class UnsafePath(CorruptLog):
    """A relative path in a topic, a manifest or a file leads out of its directory."""


class UnsupportedFormat(KafkalogError):
    """A magic, codec or file version that kafkalog does not know."""


class SchemaRegistryError(KafkalogError):
    """A schema registry or its topic cannot be read, or has invalid content."""


class MalformedValue(KafkalogError):
    """A value or key that does not conform to its format, or cannot be converted to the requested type."""


class InvalidRecord(KafkalogError, ValueError):
    """Records that the writer cannot encode as a batch."""


class KeyNotGiven(KafkalogError):
    """A tiered segment is encrypted with a key that the options do not contain."""


class RemoteStorageError(KafkalogError):
    """Remote storage cannot be read or written (Kafka's RemoteStorageException)."""


class RemoteResourceNotFound(RemoteStorageError):
    """A remote segment, or one of its objects, does not exist (Kafka's RemoteResourceNotFoundException)."""


class LogDirLocked(KafkalogError):
    """A broker or another committing sink uses the log directory."""


class BrokerOwnsDirectory(LogDirLocked):
    """A running broker uses the log directory."""


class WriteUnfinished(KafkalogError):
    """A write is committed, but some of its segments are not published yet. It must not be run again."""


class ProduceFailed(KafkalogError):
    """A broker rejected records of the sink, or did not acknowledge them."""


class GroupCommitFailed(KafkalogError):
    """A broker rejected the offsets that a stream commits to a consumer group, or did not acknowledge them."""


class JobEnded(KafkalogError):
    """The write of a task has ended: it was committed, aborted or cleaned up as abandoned."""


class SegmentFull(KafkalogError):
    """An append that does not fit into the segment."""


def install_hint(extra: str) -> str:
    """Return the command that installs the packages of an extra of kafkalog.

    The command names the packages, because kafkalog itself is not in a package index.
    """
    from importlib.metadata import PackageNotFoundError, requires  # slow to import, and only needed for errors

    try:
        requirements = [text.partition(";") for text in requires("kafkalog") or ()]
    except PackageNotFoundError:  # kafkalog is a zip on PYTHONPATH
        requirements = []
    packages = [name for name, _, marker in requirements if re.search(rf"extra == ['\"]{extra}['\"]", marker)]
    return f"pip install {' '.join(map(repr, packages))}" if packages else f"install the extra [{extra}] of kafkalog"
