"""One pass over the partitions of a Fetch of versions 0 to 3, whose answer holds messages v0 or v1.

As `fetch_read`, with three differences. What is read is converted, in threads (`down_conversion`), so it is in memory
until the client has taken it: CONVERTED_BYTES in all. Batches that a client of that time does not see are passed over
until there is something it does see, or until the end. Up to version 2 the limits are hard: a message that is larger
than what was asked for comes cut off, and the client asks for more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.conversion_window import Asked
from kafkalog_broker.fetching.down_conversion import Converted, convert
from kafkalog_broker.fetching.fetch_read import Fetched, FetchedPartition
from kafkalog_broker.fetching.fetch_session import FetchPartition
from kafkalog_broker.protocol.fetch_response import PartitionFetchResponse
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.turn import Turn

CONVERTED_BYTES = 4 << 20
"""Of a response. Kafka converts while it sends; here clients of that time get less at once, and ask again."""

LAST_HARD_VERSION = 2
LAST_VERSION_OF_V0 = 1

Run = Callable[..., Awaitable[Any]]
"""As Broker.run_computing."""


async def read_converted(
    partitions: Sequence[FetchPartition],
    find_log: Callable[[FetchPartition], Log],
    run: Run,
    *,
    version: int,
    max_bytes: int,
    begin: int,
    turn: Turn,
    is_over: Callable[[], bool],
) -> Fetched:
    """Read each partition from its fetch offset to the high watermark.

    begin: a number that changes from one request to the next: these clients always name their partitions in the same
    order, and the one that is read first must not be the same each time. is_over: nobody waits for the answer any more.
    """
    reading = _Reading(run, version, min(max_bytes, CONVERTED_BYTES), is_over)
    fetched: dict[int, FetchedPartition] = {}
    errors = False
    count = len(partitions)
    for number in range(count):
        place = (begin + number) % count
        asked = partitions[place]
        if turn.over:
            await turn.next()
        try:
            fetched[place] = await reading.partition(asked, find_log(asked))
        except BrokerError as error:
            errors = True
            code = error.code
            if code is ErrorCode.kafka_storage_error:  # which these clients do not know: they look for the leader
                code = ErrorCode.not_leader_or_follower
            fetched[place] = FetchedPartition(asked, PartitionFetchResponse(asked.partition, code))
    in_order = [fetched[place] for place in range(count)]
    # What keeps back more than there was room for is not waited for.
    size = reading.size if reading.left > 0 else max(reading.size, max_bytes)
    return Fetched(in_order, size, errors)


class _Reading:
    """The limits of one pass."""

    def __init__(self, run: Run, version: int, max_bytes: int, is_over: Callable[[], bool]) -> None:
        self._run = run
        self._magic = 0 if version <= LAST_VERSION_OF_V0 else 1
        self._is_hard = version <= LAST_HARD_VERSION
        self._is_over = is_over
        self.left = max_bytes
        self.size = 0

    async def partition(self, asked: FetchPartition, log: Log) -> FetchedPartition:
        """Raises BrokerError where there is nothing to give in front of what is wrong."""
        log.reader.check_fetch_offset(asked.fetch_offset)
        until = log.high_watermark
        answer = PartitionFetchResponse(asked.partition, 0, until, log.last_stable_offset, log.log_start_offset)
        one = FetchedPartition(asked, answer, 0, log, log.appended_bytes)
        pieces: list[Any] = []
        offset = asked.fetch_offset
        is_full = False
        while offset < until and not is_full and not self._is_over():
            room = min(asked.max_bytes - one.size, self.left)
            whole = not self._is_hard and not self.size
            if room <= 0 and not whole:
                is_full = True
                break
            cut = self._is_hard and not pieces and (room == asked.max_bytes or not self.size)
            try:
                found: Converted = await self._run(
                    convert, log.reader, Asked(offset, until, self._magic, max(room, 0), whole, cut)
                )
            except BrokerError:
                if not pieces:
                    raise
                is_full = True
                break
            pieces += found.pieces
            one.size += found.size
            self.size += found.size
            self.left -= found.size
            offset, is_full = found.next_offset, found.is_full
        answer.records = pieces
        one.is_full = offset < until
        return one
