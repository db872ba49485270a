"""The conversion of one window of a log for an old client: its request and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class OversizedFirst(Enum):
    """Treatment of the first message of a response if it is larger than the room for it."""

    OMIT = auto()
    KEEP = auto()
    CUT_OFF = auto()


class ConversionRequest(NamedTuple):
    """Request for one window.

    Attributes:
        offset: Offset of the first wanted record.
        until: Offset at which the conversion ends.
        magic: Newest message format that the client can read, 0 or 1.
        room: Bytes that the response has room for.
        oversized_first: Treatment of a first message that is larger than `room`.
    """

    offset: int
    until: int
    magic: int
    room: int
    oversized_first: OversizedFirst


@dataclass(slots=True)
class ConvertedWindow:
    """Result of a conversion: messages v0 or v1.

    Attributes:
        request: The request.
        next_offset: Offset at which the next window begins. All records before it were converted or are hidden.
        pieces: The messages, in order.
        size: Bytes of `pieces`.
        is_full: True if no further message may follow in the response.
    """

    request: ConversionRequest
    next_offset: int
    pieces: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    is_full: bool = False

    @property
    def room_left(self) -> int:
        return self.request.room - self.size

    def add(self, piece: bytes | memoryview) -> None:
        self.pieces.append(piece)
        self.size += len(piece)

    def add_oversized(self, piece: bytes | memoryview) -> None:
        """End the window with a message, or a wrapper of one message, that is larger than the room left."""
        self.is_full = True
        if not self.pieces:
            match self.request.oversized_first:
                case OversizedFirst.KEEP:
                    self.add(piece)
                case OversizedFirst.CUT_OFF:
                    self.add(piece[: self.request.room])
