"""Read what a Fetch request asks for from the logs: one pass over its partitions, within its byte limits (KIP-74).

The first batch found is given whole even when it is larger than the limits, so that a consumer always gets on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.errors import BrokerError
from broker.fetching.fetch_session import FetchPartition
from broker.protocol.fetch_response import PartitionFetchResponse
from broker.storage.file_handles import FileSlice

if TYPE_CHECKING:
    from broker.storage.log import Log

READ_COMMITTED = 1

READ_AT_ONCE_BYTES = 64 << 10
"""Bytes of records that are read with the request: one write sends them. Anything more is read from the file while the
consumer takes it, so that slow consumers cost no memory."""

MAX_SLICES = 32
"""How many files a response can keep open until the consumer has taken it: with 1 MB a partition, 32 MB."""


@dataclass(slots=True)
class FetchedPartition:
    """One partition's answer, and the log it came from (None after an error)."""

    asked: FetchPartition
    answer: PartitionFetchResponse
    size: int = 0
    log: Log | None = None


@dataclass(slots=True)
class Fetched:
    """A pass over all partitions. size: bytes of records; has_errors: somebody has to be told at once."""

    partitions: list[FetchedPartition]
    size: int
    has_errors: bool


def read_all(
    partitions: Iterable[FetchPartition],
    find_log: Callable[[FetchPartition], Log],
    *,
    max_bytes: int,
    committed: bool,
) -> Fetched:
    """Read each partition from its fetch offset to the high watermark, or to the LSO when `committed`.

    find_log raises BrokerError for a partition that is not here or offline; that becomes its answer.
    """
    fetched, left, errors = [], max_bytes, False
    at_once, slices = READ_AT_ONCE_BYTES, MAX_SLICES
    for asked in partitions:
        try:
            log = find_log(asked)
            log.check_leader_epoch(asked.current_leader_epoch)
            one = _read(asked, log, left, at_once, at_least_one=left == max_bytes, committed=committed)
        except BrokerError as error:
            errors = True
            one = FetchedPartition(asked, PartitionFetchResponse(asked.partition, error.code))
        left -= one.size
        if one.size <= at_once:
            at_once -= one.size
        else:
            slices -= 1
            left = left if slices else 0
        fetched.append(one)
    return Fetched(fetched, sum(one.size for one in fetched), errors)


def _read(
    asked: FetchPartition, log: Log, left: int, at_once: int, *, at_least_one: bool, committed: bool
) -> FetchedPartition:
    high_watermark, stable = log.high_watermark, log.last_stable_offset
    until = stable if committed else high_watermark
    offset = asked.fetch_offset
    records: list[bytes | FileSlice] = []
    end = offset
    # asked for also where nothing is to be read: an offset out of range is an error, not the end of the log
    log.check_fetch_offset(offset)
    if offset < until and (left > 0 or at_least_one):
        found = log.find_range(offset, min(left, asked.max_bytes), up_to=until, at_least_one=at_least_one)
        records = [log.read_slice(one) if len(one) <= at_once else one for one in found.slices]
        end = found.next_offset
    answer = PartitionFetchResponse(
        asked.partition,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=log.log_start_offset,
        records=records,
        aborted_transactions=log.aborted_transactions(offset, end) if committed and records else None,
    )
    if committed and not records:
        answer.aborted_transactions = ()
    return FetchedPartition(asked, answer, sum(map(len, records)), log)
