"""The partitions of an internal topic that a coordinator serves: loading, served, given up (CoordinatorRuntime).

A partition is served from `open` to `remove`. One that nobody has opened is read at its first use, which blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from kafkalog_broker.coordinator.coordinator_log import (
    CoordinatorLog,
    OffsetsBatch,
    ProducerIdAndEpoch,
    Record,
    partition_for,
)
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

_log = logging.getLogger(__name__)

L = TypeVar("L")  # value that a partition is loaded as
S = TypeVar("S")  # shard that serves a partition


class Write(Protocol):
    """Appends records as one batch to a partition, as part of a transaction or of none. Raises BrokerError."""

    def __call__(
        self, records: Sequence[Record] | EncodedRecords, transaction: ProducerIdAndEpoch | None = None, /
    ) -> object: ...


class CoordinatorRuntime(Generic[L, S]):
    """Shards of a coordinator. log: its topic. load: reads the batches of a partition, in any thread; may raise
    BrokerError. serve: makes a shard of what was loaded, in the event loop's thread."""

    def __init__(
        self, log: CoordinatorLog, load: Callable[[Iterable[OffsetsBatch]], L], serve: Callable[[int, L], S]
    ) -> None:
        self.log = log
        self._load = load
        self._serve = serve
        self._served: dict[int, S] = {}
        self._loading: set[int] = set()
        self._stopped = False

    def partition_for(self, key: str) -> int:
        """Partition whose shard has a group or a transactional id."""
        return partition_for(key, self.log.partitions)

    def read(self, partition: int) -> L:
        """State of a partition, from its batches; in any thread. Raises BrokerError with the code for clients."""
        try:
            return self._load(self.log.scan(partition))
        except BrokerError as error:
            raise BrokerError(write_error(error.code), error.what) from error

    def begin_loading(self, partitions: Iterable[int]) -> None:
        """Answer COORDINATOR_LOAD_IN_PROGRESS until `open` or `remove`, where a partition is not open already."""
        self._loading.update(partition for partition in partitions if partition not in self._served)

    def open(self, partition: int, loaded: L) -> None:
        """Serve a partition. `loaded` may have been read in another thread."""
        self._loading.discard(partition)
        if partition not in self._served and not self._stopped:
            self.log.register_unflushed(partition)
            self._served[partition] = self._serve(partition, loaded)

    def open_owned(self) -> None:
        """Open all partitions that exist here, except those that are being loaded. Raises BrokerError."""
        for partition in self.log.owned():
            if partition not in self._served and partition not in self._loading and not self._stopped:
                self.open(partition, self.read(partition))

    def remove(self, partition: int) -> S | None:
        """Give up a partition, gone, another's or not loadable (its next use tries again); the shard that served it."""
        self._loading.discard(partition)
        return self._served.pop(partition, None)

    def stop(self) -> None:
        """From now on everything is COORDINATOR_NOT_AVAILABLE."""
        self._stopped = True

    async def load_owned(self, run_blocking: Callable[[Callable[[int], L], int], Awaitable[L]], what: str) -> None:
        """Load all partitions that are here while the broker serves; until then they answer
        COORDINATOR_LOAD_IN_PROGRESS. what: "groups", for messages."""
        for partition in self.log.owned():
            if partition in self._served:
                continue
            try:
                self.open(partition, await run_blocking(self.read, partition))
            except KafkalogError as error:
                _log.error("the %s of %s-%d cannot be loaded: %s", what, self.log.name, partition, error)
                self.remove(partition)
            except Exception:  # noqa: BLE001 - whatever is in one partition, the others are served
                _log.exception("the %s of %s-%d cannot be loaded", what, self.log.name, partition)
                self.remove(partition)

    # ---- using them

    def write(
        self, partition: int, records: Sequence[Record] | EncodedRecords,
        transaction: ProducerIdAndEpoch | None = None, *, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        """As CoordinatorLog.append. Raises BrokerError with the code for clients."""
        try:
            return self.log.append(partition, records, transaction, is_awaited=is_awaited)
        except BrokerError as error:
            raise BrokerError(write_error(error.code), error.what) from error

    def get(self, partition: int) -> S:
        """Raises BrokerError: coordinator_not_available, coordinator_load_in_progress, and those of `read`."""
        self.check_running()
        self.check_loaded(partition)
        if partition not in self._served:
            self.open(partition, self.read(partition))
        return self._served[partition]

    def served(self) -> dict[int, S]:
        return dict(self._served)

    def if_open(self, partition: int) -> S | None:
        """None, and nothing is read, while the partition is not open."""
        return self._served.get(partition)

    def all(self) -> list[S]:
        """All shards here. BrokerError COORDINATOR_LOAD_IN_PROGRESS: an incomplete list would look complete."""
        self.check_running()
        if self._loading:
            raise BrokerError(
                ErrorCode.coordinator_load_in_progress, f"{len(self._loading)} partitions are still being read"
            )
        self.open_owned()
        return list(self._served.values())

    def check_running(self) -> None:
        if self._stopped:
            raise BrokerError(ErrorCode.coordinator_not_available, "the broker is stopping")

    def check_loaded(self, partition: int) -> None:
        if partition in self._loading:
            name = f"{self.log.name}-{partition}"
            raise BrokerError(ErrorCode.coordinator_load_in_progress, f"{name} is still being read")


def write_error(code: ErrorCode) -> ErrorCode:
    """The client's error where the coordinator's log failed with `code` (CoordinatorOperationExceptionHelper)."""
    match code:
        case ErrorCode.unknown_topic_or_partition | ErrorCode.not_enough_replicas | ErrorCode.request_timed_out:
            return ErrorCode.coordinator_not_available
        case ErrorCode.not_leader_or_follower | ErrorCode.kafka_storage_error:
            return ErrorCode.not_coordinator
        case ErrorCode.message_too_large | ErrorCode.record_list_too_large | ErrorCode.invalid_fetch_size:
            return ErrorCode.unknown_server_error
    return code


MOST_NAMES = 4_000
"""Topics that a member, or a whole group, may name: each change of a subscription counts and hashes all in one step."""


# Timers with names: a new one of the same name takes the place of the old one (Kafka's CoordinatorTimer).

RETRY_MS = 500  # after a time-out that could not be written (CoordinatorTimerImpl)


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


Scheduler = Callable[[int, Callable[[], None]], TimerHandle]  # runs a call after so many ms


class Timers:
    """The timers of one partition of __consumer_offsets."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._handles: dict[Hashable, TimerHandle] = {}

    def schedule(self, key: Hashable, delay_ms: int, call: Callable[[], None]) -> None:
        """Run `call` in `delay_ms` instead of what `key` had scheduled; again while it fails to write."""
        self.cancel(key)

        def fire() -> None:
            self._handles.pop(key, None)
            try:
                call()
            except BrokerError as error:
                _log.warning("the time-out %.200r could not be written and is tried again: %s", key, error)
                self.schedule(key, RETRY_MS, call)

        self._handles[key] = self._scheduler(delay_ms, fire)

    def cancel(self, key: Hashable) -> None:
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        for key in list(self._handles):
            self.cancel(key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._handles
