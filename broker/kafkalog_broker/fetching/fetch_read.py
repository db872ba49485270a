"""Read what a Fetch request asks for from the logs: one pass over its partitions, within its byte limits (KIP-74).

The first batch found is given whole even when it is larger than the limits, so that a consumer always gets on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.fetching.fetch_session import FetchPartition
from kafkalog_broker.protocol.hot_messages import EpochEnd, PartitionFetchResponse
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.file_handles import MAX_OPEN_WITH_RESPONSES, FileHandle
from kafkalog_broker.storage.partition.log import Log

READ_COMMITTED = 1

READ_AT_ONCE_BYTES = 64 << 10
"""Bytes of records that are read with the request: one write sends them. Anything more is read from the file while the
consumer takes it, so that slow consumers cost no memory."""
TURN_EVERY = 16  # partitions between two looks at the clock: about 0.5 ms. Few requests have as many.
MAX_SLICES = 32
"""How many files a response can keep open until the consumer has taken it: with 1 MB a partition, 32 MB. When all keep
so many open that descriptors may run out (MAX_OPEN_WITH_RESPONSES), READ_AT_ONCE_BYTES, or a larger batch, are read at
once."""
_ALL = 1 << 62


@dataclass(slots=True)
class FetchedPartition:
    """A partition's answer, and the log it came from (None after an error). For who waits on: `appended_bytes` of the
    log when it was read, whether only what is committed was wanted, and whether appends would change nothing, since a
    limit kept back records that there are (`is_full`)."""

    request: FetchPartition
    answer: PartitionFetchResponse
    size: int = 0
    log: Log | None = None
    appended_bytes: int = 0
    committed: bool = False
    is_full: bool = False
    remote: tuple[int, bool] | None = None
    """Where the fetch offset is remote: bytes that may come, and whether a first batch comes that is larger."""


@dataclass(slots=True)
class Fetched:
    """A pass over all partitions. size: bytes of records; has_errors: the answer must not wait."""

    partitions: list[FetchedPartition]
    size: int
    has_errors: bool


async def read_all(
    partitions: Iterable[FetchPartition],
    find_log: Callable[[FetchPartition], Log],
    *,
    max_bytes: int,
    committed: bool,
    turn: TimeSlice,
) -> Fetched:
    """Read each partition from its fetch offset to the high watermark, or to the LSO when `committed`; others have
    their turn in between. find_log raises BrokerError for a partition that is not here or offline: its answer."""
    fetched: list[FetchedPartition] = []
    total, errors = 0, False
    at_once, slices = READ_AT_ONCE_BYTES, MAX_SLICES
    if FileHandle.open_now >= MAX_OPEN_WITH_RESPONSES:
        max_bytes, at_once = min(max_bytes, READ_AT_ONCE_BYTES), _ALL
    left = max_bytes
    for number, request in enumerate(partitions, 1):
        if not number % TURN_EVERY and turn.over:
            await turn.next()
        try:
            log = find_log(request)
            log.check_leader_epoch(request.current_leader_epoch)
            result = _read(request, log, left, at_once, left == max_bytes, committed)
        except BrokerError as error:
            errors = True
            result = FetchedPartition(request, PartitionFetchResponse(request.partition, error.code))
        if size := result.size:
            left -= size
            total += size
            if size <= at_once:
                at_once -= size
            else:
                slices -= 1
                left = left if slices else 0
        errors = errors or result.answer.diverging_epoch is not None
        fetched.append(result)
    return Fetched(fetched, total, errors)


def _read(
    request: FetchPartition, log: Log, left: int, at_once: int, at_least_one: bool, committed: bool
) -> FetchedPartition:
    until = high_watermark = log.high_watermark
    stable = log.last_stable_offset
    if committed:
        until = stable
    offset = request.fetch_offset
    answer = PartitionFetchResponse(request.partition, 0, high_watermark, stable, log.log_start_offset)
    result = FetchedPartition(request, answer, 0, log, log.appended_bytes, committed)
    if request.last_fetched_epoch >= 0:
        diverging = log.diverging_epoch(offset, request.last_fetched_epoch)
        if diverging is not None:
            answer.diverging_epoch = EpochEnd(*diverging)
            return result
    # asked for also where nothing is to be read: an offset out of range is an error, not the end of the log
    log.check_fetch_offset(offset)
    if committed:
        answer.aborted_transactions = ()
    if offset < log.local_log_start_offset:
        result.is_full = True
        result.remote = min(left, request.max_bytes), at_least_one
    elif offset < until:
        result.is_full = True
        if left > 0 or at_least_one:
            found = log.find_range(offset, min(left, request.max_bytes), up_to=until, at_least_one=at_least_one)
            result.is_full = found.next_offset < until
            if found.slices:
                answer.records = [log.read_slice(part) if len(part) <= at_once else part for part in found.slices]
                result.size = sum(map(len, answer.records))
                if committed:
                    answer.aborted_transactions = log.aborted_transactions(offset, found.next_offset)
    return result
