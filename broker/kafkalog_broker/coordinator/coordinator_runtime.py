"""The loaded partitions of a coordinator's internal topic, and operations on them (Kafka's CoordinatorRuntime).

A coordinator passes two functions. `load` replays the batches of a partition, in any thread. `create_shard` makes the
shard of the partition from the loaded value, in the event loop. The shard holds all state of the partition and has the
methods `encode` and `replay`, see `CoordinatorShard`.

A request is an operation: a function that reads the shard, does not change it, and returns a `CoordinatorResult` of
records and a response. `run` loads the partition if needed, runs the operation and commits the result: it appends the
records as one batch, replays them into the shard, calls `on_commit` and returns the response. If the append fails,
BrokerError is raised and the shard has not changed.

A shard creates a `CoordinatorTimer` for delayed operations and a `CoordinatorExecutor` for slow tasks; both commit
results with `partial(runtime.commit, partition)`. A caller that already has the shard calls `commit` itself. `append`
is for records that the caller applies without a replay.

All methods except `read` must be called from the event loop.
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

LoadedT = TypeVar("LoadedT")  # return value of `load`
ShardT = TypeVar("ShardT")  # shard that serves a partition
ReplayedT = TypeVar("ReplayedT", contravariant=True)  # record of a shard


class CoordinatorShard(Protocol[ReplayedT]):
    """State of one partition, changed by replaying records (Kafka's CoordinatorShard)."""

    def encode(self, record: ReplayedT, /) -> Record:
        """Encode a record. Raises BrokerError if a text in it is too long."""

    def replay(self, offset: int, record: ReplayedT, /) -> None:
        """Apply a record that is in the log at `offset`. Must not fail."""


ReplayingShardT = TypeVar("ReplayingShardT", bound=CoordinatorShard[Any])


class Append(Protocol):
    """Appends records as one batch to a fixed partition, see `CoordinatorRuntime.append`."""

    def __call__(
        self, records: Sequence[Record] | EncodedRecords, transaction: ProducerIdAndEpoch | None = None, /
    ) -> object: ...


class CoordinatorRuntime(Generic[LoadedT, ShardT]):
    """The shards of a coordinator. A partition that is not loaded is loaded at its first use, which blocks."""

    def __init__(
        self,
        log: CoordinatorLog,
        load: Callable[[Iterable[CoordinatorBatch]], LoadedT],
        create_shard: Callable[[int, LoadedT], ShardT],
    ) -> None:
        """Create a runtime that has loaded no partitions yet.

        Args:
            log: The internal topic.
            load: Replays the batches of a partition, in any thread. May raise BrokerError.
            create_shard: Makes the shard of a partition from the loaded value, in the event loop.
        """
        self.log = log
        self._load = load
        self._create_shard = create_shard
        self._shards: dict[int, ShardT] = {}
        self._loading: set[int] = set()
        self._damaged: dict[int, str] = {}  # reasons why partitions cannot be read, by partition
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
            BrokerError: From `append`, or not_coordinator if the partition was unloaded meanwhile. The shard has not
                changed then.
        """
        records = result.records
        if isinstance(records, EncodedRecords):
            if records:
                self.append(partition, records, result.transaction, is_awaited=result.is_awaited)
        elif records:
            shard = self._shards.get(partition)
            if shard is None:
                raise BrokerError(
                    ErrorCode.not_coordinator, f"{self.log.name}-{partition} is not loaded on this broker"
                )
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
        self.check_not_loading(partition)
        if partition not in self._shards:
            self._load_now(partition)
            if partition in self._damaged:
                reason = self._damaged[partition]
                raise BrokerError(ErrorCode.not_coordinator, f"{self.log.name}-{partition} cannot be loaded: {reason}")
        return self._shards[partition]

    def get_if_loaded(self, partition: int) -> ShardT | None:
        """Return the shard of a partition, or None if it is not loaded."""
        return self._shards.get(partition)

    def loaded_shards(self) -> dict[int, ShardT]:
        """Return the shards that are loaded, by partition."""
        return dict(self._shards)

    def all_shards(self) -> list[ShardT]:
        """Return the shards of all partitions that this broker hosts, after loading those that are not loaded.

        Damaged partitions are not included.

        Raises:
            BrokerError: coordinator_load_in_progress while a partition is being loaded, because the caller could not
                tell an incomplete list from a complete one; otherwise as `get`.
        """
        self.check_running()
        if self._loading:
            raise BrokerError(
                ErrorCode.coordinator_load_in_progress, f"{len(self._loading)} partitions are still being read"
            )
        self.load_owned_now()
        return list(self._shards.values())

    def check_running(self) -> None:
        if self._stopped:
            raise BrokerError(ErrorCode.coordinator_not_available, "the broker is stopping")

    def check_not_loading(self, partition: int) -> None:
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
        """Fail operations on partitions with COORDINATOR_LOAD_IN_PROGRESS until `serve` or `unload` is called.

        Partitions that are already loaded are not affected.
        """
        self._loading.update(partition for partition in partitions if partition not in self._shards)

    def serve(self, partition: int, loaded: LoadedT) -> None:
        """Serve a partition whose state has been loaded. No-op if it already has a shard, or after `stop`."""
        self._loading.discard(partition)
        if partition not in self._shards and not self._stopped:
            self.log.register_unflushed(partition)
            self._shards[partition] = self._create_shard(partition, loaded)

    def load_owned_now(self) -> None:
        """Load all hosted partitions in the event loop, except damaged ones and those that are being loaded.

        Raises:
            BrokerError: See `read`.
        """
        for partition in self.log.owned():
            if partition not in self._shards and partition not in self._loading and not self._stopped:
                self._load_now(partition)

    async def load_owned(
        self, run_blocking: Callable[[Callable[[int], LoadedT], int], Awaitable[LoadedT]], content: str
    ) -> None:
        """Load all hosted partitions in a thread, one after the other, while the broker serves requests.

        If a partition cannot be loaded, the error is logged. Its next use loads it again, unless its batches are
        damaged.

        Args:
            run_blocking: Runs a function in a thread.
            content: Content of the partitions, for log messages, such as "groups".
        """
        for partition in self.log.owned():
            if partition in self._shards:
                continue
            self._loading.add(partition)
            try:
                loaded = await run_blocking(self.read, partition)
                if partition in self._loading:  # the topic was not deleted meanwhile
                    self.serve(partition, loaded)
            except KafkalogError as error:
                _log.error("the %s of %s-%d cannot be loaded: %s", content, self.log.name, partition, error)
                if partition in self._loading and not isinstance(error, BrokerError):
                    self._damaged[partition] = str(error)
            except Exception:  # noqa: BLE001 - a defect in one partition must not keep the others from being served
                _log.exception("the %s of %s-%d cannot be loaded", content, self.log.name, partition)
            finally:
                self._loading.discard(partition)

    def unload(self, partition: int) -> None:
        """Unload a partition, or cancel its loading. Its next use loads it again."""
        self._loading.discard(partition)
        self._damaged.pop(partition, None)
        self._shards.pop(partition, None)

    def unload_all(self) -> list[ShardT]:
        """Unload all partitions, as after the topic was deleted, and return their shards."""
        shards = list(self._shards.values())
        self._shards.clear()
        self._loading.clear()
        self._damaged.clear()
        return shards

    def stop(self) -> None:
        """Fail all further operations with COORDINATOR_NOT_AVAILABLE."""
        self._stopped = True

    def _load_now(self, partition: int) -> None:
        """Load a partition in the event loop. No-op if its batches are damaged. Raises BrokerError."""
        if partition in self._damaged:
            return
        try:
            self.serve(partition, self.read(partition))
        except BrokerError:
            raise
        except KafkalogError as error:
            _log.error("%s-%d cannot be loaded: %s", self.log.name, partition, error)
            self._damaged[partition] = str(error)
