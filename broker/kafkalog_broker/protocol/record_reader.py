"""Kafka's primitive types in the records of its own topics, __consumer_offsets and __transaction_state."""

from __future__ import annotations

import struct

from kafkalog_spark.errors import CorruptLog

_U8 = struct.Struct(">B")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class RecordReader:
    """Takes one value after the other. Every method raises CorruptLog, naming `what` is read and the byte.

    `flexible` (KIP-482) decides how lengths are written and whether there are tagged fields: set it once the
    version, which a record begins with, is known.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self.flexible = False
        self._data = data
        self._what = what
        self._at = 0

    def u8(self) -> int:
        return self._fixed(_U8)

    def i16(self) -> int:
        return self._fixed(_I16)

    def i32(self) -> int:
        return self._fixed(_I32)

    def i64(self) -> int:
        return self._fixed(_I64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self.corrupt("null where a text is expected")
        return text

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self.flexible else self.i16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"text that is not UTF-8 ({error.reason})") from error

    def blob(self) -> bytes:
        return self._take(self._length())

    def array_length(self) -> int:
        length = self.nullable_array_length()
        if length is None:
            raise self.corrupt("null where an array is expected")
        return length

    def nullable_array_length(self) -> int | None:
        length = self._length()
        if length > len(self._data):  # an element has at least one byte
            raise self.corrupt(f"an array of {length} elements")
        return None if length < 0 else length

    def tagged_fields(self) -> dict[int, bytes]:
        """Tag to bytes; none in versions without."""
        if not self.flexible:
            return {}
        return {self._varint(): self._take(self._varint()) for _ in range(self._varint())}

    def corrupt(self, why: str) -> CorruptLog:
        """The error to raise for what was read last."""
        return CorruptLog(f"{self._what}: {why}, at byte {self._at} of {len(self._data)}")

    def _length(self) -> int:
        """Of a blob or an array; below 0: null."""
        return self._varint() - 1 if self.flexible else self.i32()

    def _fixed(self, kind: struct.Struct) -> int:
        return int(kind.unpack(self._take(kind.size))[0])

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.corrupt("a varint of more than 5 bytes")

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise self.corrupt(f"{length} bytes expected, {len(self._data) - self._at} left")
        piece = self._data[self._at : end]
        self._at = end
        return piece
