"""The partitions of an internal topic that a coordinator serves (Kafka's CoordinatorRuntime).

How a coordinator uses the runtime: it passes `load`, which turns the batches of a partition into a value in any thread,
and `serve`, which makes a shard of that value in the event loop. The shard holds all state of the partition, and has
`encode` and `replay` (see `CoordinatorShard`). A request is an operation: a function that reads the shard, changes
nothing, and returns a `CoordinatorResult` of records and a response. `runtime.run(partition, operation)` loads the
partition if needed, runs the operation and commits the result: it appends the records as one batch, replays them into
the shard, calls `on_commit` and returns the response. If the append fails, BrokerError is raised and the shard is as
before. For delayed operations the shard makes a `CoordinatorTimer`, for slow tasks a `CoordinatorExecutor`; both get
`partial(runtime.commit, partition)` and commit the results of their operations. Callers that hold a shard already use
`runtime.commit(partition, result)`; `runtime.append` only appends, for records that the caller applies itself.

All methods except `read` are called from the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kafkalog_broker.coordinator.coordinator_errors import coordinator_error_code
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch, Record
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult, RecordT, ResponseT
from kafkalog_broker.coordinator.partitioning import partition_for
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

_log = logging.getLogger(__name__)

LoadedT = TypeVar("LoadedT")  # value that a partition is loaded as
ShardT = TypeVar("ShardT")  # shard that serves a partition
ReplayedT = TypeVar("ReplayedT", contravariant=True)  # record of a shard


class CoordinatorShard(Protocol[ReplayedT]):
    """State of one partition, changed by replaying records (Kafka's CoordinatorShard)."""

    def encode(self, record: ReplayedT, /) -> Record:
        """Raises BrokerError if the record cannot be written."""

    def replay(self, offset: int, record: ReplayedT, /) -> None:
        """Apply a record that is in the log at `offset`. Must not fail."""


ReplayingShardT = TypeVar("ReplayingShardT", bound=CoordinatorShard[Any])


class Append(Protocol):
    """Appends records as one batch to a fixed partition, see `CoordinatorRuntime.append`."""

    def __call__(
        self, records: Sequence[Record] | EncodedRecords, transaction: ProducerIdAndEpoch | None = None, /
    ) -> object: ...


class CoordinatorRuntime(Generic[LoadedT, ShardT]):
    """The shards of a coordinator, by partition. A partition that is not loaded yet is loaded at its first use, which
    blocks."""

    def __init__(
        self,
        log: CoordinatorLog,
        load: Callable[[Iterable[CoordinatorBatch]], LoadedT],
        serve: Callable[[int, LoadedT], ShardT],
    ) -> None:
        """
        Args:
            log: The internal topic.
            load: Reads the batches of a partition, in any thread. May raise BrokerError.
            serve: Makes the shard of a partition from the loaded value, in the event loop.
        """
        self.log = log
        self._load = load
        self._serve = serve
        self._served: dict[int, ShardT] = {}
        self._loading: set[int] = set()
        self._damaged: dict[int, str] = {}  # partitions whose batches cannot be read, with the reason
        self._stopped = False

    def partition_for(self, key: str) -> int:
        """Return the partition of a group ID or transactional ID."""
        return partition_for(key, self.log.partitions)

    def run(
        self: CoordinatorRuntime[LoadedT, ReplayingShardT],
        partition: int,
        operation: Callable[[ReplayingShardT], CoordinatorResult[RecordT, ResponseT]],
    ) -> ResponseT:
        """Run an operation on the shard of a partition and commit its result.

        Raises:
            BrokerError: From `get`, the operation or `append`. The shard has not changed then.
        """
        return self.commit(partition, operation(self.get(partition)))

    def commit(
        self: CoordinatorRuntime[LoadedT, ReplayingShardT],
        partition: int,
        result: CoordinatorResult[RecordT, ResponseT],
    ) -> ResponseT:
        """Append the records of a result, replay them, call `on_commit` and return the response.

        Raises:
            BrokerError: From `append`, or not_coordinator if the partition is not served here any more. The shard has
                not changed then.
        """
        records = result.records
        if isinstance(records, EncodedRecords):
            if records:
                self.append(partition, records, result.transaction, is_awaited=result.is_awaited)
        elif records:
            shard = self._served.get(partition)
            if shard is None:
                raise BrokerError(ErrorCode.not_coordinator, f"{self.log.name}-{partition} is not served here")
            encoded = [shard.encode(record) for record in records]
            first_offset = self.append(partition, encoded, result.transaction, is_awaited=result.is_awaited)
            for offset, record in enumerate(records, first_offset):
                shard.replay(offset, record)
        for call in result.on_commit:
            call()
        return result.response

    def append(
        self, partition: int, records: Sequence[Record] | EncodedRecords,
        transaction: ProducerIdAndEpoch | None = None, *, is_awaited: bool = True,
    ) -> int:  # fmt: skip
        """Append one batch without replaying it and return its base offset, see `CoordinatorLog.append`.

        Raises:
            BrokerError: With the error code for clients, see `coordinator_error_code`.
        """
        try:
            return self.log.append(partition, records, transaction, is_awaited=is_awaited)
        except BrokerError as error:
            raise BrokerError(coordinator_error_code(error.code), error.what) from error

    def get(self, partition: int) -> ShardT:
        """Return the shard of a partition, and load it if it is not loaded.

        Raises:
            BrokerError: coordinator_not_available after `stop`; coordinator_load_in_progress while the partition is
                being loaded; not_coordinator if its batches are damaged, as in Kafka after a failed load; an error
                from `read`.
        """
        self.check_running()
        self.check_loaded(partition)
        if partition not in self._served:
            self._open_now(partition)
            if partition in self._damaged:
                reason = self._damaged[partition]
                raise BrokerError(ErrorCode.not_coordinator, f"{self.log.name}-{partition} cannot be loaded: {reason}")
        return self._served[partition]

    def if_open(self, partition: int) -> ShardT | None:
        """Return the shard of a partition, or None if it is not loaded."""
        return self._served.get(partition)

    def served(self) -> dict[int, ShardT]:
        """Return the shards that are loaded, by partition."""
        return dict(self._served)

    def all(self) -> list[ShardT]:
        """Return the shards of all partitions that are here, and load those that are not loaded.

        Damaged partitions are left out.

        Raises:
            BrokerError: coordinator_load_in_progress while a partition is being loaded, because an incomplete list
                would look complete; otherwise as `get`.
        """
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

    def read(self, partition: int) -> LoadedT:
        """Load the state of a partition from its batches, in any thread.

        Raises:
            BrokerError: With the error code for clients, see `coordinator_error_code`.
        """
        try:
            return self._load(self.log.scan(partition))
        except BrokerError as error:
            raise BrokerError(coordinator_error_code(error.code), error.what) from error

    def begin_loading(self, partitions: Iterable[int]) -> None:
        """Answer COORDINATOR_LOAD_IN_PROGRESS until `open` or `remove`, for partitions that are not open already."""
        self._loading.update(partition for partition in partitions if partition not in self._served)

    def open(self, partition: int, loaded: LoadedT) -> None:
        """Serve a partition whose state has been read. No-op if it is open already or after `stop`."""
        self._loading.discard(partition)
        if partition not in self._served and not self._stopped:
            self.log.register_unflushed(partition)
            self._served[partition] = self._serve(partition, loaded)

    def open_owned(self) -> None:
        """Load all partitions that are here, except damaged ones and those that are being loaded. Raises
        BrokerError."""
        for partition in self.log.owned():
            if partition not in self._served and partition not in self._loading and not self._stopped:
                self._open_now(partition)

    async def load_owned(
        self, run_blocking: Callable[[Callable[[int], LoadedT], int], Awaitable[LoadedT]], what: str
    ) -> None:
        """Load all partitions that are here, one after the other in a thread, while the broker serves requests.

        A partition that cannot be loaded is logged. Its next use tries again, unless its batches are damaged.

        Args:
            what: What the partitions hold, for messages: "groups".
        """
        for partition in self.log.owned():
            if partition in self._served:
                continue
            try:
                self.open(partition, await run_blocking(self.read, partition))
            except KafkalogError as error:
                _log.error("the %s of %s-%d cannot be loaded: %s", what, self.log.name, partition, error)
                self.remove(partition)
                if not isinstance(error, BrokerError):
                    self._damaged[partition] = str(error)
            except Exception:  # noqa: BLE001 - a defect in one partition must not keep the others from being served
                _log.exception("the %s of %s-%d cannot be loaded", what, self.log.name, partition)
                self.remove(partition)

    def remove(self, partition: int) -> None:
        """Unload a partition, or end its loading. Its next use loads it again."""
        self._loading.discard(partition)
        self._damaged.pop(partition, None)
        self._served.pop(partition, None)

    def remove_all(self) -> list[ShardT]:
        """Unload all partitions, as after the topic was deleted, and return their shards."""
        shards = list(self._served.values())
        self._served.clear()
        self._damaged.clear()
        return shards

    def stop(self) -> None:
        """Answer everything with COORDINATOR_NOT_AVAILABLE from now on."""
        self._stopped = True

    def _open_now(self, partition: int) -> None:
        """Load a partition in the event loop. No-op if its batches are damaged. Raises BrokerError."""
        if partition in self._damaged:
            return
        try:
            self.open(partition, self.read(partition))
        except BrokerError:
            raise
        except KafkalogError as error:
            _log.error("%s-%d cannot be loaded: %s", self.log.name, partition, error)
            self._damaged[partition] = str(error)
