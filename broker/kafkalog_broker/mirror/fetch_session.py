"""A fetch session as its client keeps it (KIP-227, FetchSessionHandler): only what changed is sent again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.mirror_messages import FetchCall, Fetched, FetchFrom, Key
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64

_FINAL_EPOCH, _FIRST_EPOCH = -1, 0
_MAX_EPOCH = 2**31 - 1


class ClientSession:
    """Without sessions (Fetch below 7, or a server that gives none) every request names all partitions."""

    def __init__(self, *, is_served: bool) -> None:
        self._is_served = is_served
        self._id = 0
        self._epoch = _FIRST_EPOCH
        self._known: dict[Key, FetchFrom] = {}

    def next(self, wanted: Mapping[Key, FetchFrom]) -> FetchCall:
        """The request that asks for `wanted`, after which `answered` or `reset` must come."""
        if not self._is_served:
            return FetchCall((0, _FINAL_EPOCH), list(wanted.items()), [])
        if self._epoch == _FIRST_EPOCH:
            self._known = dict(wanted)
            return FetchCall((0, _FIRST_EPOCH), list(wanted.items()), [])
        # A topic made anew is another one: the old one is forgotten, and comes with its own id.
        forgotten = [
            (key, known.topic_id)
            for key, known in self._known.items()
            if key not in wanted or wanted[key].topic_id != known.topic_id
        ]
        changed = [(key, fetch) for key, fetch in wanted.items() if self._known.get(key) != fetch]
        self._known = dict(wanted)
        return FetchCall((self._id, self._epoch), changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The request was answered without an error."""
        if self._epoch == _FIRST_EPOCH:
            self._id = session_id
            if not session_id:
                return
        self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1

    def reset(self) -> None:
        """Begin anew with the next request: the server does not know the session, or nothing is known of it."""
        self._epoch = _FIRST_EPOCH


PASSING = frozenset(
    {
        ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available, ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available, ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id,
        ErrorCode.kafka_storage_error, ErrorCode.unknown_server_error,
    }
)  # fmt: skip
"""Error codes of a partition whose leader is another one, or not ready: the metadata are looked at again."""

SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)  # fmt: skip
"""Error codes of a response that ask for a new session."""


def error_text(code: int) -> str:
    return code.name.upper() if isinstance(code, ErrorCode) else f"error code {code}"  # of a later release


# Responses as they come off a connection: read from the socket into the memory that they stay in, handed out in order.
# StreamReader would copy each byte three times. Large responses lie in buffers that are used again: fresh memory of
# 16 MB costs the system more than its checksum.

_SIZE_BYTES = 4
_POOLED_FROM = 256 << 10
"""Bytes from which on a response gets one of the buffers: below, the allocator has memory at hand."""
_KEPT = 3  # buffers that are kept: one that is read, one that is checked, one that is appended
MAX_RESPONSE = 1 << 30
"""Bytes: what claims to be larger is no response of Kafka's. A batch larger than all limits comes whole (KIP-74)."""


class ResponseFrames(asyncio.BufferedProtocol):
    """The protocol of one connection, once it is logged in. before: the one that it had, which learns of its end."""

    def __init__(self, before: asyncio.BaseProtocol, transport: asyncio.Transport) -> None:
        self._before, self._transport = before, transport
        self._waiting: deque[tuple[asyncio.Future[memoryview], int]] = deque()
        self._free: list[npt.NDArray[np.uint8]] = []
        self._head = memoryview(bytearray(_SIZE_BYTES))
        self._body: memoryview | None = None  # None: its size comes first
        self._rest = self._head  # where the next bytes go
        self.is_over = False
        transport.set_protocol(self)

    def expect(self, most: int = MAX_RESPONSE) -> asyncio.Future[memoryview]:
        """The next response but for those that are expected already, from its header on; ConnectionError when the
        connection ends before, or the response has more than `most` bytes. Raises ConnectionError if it is closed."""
        if self.is_over:
            raise ConnectionError("the connection is closed")
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, most))
        return future

    def give_back(self, body: memoryview) -> None:
        """Nobody looks at this response any more, nor at a part of it. Harmless twice, and where it is left out."""
        buffer = body.obj
        if isinstance(buffer, np.ndarray) and len(self._free) < _KEPT and all(one is not buffer for one in self._free):
            self._free.append(buffer)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        self._rest = self._rest[nbytes:]
        if len(self._rest):
            return
        if self._body is None:
            size = int.from_bytes(self._head, "big", signed=True)
            if not self._waiting or not 0 < size <= self._waiting[0][1]:
                self._fail(ConnectionError(f"{size} bytes come that are no response to a request"))
                return
            self._rest = self._body = self._memory(size)
        else:
            body, self._body, self._rest = self._body, None, self._head
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_result(body)
            else:
                self.give_back(body)

    def _memory(self, size: int) -> memoryview:
        if size < _POOLED_FROM:
            return memoryview(bytearray(size))
        place = next((place for place, buffer in enumerate(self._free) if len(buffer) >= size), None)
        if place is not None:
            fitting = self._free.pop(place)
        else:
            del self._free[:1]  # too small: the larger one takes its place
            fitting = np.empty(size, np.uint8)  # the system gives memory as bytes come, not as they are announced
        return memoryview(fitting)[:size]  # type: ignore[arg-type]  # before 3.12 no type says that it is a buffer

    def _fail(self, error: Exception) -> None:
        self.is_over = True
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
        self._free.clear()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc if isinstance(exc, OSError) else ConnectionError("the source closed the connection"))
        self._before.connection_lost(exc)


# Bounds of the offsets and leader epochs in a source's answers: what lies outside is in no log.

MAX_OFFSET = MAX_INT64 - 1  # a log that ends at 2^63-1 takes no record any more
MAX_EPOCH = MAX_INT32 - 1  # largest leader epoch, as a takeover of the copy writes with a higher one, an int32 too
UNKNOWN = -1  # in place of an offset or an epoch that the source does not know


class ImpossibleAnswer(KafkalogError):
    """The source's offsets of a partition contradict each other."""


def check_offset(what: str, offset: int, lowest: int = 0) -> int:
    """The offset. Raises ImpossibleAnswer."""
    if not lowest <= offset <= MAX_OFFSET:
        raise ImpossibleAnswer(f"the source says that {what} is {offset}, expected {lowest} to 2^63-2")
    return offset


def check_epoch(what: str, epoch: int) -> int:
    """The leader epoch, or UNKNOWN. Raises ImpossibleAnswer."""
    if not UNKNOWN <= epoch <= MAX_EPOCH:
        raise ImpossibleAnswer(f"the source says that {what} is {epoch}, expected {UNKNOWN} to 2^31-2")
    return epoch


def check_log_bounds(start: int, high_watermark: int) -> None:
    """Raises ImpossibleAnswer. Both may be UNKNOWN."""
    check_offset("its log start offset", start, UNKNOWN)
    check_offset("its high watermark", high_watermark, UNKNOWN)
    if start > high_watermark > UNKNOWN:
        raise ImpossibleAnswer(
            f"the source says that its log starts at {start}, above its high watermark {high_watermark}"
        )


def check_fetched(fetched: Fetched) -> None:
    """All but the batches. Raises ImpossibleAnswer."""
    check_log_bounds(fetched.log_start_offset, fetched.high_watermark)
    if fetched.diverging is not None:
        epoch, end_offset = fetched.diverging
        check_epoch("the leader epoch after which the logs part", epoch)
        check_offset("the end offset of that epoch", end_offset, UNKNOWN)
