"""Fetcher of all partitions that one node of the source leads, over one connection.

While a response is appended, the next one is already requested, so fetch positions are ahead of the log end offsets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.fetch_session import ClientSession
from kafkalog_broker.mirror.partition_mirror import PartitionMirror, Received
from kafkalog_broker.mirror.rate_limit import RateLimit
from kafkalog_broker.mirror.source_bounds import ImpossibleOffsets, check_fetched
from kafkalog_broker.mirror.source_connection import SourceConnection, SourceUnreachable
from kafkalog_broker.mirror.source_errors import SESSION_ERRORS, TRANSIENT, error_text
from kafkalog_broker.mirror.source_offsets import end_of_epoch, log_bounds
from kafkalog_broker.protocol.mirror_fetch_messages import (
    FIRST_SESSION_VERSION,
    FIRST_TOPIC_ID_VERSION,
    FetchedSourcePartition,
    SourceFetchResponse,
)
from kafkalog_broker.protocol.mirror_messages import FETCH, NO_ID, Key
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.producer_ids import ProducerIds, largest_cluster_id
from kafkalog_spark.errors import KafkalogError, printable
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.read.header_windows import Window

_log = logging.getLogger(__name__)

_IDLE_POLL_INTERVAL_S = 0.1  # interval of checks for a due partition while there is none
_MAX_THROTTLE_S = 60.0  # Kafka throttles no longer than its quota windows, 11 s by default
_EPOCHS_IN_FETCH = 12  # version of Fetch from which on responses contain diverging epochs


@dataclass(eq=False)
class NodeFetcher:
    """Fetches partitions from one node and appends their batches.

    Attributes:
        partitions: Assigned partitions. Only those whose `owner` is this fetcher are fetched; the mirror may change the
            owner at any time.
        received_bytes: Bytes of records received.
    """

    _connection: SourceConnection
    _settings: ClientSettings
    _workers: Workers
    _rate: RateLimit
    _producer_ids: ProducerIds
    _request_metadata: Callable[[], None]
    partitions: dict[Key, PartitionMirror] = field(init=False, default_factory=dict)
    received_bytes: int = field(init=False, default=0)
    # The last response, whose buffer is in use until its batches are appended.
    _response: SourceFetchResponse | None = field(init=False, default=None)
    _unappended: list[tuple[PartitionMirror, Received]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._version = self._connection.required_version(FETCH)

    async def run(self) -> None:
        """Fetch and append until cancelled. Raises SourceUnreachable."""
        sessions = {
            version: ClientSession(is_served=version >= FIRST_SESSION_VERSION)
            for version in (self._version, FIRST_TOPIC_ID_VERSION - 1)
        }
        try:
            while True:
                version, wanted = self._next_request_partitions()
                session = sessions[version]
                if not wanted:
                    await self._append()
                    await asyncio.sleep(_IDLE_POLL_INTERVAL_S)
                    continue
                max_partition_bytes = self._rate.bound(self._settings.max_partition_bytes)
                fetches = {key: mirror.fetch_entry(max_partition_bytes) for key, mirror in wanted.items()}
                call = session.next_request(fetches)._replace(
                    max_wait_ms=self._settings.max_wait_ms, min_bytes=self._settings.min_bytes,
                    max_bytes=self._rate.bound(self._settings.max_bytes),
                )  # fmt: skip
                fetch_offsets = {key: mirror.next_offset for key, mirror in wanted.items()}
                fetching = asyncio.ensure_future(self._connection.fetch(call, version, len(wanted)))
                await asyncio.sleep(0)  # lets the task send the request before the appends
                try:
                    await self._append()
                    self._response = response = await fetching
                finally:
                    if not fetching.cancel() and not fetching.cancelled():
                        fetching.exception()  # asyncio would log an exception that is not retrieved
                await self._handle_response(response, session, wanted, fetch_offsets)
                size = sum(len(fetched.records) for fetched in response.partitions)
                self.received_bytes += size
                rate_pause_s = self._rate.record(size, time.monotonic()) if size else 0
                pause_s = max(rate_pause_s, min(response.throttle_ms / 1000, _MAX_THROTTLE_S))
                if pause_s > 0:
                    await self._append()
                    await asyncio.sleep(pause_s)
        finally:
            for mirror in self.partitions.values():
                if mirror.owner is self:
                    mirror.owner = None
            await self._connection.aclose()

    def _next_request_partitions(self) -> tuple[int, dict[Key, PartitionMirror]]:
        """Return the version and the partitions of the next request.

        While a cluster is upgraded, topics without IDs are fetched by an older version.
        """
        due_partitions = {
            key: mirror for key, mirror in self.partitions.items() if mirror.owner is self and mirror.is_due()
        }
        if self._version < FIRST_TOPIC_ID_VERSION:
            return self._version, due_partitions
        with_id = {key: mirror for key, mirror in due_partitions.items() if mirror.topic_id != NO_ID}
        return (self._version, with_id) if with_id else (FIRST_TOPIC_ID_VERSION - 1, due_partitions)

    async def _handle_response(
        self,
        response: SourceFetchResponse,
        session: ClientSession,
        wanted: Mapping[Key, PartitionMirror],
        fetch_offsets: Mapping[Key, int],
    ) -> None:
        """Check a response and handle its errors; its batches are appended later."""
        if response.error:
            session.reset()
            if response.error not in SESSION_ERRORS:
                _log.warning("%s responds to Fetch with %s", self._connection.address, error_text(response.error))
                self._request_metadata()
                await asyncio.sleep(1)
            return
        session.advance(response.session_id)
        by_topic = {(mirror.topic_id, key[1]): key for key, mirror in wanted.items()}
        batches: list[tuple[PartitionMirror, FetchedSourcePartition]] = []
        for fetched in response.partitions:
            topic, partition = fetched.topic, fetched.partition
            key = (topic, partition) if isinstance(topic, str) else by_topic.get((topic, partition))
            mirror = None if key is None else wanted.get(key)
            if mirror is None or mirror.owner is not self or mirror.next_offset != fetch_offsets[mirror.key]:
                continue
            if fetched.error or fetched.diverging is not None:
                await self._set_aside_if_failed(mirror, self._handle_partition_error(mirror, fetched))
                continue
            try:
                check_fetched(fetched)
            except ImpossibleOffsets as error:
                self._set_aside(mirror, error)
            else:
                batches.append((mirror, fetched))
        windows = await self._workers.run_computing(_check_all, [fetched.records for _, fetched in batches])
        for (mirror, fetched), window in zip(batches, windows, strict=True):
            if isinstance(window, Exception):
                self._set_aside(mirror, window)
            elif len(window.table) and 0 <= window.table[0, HeaderColumn.LEADER_EPOCH] < mirror.last_epoch:
                # Leader epochs in a log never decrease, so the logs have diverged.
                await self._set_aside_if_failed(mirror, self._find_divergence(mirror))
            else:
                received = Received(mirror.next_offset, window, fetched.high_watermark, fetched.log_start_offset)
                self._unappended.append((mirror, received))
                if len(window.table):
                    mirror.advance_past(window)

    async def _append(self) -> None:
        """Append the batches of the last response, whose buffer is reused afterwards."""
        for mirror, received in self._unappended:
            await self._set_aside_if_failed(mirror, self._append_one(mirror, received))
        self._unappended.clear()
        if self._response is not None:
            self._connection.reuse_buffer(self._response)
            self._response = None

    async def _append_one(self, mirror: PartitionMirror, received: Received) -> None:
        largest = largest_cluster_id(received.window.table[:, HeaderColumn.PRODUCER_ID])
        if self._producer_ids.may_allocate(largest):
            await self._workers.run_blocking(self._producer_ids.stay_above, largest)
        if mirror.owner is self:
            await mirror.append(received)

    async def _set_aside_if_failed(self, mirror: PartitionMirror, work: Awaitable[object]) -> None:
        """Await `work`, and set the partition aside if it fails, without affecting the others."""
        try:
            await work
        except SourceUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - logged; one partition must not stop the others
            self._set_aside(mirror, error)

    def _set_aside(self, mirror: PartitionMirror, error: Exception) -> None:
        try:
            mirror.open()
        except BrokerError as open_error:
            error = open_error
        reason = str(error) if isinstance(error, KafkalogError) else printable(f"{type(error).__name__}: {error}")
        if not isinstance(error, (KafkalogError, OSError)) and mirror.pause_reason != reason:
            _log.error("%s: unexpected error in the mirror", mirror.name, exc_info=error)
        mirror.pause(reason, is_permanent=True)

    async def _handle_partition_error(self, mirror: PartitionMirror, fetched: FetchedSourcePartition) -> None:
        match fetched.error:
            case ErrorCode.none:
                await self._truncate_diverged(mirror, fetched)
            case ErrorCode.offset_out_of_range:
                await self._handle_out_of_range(mirror)
            case code if code in TRANSIENT:
                mirror.pause(error_text(fetched.error))
                self._request_metadata()
            case _:
                mirror.pause(f"the source responds {error_text(fetched.error)}", is_permanent=True)

    async def _truncate_diverged(self, mirror: PartitionMirror, fetched: FetchedSourcePartition) -> None:
        assert fetched.diverging is not None
        check_fetched(fetched)
        before = mirror.log.log_end_offset
        epoch = fetched.diverging[0]
        end = mirror.follower.truncation_offset(*fetched.diverging)
        await mirror.truncate_to(end, f"unclean leader election: the source's log differs after leader epoch {epoch}")
        if mirror.log.log_end_offset == before:
            mirror.pause(f"the source's log differs after leader epoch {epoch}, but it does not say from which offset")

    async def _handle_out_of_range(self, mirror: PartitionMirror) -> None:
        start, end = await log_bounds(self._connection, mirror.key)
        own_end = mirror.log.log_end_offset
        if own_end < start:
            reason = f"the source deleted offsets {own_end} to {start - 1} before they were copied"
            await mirror.start_over(start, reason)
        elif own_end > end:
            reason = f"the source's log ends at offset {end}, the mirrored one at {own_end}"
            if end < mirror.log.log_start_offset:
                await mirror.start_over(start, reason)
            else:
                await mirror.truncate_to(end, reason)
        else:  # Kafka responds so if it does not know the epoch of the previous batch
            await self._find_divergence(mirror)

    async def _find_divergence(self, mirror: PartitionMirror) -> None:
        """Find where the logs diverge, by querying the end of one leader epoch after the other, and truncate there.

        Used when a response contradicts the copied batches, but does not say from which offset on.
        """
        before = mirror.log.log_end_offset
        mirror.rewind()
        for entry in reversed(mirror.log.epochs.entries):
            source_end = await end_of_epoch(self._connection, mirror.key, entry.epoch)
            if source_end is not None and source_end.offset >= 0:
                end = mirror.follower.truncation_offset(source_end.epoch, source_end.offset)
                await mirror.truncate_to(end, f"the source's log differs after leader epoch {source_end.epoch}")
                break
        if mirror.log.log_end_offset == before:
            mirror.pause(
                f"the source's batches differ from those below offset {before} here, from an unknown offset on"
            )

    async def compare_epochs(self, mirrors: list[PartitionMirror]) -> None:
        """Truncate partitions that diverge from a new leader, for sources before 2.7 whose Fetch does not report it.

        Raises SourceUnreachable.
        """
        for mirror in mirrors if self._version < _EPOCHS_IN_FETCH else ():
            await self._set_aside_if_failed(mirror, self._compare_epochs(mirror))

    async def _compare_epochs(self, mirror: PartitionMirror) -> None:
        while (epoch := mirror.follower.last_epoch) >= 0:
            source_end = await end_of_epoch(self._connection, mirror.key, epoch)
            if source_end is None or (source_end.epoch == epoch and source_end.offset >= mirror.log.log_end_offset):
                break
            end = mirror.follower.truncation_offset(source_end.epoch, source_end.offset)
            if end >= mirror.log.log_end_offset:
                break
            await mirror.truncate_to(end, f"the source's log differs from leader epoch {source_end.epoch} on")


def _check_all(records: list[memoryview]) -> list[Window | Exception]:
    """Check the batches of each partition, and return its window or its error. Runs in a thread."""
    windows: list[Window | Exception] = []
    for data in records:
        try:
            windows.append(parse_fetched_batches(data))
        except Exception as error:  # noqa: BLE001 - returned to the caller
            windows.append(error)
    return windows
