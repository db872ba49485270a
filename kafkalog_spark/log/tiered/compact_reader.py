"""The compact types of Kafka's flexible messages (KIP-482), as far as tiered storage's metadata uses them.

The broker has a codec for the protocol's messages; the reader must not depend on it for three small ones.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

from kafkalog_spark.errors import CorruptRemoteMetadata
from kafkalog_spark.log.format.records import read_varlong

_MAX_VARINT = 5  # bytes of an unsigned varint of 32 bits


class CompactReader:
    """Reads one message from its first byte on. Whatever does not fit raises CorruptRemoteMetadata with the byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes after what has been read."""
        return len(self._data) - self.at

    def wrong(self, what: str, position: int | None = None) -> CorruptRemoteMetadata:
        """An error that points to the byte that comes next, or to `position`."""
        return CorruptRemoteMetadata(what, position=self.at if position is None else position)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= self.left:
            raise self.wrong(f"{size} bytes are announced, {self.left} are left")
        self.at += size
        return self._data[self.at - size : self.at]

    def uvarint(self) -> int:
        """An unsigned varint of 32 bits."""
        begins, value = self.at, 0
        for place in range(_MAX_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if value >= 2**32:
                    break
                return value
        raise self.wrong("an unsigned varint has more than 32 bits", begins)

    def varlong(self) -> int:
        """A zigzag varint of 64 bits."""
        try:
            value, self.at = read_varlong(self._data, self.at, len(self._data))
        except IndexError:
            raise self.wrong("a varlong does not end") from None
        return value

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def int8(self) -> int:
        return int(self._number(_INT8))

    def int32(self) -> int:
        return int(self._number(_INT32))

    def int64(self) -> int:
        return int(self._number(_INT64))

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.take(16))

    def string(self) -> str:
        """A compact string that is not null."""
        begins = self.at
        size = self.uvarint() - 1
        if size < 0:
            raise self.wrong("a string is null that must not be", begins)
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong("a string is not UTF-8", begins) from None

    def nullable_bytes(self) -> bytes | None:
        """Compact bytes; None for null."""
        size = self.uvarint() - 1
        return None if size < 0 else self.take(size)

    def array_length(self, least: int) -> int:
        """How many elements of at least `least` bytes follow. Raises for null, and for more than there is room for."""
        begins = self.at
        count = self.uvarint() - 1
        if not 0 <= count * least <= self.left:
            raise self.wrong(f"an array announces {count} elements, {self.left} bytes are left", begins)
        return count

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields that stand here, by tag; tags must rise."""
        found: dict[int, bytes] = {}
        last = -1
        for _ in range(self.uvarint()):
            begins = self.at
            tag = self.uvarint()
            if tag <= last:
                raise self.wrong(f"tag {tag} follows tag {last}", begins)
            last = tag
            found[tag] = self.take(self.uvarint())
        return found

    def end(self) -> None:
        """Raise when bytes are left."""
        if self.left:
            raise self.wrong(f"{self.left} bytes follow the message")


_INT8, _INT32, _INT64 = struct.Struct(">b"), struct.Struct(">i"), struct.Struct(">q")
