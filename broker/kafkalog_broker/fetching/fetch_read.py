"""One pass over the partitions of a Fetch request: reads local logs within the byte limits (KIP-74).

The first batch of a response is returned whole even if it exceeds the limits, so that every consumer makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_request import FetchPartition
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.partition.file_handles import MAX_OPEN_WITH_RESPONSES, FileHandle, FileSlice
from kafkalog_broker.storage.partition.leader_epoch_lookup import check_leader_epoch, diverging_epoch
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.transaction_index import AbortedTransaction

READ_AT_ONCE_BYTES = 64 << 10
"""Bytes of records that are read into memory, so that one write sends them. Larger ranges are read from the file while
the consumer receives them, so a slow consumer costs no memory."""
MAX_SLICES = 32
"""Number of files that one response may keep open until the consumer has received it: with 1 MB a partition, 32 MB.
While all responses together keep MAX_OPEN_WITH_RESPONSES files open, responses are limited to READ_AT_ONCE_BYTES, or
one larger batch, and are read at once."""
PARTITIONS_PER_CHECK = 16
"""Number of partitions that are read between two checks of the time slice."""
_UNLIMITED = 1 << 62
_NO_ERROR = ErrorCode.none  # a look-up of an enum member would be slow, once for each partition
_new_tuple = tuple.__new__  # FetchedPartition without the cost of its constructor

FindLog = Callable[[FetchPartition], Log]
"""Returns the log of a partition. Raises BrokerError if it is unknown or offline, or if the client may not read it."""


class DivergingEpoch(NamedTuple):
    """The last leader epoch that the log and the client's copy can have in common, and its end offset here."""

    epoch: int
    end_offset: int


class RemoteRange(NamedTuple):
    """Limits of a read from remote storage (Kafka: RemoteStorageFetchInfo).

    Attributes:
        max_bytes: Bytes that the response has room for.
        at_least_one: True if the first batch is returned even if it is larger.
    """

    max_bytes: int
    at_least_one: bool


class FetchedPartition(NamedTuple):
    """Result of reading one partition (Kafka: LogReadResult).

    Attributes:
        request: The partition as requested.
        error_code: `none`, or the reason why there are no other results.
        log: The log that was read, None after an error.
        high_watermark: High watermark of the log, -1 if unknown, as the two offsets that follow.
        last_stable_offset: Last stable offset.
        log_start_offset: Log start offset.
        records: Whole batches, or messages, in offset order: bytes, or slices of files.
        size: Bytes of `records`, which stays when they are dropped during a wait.
        aborted_transactions: Aborted transactions in `records`, None for read_uncommitted.
        diverging_epoch: Set instead of records if the client's copy of the log has diverged.
        appended_bytes: `Log.appended_bytes` at the time of the read.
        waits_for_lso: True if only an advance of the last stable offset can make more records visible.
        is_cut_off: True if there are more records that a byte limit or remote storage prevented from being read, so
            that appends add nothing to the response.
        remote: Set if the records at the fetch offset are in remote storage only.
    """

    request: FetchPartition
    error_code: ErrorCode = ErrorCode.none
    log: Log | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[bytes | memoryview | FileSlice] = ()
    size: int = 0
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    diverging_epoch: DivergingEpoch | None = None
    appended_bytes: int = 0
    waits_for_lso: bool = False
    is_cut_off: bool = False
    remote: RemoteRange | None = None


class Fetched(NamedTuple):
    """Result of a pass over all partitions.

    Attributes:
        partitions: Results in the order of the request.
        size: Bytes of records of all partitions.
        must_respond: True if the response must not wait for more records: a partition has an error or has diverged, or
            the response has no more room.
    """

    partitions: list[FetchedPartition]
    size: int
    must_respond: bool

    def without_records(self) -> Fetched:
        """Return the same result without the records themselves, which hold memory or open files."""
        if not self.size:
            return self
        partitions = [partition._replace(records=()) for partition in self.partitions]
        return Fetched(partitions, self.size, self.must_respond)


async def read_partitions(
    partitions: Iterable[FetchPartition],
    find_log: FindLog,
    max_bytes: int,
    read_committed: bool,
    time_slice: TimeSlice,
) -> Fetched:
    """Read each partition from its fetch offset to the high watermark or, if `read_committed`, to the LSO.

    A partition whose log raises BrokerError gets its code. Other requests run in between when `time_slice` is over.
    """
    fetched: list[FetchedPartition] = []
    total, must_respond = 0, False
    at_once, slices = READ_AT_ONCE_BYTES, MAX_SLICES
    if FileHandle.open_now >= MAX_OPEN_WITH_RESPONSES:
        max_bytes = min(max_bytes, READ_AT_ONCE_BYTES)
        at_once = _UNLIMITED
    bytes_left = max_bytes
    for number, request in enumerate(partitions, 1):
        if not number % PARTITIONS_PER_CHECK and time_slice.is_over:
            await time_slice.wait_turn()
        try:
            log = find_log(request)
            check_leader_epoch(log, request.current_leader_epoch)
            result = _read(request, log, bytes_left, at_once, bytes_left == max_bytes, read_committed)
            if result.diverging_epoch is not None:
                must_respond = True
        except BrokerError as error:
            must_respond = True
            result = FetchedPartition(request, error.code)
        if size := result.size:
            bytes_left -= size
            total += size
            if size <= at_once:
                at_once -= size
            else:
                slices -= 1
                bytes_left = bytes_left if slices else 0
        fetched.append(result)
    return Fetched(fetched, total, must_respond)


def _read(
    request: FetchPartition, log: Log, bytes_left: int, at_once: int, at_least_one: bool, read_committed: bool
) -> FetchedPartition:
    high_watermark, stable, log_start = log.high_watermark, log.last_stable_offset, log.log_start_offset
    offset = request.fetch_offset
    appended_bytes = log.appended_bytes
    if request.last_fetched_epoch >= 0:
        diverging = diverging_epoch(log, offset, request.last_fetched_epoch)
        if diverging is not None:
            return FetchedPartition(
                request, _NO_ERROR, log, high_watermark, stable, log_start,
                diverging_epoch=DivergingEpoch(*diverging),
            )  # fmt: skip
    # Even without records to read, an offset out of range is an error; the log end offset is not.
    log.check_fetch_offset(offset)
    until = stable if read_committed else high_watermark
    records: Sequence[bytes | FileSlice] = ()
    aborted: Sequence[AbortedTransaction] | None = () if read_committed else None
    size, is_cut_off, remote = 0, False, None
    if offset < log.local_log_start_offset:
        is_cut_off = True
        remote = RemoteRange(min(bytes_left, request.max_bytes), at_least_one)
    elif offset < until:
        is_cut_off = True
        if bytes_left > 0 or at_least_one:
            log_range = log.find_range(
                offset, min(bytes_left, request.max_bytes), up_to=until, at_least_one=at_least_one
            )
            is_cut_off = log_range.next_offset < until
            if log_range.slices:
                records = [log.read_slice(part) if len(part) <= at_once else part for part in log_range.slices]
                size = sum(map(len, records))
                if read_committed:
                    aborted = log.aborted_transactions(offset, log_range.next_offset)
    return _new_tuple(FetchedPartition, (
        request, _NO_ERROR, log, high_watermark, stable, log_start, records, size, aborted, None, appended_bytes,
        read_committed and stable < high_watermark, is_cut_off, remote,
    ))  # fmt: skip
