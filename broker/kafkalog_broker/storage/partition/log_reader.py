"""Reading one log: by offset, by timestamp, which transactions were aborted, which leader epoch wrote what."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition import log_time
from kafkalog_broker.storage.partition.local_log import FoundRange, ReadResult
from kafkalog_broker.storage.partition.log_segment import FileSlice, is_passing
from kafkalog_broker.storage.partition.log_state import LogState
from kafkalog_broker.storage.partition.log_time import TimestampAndOffset
from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format.transaction_index import AbortedTransaction, collect_aborted


class LogReader:
    """Reads one log from any thread; segments may be removed, or replaced by compaction, meanwhile."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._local = state.local

    def read_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> ReadResult:
        """Whole batches from the one that holds `offset` on, all below `up_to`, at most `max_bytes` of them; and the
        offset after what was read.

        at_least_one: the first one comes even when it is larger. Nothing at `up_to` and past it. Raises BrokerError:
        offset_out_of_range, kafka_storage_error.
        """
        found = self.find_range(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
        return ReadResult([self.read_slice(one) for one in found.slices], found.next_offset)

    def read_slice(self, found: FileSlice) -> bytes:
        """The bytes that find_range has found. Raises BrokerError kafka_storage_error."""
        try:
            return found.read()
        except OSError as error:
            self._state.fail(error, nothing_happened=True)

    def find_range(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> FoundRange:
        """As read_range, but only where those batches lie: the bytes can be read later, whatever happens to the log."""
        while True:
            self.check_fetch_offset(offset)
            swaps = self._local.swaps
            try:
                found = self._local.find_range(offset, max_bytes, up_to, at_least_one)
                # Else retention took the beginning meanwhile, or compaction the file.
                if offset >= self._local.log_start_offset and swaps == self._local.swaps:
                    return found
            except FileNotFoundError as error:
                if self._state.is_closed or (offset >= self._local.log_start_offset and swaps == self._local.swaps):
                    self._state.fail(error)  # the file was not ours to lose
            except (OSError, CorruptLog) as error:
                if swaps == self._local.swaps or is_passing(error):
                    self._state.fail(error, nothing_happened=True)

    def check_fetch_offset(self, offset: int) -> None:
        """Raise BrokerError offset_out_of_range unless the log holds `offset`, or will next."""
        self._state.check()
        if not self._local.log_start_offset <= offset <= self._local.log_end_offset:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, the log goes from {self._local.log_start_offset} to {self._local.log_end_offset}",
                topic_partition=self._state.name,
                offset=offset,
            )

    def aborted_transactions(self, offset: int, up_to: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those with records in [offset, up_to), by the transaction indexes. Raises
        BrokerError."""
        found = self.aborted_between(offset, up_to)
        return [(transaction.producer_id, transaction.first_offset) for transaction in found]

    def aborted_between(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """As aborted_transactions, with the offsets of their markers."""
        self._state.check()
        found: list[AbortedTransaction] = []
        try:
            for segment in self._local.segments_from(offset):
                search = collect_aborted(segment.aborted(), offset, up_to)
                found += search.transactions
                if search.complete:
                    break
        except (OSError, CorruptLog) as error:
            self._state.fail(error, nothing_happened=True)
        return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """(timestamp, offset, leader epoch) of the first record with a timestamp of at least `timestamp` ms."""
        self._state.check()
        try:
            return log_time.offset_for_timestamp(self._local.segments, timestamp, self._local.log_start_offset)
        except (OSError, CorruptLog) as error:
            self._state.fail(error, nothing_happened=True)

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """As offset_for_timestamp, for the largest timestamp; None when no record has one."""
        self._state.check()
        try:
            return log_time.max_timestamp_offset(self._local.segments)
        except (OSError, CorruptLog) as error:
            self._state.fail(error, nothing_happened=True)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset), (-1, -1) when it is not known: OffsetForLeaderEpoch's answer."""
        return self._state.epochs.end_offset_for(epoch, self._local.log_end_offset)

    def diverging_epoch(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the last epoch here that a log can have in common with this one which holds, before
        `offset`, a batch of `last_epoch`; None where all of it can be common (Partition.readRecords). Raises
        BrokerError offset_out_of_range, also for an epoch of which nothing is known."""
        self._state.check()
        epoch, end = self.end_offset_for_epoch(last_epoch)
        if min(epoch, end) < 0 or offset < self._local.log_start_offset:
            raise BrokerError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} after a batch of leader epoch {last_epoch}, of which nothing is known here",
                topic_partition=self._state.name, offset=offset,
            )  # fmt: skip
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote `offset`; -1 when it is not known."""
        return self._state.epochs.epoch_of(offset)

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise BrokerError unless `epoch`, what a client takes for the current one, is; -1 is never wrong."""
        current = max(self._state.epochs.latest, 0)
        if epoch in (-1, current):
            return
        code = ErrorCode.fenced_leader_epoch if epoch < current else ErrorCode.unknown_leader_epoch
        raise BrokerError(
            code, f"leader epoch {epoch} was asked for, the current one is {current}", topic_partition=self._state.name
        )
