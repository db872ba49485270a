"""A response with records in files, read as one stream of bytes.

A consumer that requests 50 MB and then does not read costs one buffer of BUFFER_BYTES. If the operating system takes a
part immediately, the buffer is reused for the next one, so it stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.file_handles import FileSlice

BUFFER_BYTES = 256 << 10
"""Bytes that are read and written at a time: small enough for a core's cache, and large enough that calls cost
little."""


class ResponseStream:
    """Pieces of a response, bytes-like or FileSlice, as a stream."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces = iter(pieces)
        self._piece: Any = b""
        self._position = 0  # in `_piece`

    def fill(self, buffer: memoryview) -> int:
        """Write the next bytes into `buffer`.

        Returns:
            Number of bytes: fewer than the buffer holds only at the end of the response, then 0.

        Raises:
            BrokerError: kafka_storage_error if a file cannot be read or has been truncated.
        """
        filled = 0
        while filled < len(buffer):
            bytes_left = len(self._piece) - self._position
            if not bytes_left:
                following = next(self._pieces, None)
                if following is None:
                    break
                self._piece = following
                self._position = 0
                continue
            room = buffer[filled:]
            if isinstance(self._piece, FileSlice):
                count = _read(self._piece, room, self._position)
            else:
                count = min(bytes_left, len(room))
                room[:count] = memoryview(self._piece)[self._position : self._position + count]
            self._position += count
            filled += count
        return filled


def _read(piece: FileSlice, room: memoryview, position: int) -> int:
    slice_name = f"of [{piece.position}, {piece.position + piece.size}) of a segment"
    try:
        count = piece.read_into(room, position)
    except OSError as error:
        raise BrokerError(
            ErrorCode.kafka_storage_error, f"byte {position} {slice_name} cannot be read: {error}"
        ) from error
    if count == 0:
        raise BrokerError(ErrorCode.kafka_storage_error, f"the file ends at byte {position} {slice_name}")
    return count
