"""The types of Kafka's generated messages, classic and flexible (KIP-482), as records of internal topics use them.

The broker has a codec for the protocol's messages; the log format does without it for the few that lie in logs, and the
coordinators read their records with this too.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

from kafkalog_spark.errors import CorruptLog

_MAX_VARINT = 5  # bytes of an unsigned varint of 32 bits
_INT8, _INT16, _INT32, _INT64 = (struct.Struct(form) for form in (">b", ">h", ">i", ">q"))


class MessageReader:
    """Reads one message from its first byte on. `flexible`: whether strings, arrays and bytes are compact, and structs
    end in tagged fields. Whatever does not fit raises CorruptLog, which says `what` the message is."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self.at = 0
        self.flexible = False

    def wrong(self, why: str) -> CorruptLog:
        """The error to raise for what was read last."""
        return CorruptLog(f"{self._what}: {why}, at byte {self.at} of {len(self._data)}")

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= len(self._data) - self.at:
            raise self.wrong(f"{size} bytes are announced, {len(self._data) - self.at} are left")
        self.at += size
        return self._data[self.at - size : self.at]

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def int8(self) -> int:
        return int(self._number(_INT8))

    def int16(self) -> int:
        return int(self._number(_INT16))

    def int32(self) -> int:
        return int(self._number(_INT32))

    def int64(self) -> int:
        return int(self._number(_INT64))

    def uvarint(self) -> int:
        """An unsigned varint of 32 bits."""
        value = 0
        for place in range(_MAX_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise self.wrong("an unsigned varint has more than 32 bits")

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        if size < 0:
            return None
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong("a string is not UTF-8") from None

    def string(self) -> str:
        """A string that is not null."""
        text = self.nullable_string()
        if text is None:
            raise self.wrong("a string is null that must not be")
        return text

    def blob(self) -> bytes:
        """Bytes that are not null."""
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return self.take(size)

    def array_length(self) -> int:
        """Elements that follow, of an array that is not null."""
        count = self.nullable_array_length()
        if count is None:
            raise self.wrong("an array is null that must not be")
        return count

    def nullable_array_length(self) -> int | None:
        """Elements that follow; None for a null array. Raises for more than there are bytes."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count > len(self._data) - self.at:
            raise self.wrong(f"an array announces {count} elements, {len(self._data) - self.at} bytes are left")
        return None if count < 0 else count

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields that stand here, by tag; none in a message that is not flexible."""
        if not self.flexible:
            return {}
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.array_of_tags())}

    def array_of_tags(self) -> int:
        """How many tagged fields follow."""
        count = self.uvarint()
        if count > len(self._data) - self.at:
            raise self.wrong(f"{count} tagged fields are announced, {len(self._data) - self.at} bytes are left")
        return count


def tagged_uuid(data: bytes | None) -> uuid.UUID | None:
    """A tagged field that is a UUID; None when it is left out, or all zeros."""
    if data is None or len(data) != 16 or not any(data):
        return None
    return uuid.UUID(bytes=data)
