"""Responses that are partly in files: read into a buffer as fast as the peer takes them, and no faster.

A consumer that asks for 50 MB and then does not read costs one buffer. The buffer is used again for the next part, so
it stays in the processor's cache; a part that the peer did not take at once keeps its buffer until it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.file_handles import FileSlice

BUFFER_BYTES = 256 << 10
"""What is read and written at once: fits a core's cache, and is long enough that the calls do not count."""


class SendBuffer:
    """The buffer that all connections of an event loop fill in turn."""

    def __init__(self) -> None:
        self._free: memoryview | None = None

    def take(self) -> memoryview:
        """A writable buffer of BUFFER_BYTES that nobody else uses."""
        free, self._free = self._free, None
        return np.empty(BUFFER_BYTES, np.uint8).data if free is None else free

    def give_back(self, buffer: memoryview) -> None:
        """What was in it has been sent."""
        self._free = buffer


class ResponseStream:
    """The pieces of a response, bytes-like or FileSlice, as one stream of bytes."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces = iter(pieces)
        self._piece: Any = b""
        self._at = 0

    def fill(self, buffer: memoryview) -> int:
        """Put the next bytes into `buffer`; how many, less than it holds only at the end, 0 after it.

        Raises BrokerError kafka_storage_error when a file cannot be read, or has become shorter.
        """
        filled = 0
        while filled < len(buffer):
            left = len(self._piece) - self._at
            if not left:
                following = next(self._pieces, None)
                if following is None:
                    break
                self._piece, self._at = following, 0
                continue
            room = buffer[filled:]
            if isinstance(self._piece, FileSlice):
                count = _read(self._piece, room, self._at)
            else:
                count = min(left, len(room))
                room[:count] = memoryview(self._piece)[self._at : self._at + count]
            self._at += count
            filled += count
        return filled


def _read(piece: FileSlice, room: memoryview, at: int) -> int:
    where = f"of [{piece.position}, {piece.position + piece.size}) of a segment"
    try:
        count = piece.read_into(room, at)
    except OSError as error:
        raise BrokerError(ErrorCode.kafka_storage_error, f"byte {at} {where} cannot be read: {error}") from error
    if count == 0:
        raise BrokerError(ErrorCode.kafka_storage_error, f"the file ends at byte {at} {where}")
    return count
