"""The partitions of an internal topic that a coordinator serves: loading, served, given up (CoordinatorRuntime).

A partition is served from `open` to `remove`. One that nobody has opened is read at its first use, which blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.errors import KafkalogError

_log = logging.getLogger(__name__)

L = TypeVar("L")
"""Value that a partition is loaded as."""
S = TypeVar("S")
"""Shard that serves a partition."""


class Shards(Generic[L, S]):
    """topic: its name, for messages. read: reads a partition from its beginning; raises BrokerError. owned: the
    partitions that exist here. serve: makes of what was loaded what it is served from."""

    def __init__(
        self,
        topic: str,
        read: Callable[[int], L],
        owned: Callable[[], Iterable[int]],
        serve: Callable[[int, L], S],
    ) -> None:
        self._topic = topic
        self._read = read
        self._owned = owned
        self._serve = serve
        self._served: dict[int, S] = {}
        self._loading: set[int] = set()
        self._stopped = False

    def begin_loading(self, partition: int) -> None:
        """Answer COORDINATOR_LOAD_IN_PROGRESS until `open` or `give_up`."""
        self._loading.add(partition)

    def open(self, partition: int, loaded: L) -> None:
        """Serve a partition. `loaded` may have been read in another thread."""
        self._loading.discard(partition)
        if partition not in self._served and not self._stopped:
            self._served[partition] = self._serve(partition, loaded)

    def give_up(self, partition: int) -> None:
        """Loading has failed; the next use tries again."""
        self._loading.discard(partition)

    def open_owned(self) -> None:
        """Open all partitions that exist here, except those that are being loaded. Raises BrokerError."""
        for partition in self._owned():
            if partition not in self._served and partition not in self._loading and not self._stopped:
                self.open(partition, self._read(partition))

    def remove(self, partition: int) -> S | None:
        """The partition is gone, or another's; what it was served from."""
        self._loading.discard(partition)
        return self._served.pop(partition, None)

    def stop(self) -> None:
        """From now on everything is COORDINATOR_NOT_AVAILABLE."""
        self._stopped = True

    # ---- using them

    def get(self, partition: int) -> S:
        """Raises BrokerError: coordinator_not_available, coordinator_load_in_progress, and those of `read`."""
        self.check_running()
        self.check_loaded(partition)
        if partition not in self._served:
            self.open(partition, self._read(partition))
        return self._served[partition]

    def served(self) -> dict[int, S]:
        """By partition, those that are open now."""
        return dict(self._served)

    def if_open(self, partition: int) -> S | None:
        """None, and nothing is read, while the partition is not open."""
        return self._served.get(partition)

    def all(self) -> list[S]:
        """Shards of all partitions that exist here. Raises BrokerError (COORDINATOR_LOAD_IN_PROGRESS): an incomplete
        list would look like a complete one."""
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
        """Raise BrokerError COORDINATOR_LOAD_IN_PROGRESS while a partition is read."""
        if partition in self._loading:
            raise BrokerError(ErrorCode.coordinator_load_in_progress, f"{self._topic}-{partition} is still being read")


class RunBlocking(Protocol):
    def __call__(self, function: Callable[[int], L], partition: int, /) -> Awaitable[L]: ...


async def load_all(
    shards: Shards[L, S], partitions: Iterable[int], run_blocking: RunBlocking, read: Callable[[int], L], what: str
) -> None:
    """Read partitions while the broker serves; meanwhile they are COORDINATOR_LOAD_IN_PROGRESS. what: `the groups of
    __consumer_offsets`, for messages."""
    for partition in partitions:
        try:
            loaded = await run_blocking(read, partition)
        except KafkalogError as error:
            _log.error("%s-%d cannot be loaded: %s", what, partition, error)
            shards.give_up(partition)
        else:
            shards.open(partition, loaded)


# What a client is answered when its coordinator could not write (CoordinatorOperationExceptionHelper).

_WRITE_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.invalid_fetch_size: ErrorCode.unknown_server_error,
}


def write_error(code: ErrorCode) -> ErrorCode:
    """The answer when an append to the coordinator's partition failed with `code`."""
    return _WRITE_ERRORS.get(code, code)


# How much a group may subscribe to.

MOST_NAMES = 4_000
"""Topics that a member, or all members of a group together, may name: whatever changes a subscription counts and hashes
all of them in one step."""
