"""Every error kafkalog raises: KafkalogError and its subclasses, below those that they are special cases of.

Code that finds a fault says what is wrong and at which byte; the code that knows the file adds the rest
with `KafkalogError.at`, once. The text is one line, because Spark shows the first line of an exception.
"""

from __future__ import annotations

import re
from copyreg import __newobj__  # type: ignore[attr-defined]
from typing import Any, Self


class KafkalogError(Exception):
    """Base of all errors here.

    Attributes: `topic_partition` ("orders-0"), `path` (file), `position` (byte in the file),
    `offset` (Kafka offset), `hint` (what to do); each None where it does not apply.
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
        """Fill in those of the place attributes that are not known yet, and return self."""
        for name, value in where.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        place = [] if self.topic_partition is None else [self.topic_partition]
        if self.path is not None:
            place.append(str(self.path))
        if self.position is not None:
            place.append(f"at byte {self.position}")
        if self.offset is not None:
            place.append(f"(offset {self.offset})")
        text = f"{' '.join(place)}: {self.what}" if place else self.what
        if self.hint:
            text = with_hint(text, self.hint)
        return printable(text)  # names of files, directories and options may have anything in them

    def __reduce__(self) -> tuple[Any, ...]:  # errors go from Spark's workers to its driver
        return __newobj__, (type(self), self.what), self.__dict__


def with_hint(text: str, hint: str) -> str:
    """A text and what to do about it. A text that is a sentence (Spark's are) keeps its full stop, and a hint that does
    not begin with an option's name begins with a capital letter after it."""
    if not text.endswith("."):
        return f"{text}; {hint}"
    first = hint.split(maxsplit=1)[0].rstrip(":,")
    return f"{text} {hint[0].upper() + hint[1:] if first.isalpha() and first.islower() else hint}"


def printable(text: str) -> str:
    """A text as one line that changes no terminal: white space is one space, the rest is `escaped`."""
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """Characters that cannot be seen (those that control a terminal, bytes of a file's name that are not UTF-8) are
    escaped as in Python, such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def in_utf8(text: str) -> str:
    """Escape lone surrogates, such as `\\udcff`: Python's form of bytes in a file's name that are not UTF-8. Arrow, and
    text in UTF-8, cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


class OptionError(KafkalogError, ValueError):
    """An option's value cannot be used. The text names the option, the expected form and the given value."""


class MalformedOffsets(KafkalogError, ValueError):
    """The offsets in a stream's checkpoint are not what this source, or Spark's Kafka source, writes."""


class NotALogDirectory(KafkalogError):
    """The path is missing, unreadable or holds no Kafka partition."""


class UnknownPartition(KafkalogError):
    """A topic or partition that the log directories do not hold."""


class OffsetOutOfRange(KafkalogError):
    """An offset outside [log start offset, log end offset]."""


class DataLoss(OffsetOutOfRange):
    """Records that were asked for are gone."""


class UnexpectedAppendOffset(OffsetOutOfRange):
    """Batches of a leader that do not continue the log they are to be appended to."""


class CorruptLog(KafkalogError):
    """Bytes on disk are not what Kafka writes."""


class CorruptBatch(CorruptLog):
    """A record batch (v2) or message set (v0, v1) is damaged."""


class DecompressesTooFar(CorruptBatch):
    """The records of a batch decompress to more bytes than the caller has room or time for."""


class CorruptIndex(CorruptLog):
    """An .index, .timeindex or .txnindex file is damaged."""


class CorruptSnapshot(CorruptLog):
    """A producer .snapshot file is damaged."""


class CorruptFile(CorruptLog):
    """A checkpoint, partition.metadata or meta.properties file is damaged."""


class CorruptManifest(CorruptLog):
    """The manifest of a tiered segment is damaged, or does not fit the keys that were given."""


class CorruptChunk(CorruptLog):
    """A chunk or an index of a tiered segment cannot be decrypted or decompressed, or has a wrong size."""


class CorruptRemoteMetadata(CorruptLog):
    """A record of __remote_log_metadata, or what a plugin keeps in it, is damaged."""


class UnsafePath(CorruptLog):
    """A relative path in a topic, a manifest or a file leads out of the directory that it belongs to."""


class UnsupportedFormat(KafkalogError):
    """A magic, codec or file version that is not known here."""


class SchemaRegistryError(KafkalogError):
    """A schema registry, or what it wrote into its topic, cannot be asked or does not answer what one answers."""


class MalformedValue(KafkalogError):
    """A value or key that is not what its format says, or not what is asked of it."""


class InvalidRecord(KafkalogError, ValueError):
    """Records handed to the writer that cannot become a batch."""


class KeyNotGiven(KafkalogError):
    """A tiered segment is encrypted, and the private key that its manifest names is not among those given."""


class RemoteStorageError(KafkalogError):
    """Remote storage cannot be written or read: it is away, refuses, or is full (Kafka's RemoteStorageException)."""


class RemoteResourceNotFound(RemoteStorageError):
    """A remote segment, or one of its objects, is not there (Kafka's RemoteResourceNotFoundException)."""


class LogDirLocked(KafkalogError):
    """Somebody else works in the log directory: a broker, or a sink that commits."""


class BrokerOwnsDirectory(LogDirLocked):
    """A running broker has the log directory."""


class WriteUnfinished(KafkalogError):
    """A write is decided, and some of its files are not in their places yet. It must not be run again."""


class ProduceFailed(KafkalogError):
    """A broker did not take records that the sink sent through the protocol."""


class GroupCommitFailed(KafkalogError):
    """A broker did not take the offsets that a stream commits to a consumer group."""


class JobEnded(KafkalogError):
    """The write that a task belongs to is over: it was committed, aborted or taken for dead."""


class SegmentFull(KafkalogError):
    """An append that does not fit into the segment."""


def install_hint(extra: str) -> str:
    """The command that installs what an extra of kafkalog brings: its packages by name, since no index has kafkalog."""
    from importlib.metadata import PackageNotFoundError, requires  # 20 ms, which only this error is worth

    try:
        requirements = [text.partition(";") for text in requires("kafkalog") or ()]
    except PackageNotFoundError:  # a zip on PYTHONPATH
        requirements = []
    packages = [name for name, _, marker in requirements if re.search(rf"extra == ['\"]{extra}['\"]", marker)]
    return f"pip install {' '.join(map(repr, packages))}" if packages else f"install the extra [{extra}] of kafkalog"
