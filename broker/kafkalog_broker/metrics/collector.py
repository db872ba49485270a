"""State of a broker as samples, collected in turns like any long request."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from time import perf_counter
from types import CoroutineType
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.group_shard import GroupShard
from kafkalog_broker.groups.modern.modern_group import ModernGroupState
from kafkalog_broker.metrics.exposition import BUCKETS_S, MAX_GROUP_TOPICS, MAX_GROUPS, MAX_TOPICS, Samples
from kafkalog_broker.net.dispatch import Answer, ConnectionClosed, Dispatch, Frame
from kafkalog_broker.net.listener import Network
from kafkalog_broker.protocol.api_registry import ConnectionInfo, registry
from kafkalog_broker.protocol.codec import api_name
from kafkalog_broker.quotas.client_quotas import CLIENT_KEYS, IP_KEYS
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.traffic import Traffic
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.telemetry.client_instances import ClientMetrics
from kafkalog_broker.transactions.transaction_metadata import TransactionState

# Counts of requests: 0.3 us a request, so plain numbers, changed by the event loop alone.

_version = cache(metadata.version)
_KEYS = 256  # Kafka's API keys are below 100


class ApiCounts:
    """Counts of an API. buckets: answered requests by the first of BUCKETS_S not below their latency, not cumulative.
    Seconds and bytes are sums."""

    __slots__ = ("buckets", "closed", "request_bytes", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0
        self.request_bytes = self.response_bytes = self.closed = 0

    def answered(self, seconds: float, pieces: Answer) -> Answer:
        """A request was answered with these pieces, which are returned."""
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        if pieces is not None:
            self.response_bytes += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        return pieces


class RequestCounts:
    """Counts by API key. Unknown keys, which clients make up, are counted together."""

    def __init__(self) -> None:
        self.known: list[ApiCounts | None] = [None] * _KEYS
        """By the second byte of a request, of APIs that were asked for; the first is 0."""
        self._unknown = ApiCounts()

    def of(self, frame: Frame) -> ApiCounts:
        key = int.from_bytes(frame[:2], "big") if len(frame) > 1 else _KEYS
        if key >= _KEYS or key not in registry():
            return self._unknown
        found = self.known[key]
        if found is None:
            found = self.known[key] = ApiCounts()
        return found

    @property
    def by_api(self) -> Mapping[str, ApiCounts]:
        """By name of the API, of those that were asked for."""
        named = {api_name(key): counts for key, counts in enumerate(self.known) if counts is not None}
        return {**named, "unknown": self._unknown} if self._unknown.request_bytes else named


def counted(serve: Dispatch, counts: RequestCounts) -> Dispatch:
    known, of_any, bounds, first_bound = counts.known, counts.of, BUCKETS_S, BUCKETS_S[0]

    def serve_and_count(frame: Frame, connection: ConnectionInfo) -> Answer | Coroutine[Any, Any, Answer]:
        began = perf_counter()
        try:
            served = serve(frame, connection)
        except ConnectionClosed:
            of_api = of_any(frame)
            of_api.request_bytes += len(frame)
            of_api.closed += 1
            raise
        if type(served) is not list:  # pieces that are ready; else they are waited for
            of_api = of_any(frame)
            of_api.request_bytes += len(frame)
            if isinstance(served, CoroutineType):
                return wait_and_count(of_api, began, served)
            return of_api.answered(perf_counter() - began, served)  # type: ignore[arg-type]
        # As `answered`, without a call: it is every small request. It had a header, so there are two bytes.
        seconds = perf_counter() - began
        api = None if frame[0] else known[frame[1]]
        if api is None:
            api = of_any(frame)
        api.request_bytes += len(frame)
        api.seconds += seconds
        api.buckets[0 if seconds <= first_bound else bisect_left(bounds, seconds)] += 1
        api.response_bytes += len(served[0]) if len(served) == 1 else sum(map(len, served))
        return served

    async def wait_and_count(of_api: ApiCounts, began: float, served: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            pieces = await served
        except ConnectionClosed:
            of_api.closed += 1
            raise
        return of_api.answered(perf_counter() - began, pieces)

    return serve_and_count


class Collector:
    """Collector of the samples of a scrape. Before the server is started, requests and connections only."""

    def __init__(
        self,
        broker: Broker,
        network: Callable[[], Network],
        requests: RequestCounts,
        traffic: Traffic,
        clients: ClientMetrics,
    ) -> None:
        self._broker, self._network = broker, network
        self._requests, self._traffic, self._clients = requests, traffic, clients

    async def collect(self) -> Samples:
        samples, turn = Samples(), TimeSlice()
        samples.add("kafkalog_build_info", 1, _version("kafkalog"))
        samples.add("kafkalog_ready", self._broker.not_ready() is None)
        await self._of_requests(samples, turn)
        await self._of_connections(samples, turn)
        if self._broker.is_started:
            await self._of_topics(samples, turn)
            await self._of_storage(samples)
            await self._of_remote_storage(samples, turn)
            await self._of_groups(samples, turn)
            await self._of_share_groups(samples, turn)
            self._of_quotas(samples)
            await self._of_clients(samples, turn)
            await self._of_transactions(samples, turn)
        return samples

    async def _of_requests(self, samples: Samples, turn: TimeSlice) -> None:
        async for name, counts in turn.spread(self._requests.by_api.items()):
            samples.add_histogram("kafkalog_request_seconds", counts.buckets, counts.seconds, name)
            samples.add("kafkalog_request_bytes_total", counts.request_bytes, name)
            samples.add("kafkalog_response_bytes_total", counts.response_bytes, name)
            samples.add("kafkalog_requests_closed_total", counts.closed, name)
        for (key, code), count in list(self._traffic.errors.items()):
            samples.add("kafkalog_errors_total", count, api_name(key), ErrorCode(code).name)
        for what, seconds in self._network().shared.watch.longest.items():
            samples.add("kafkalog_event_loop_longest_hold_seconds", seconds, what)

    async def _of_connections(self, samples: Samples, turn: TimeSlice) -> None:
        network = self._network()
        admission, by_listener = network.admission, Counter({listener.name: 0 for listener in network.listeners})
        async for connection in turn.spread(list(admission.open)):
            by_listener[connection.info.listener] += 1
        for listener, count in by_listener.items():
            samples.add("kafkalog_connections", count, listener)
        samples.add("kafkalog_connections_opened_total", admission.admitted)
        samples.add("kafkalog_connections_refused_total", admission.refused)
        samples.add("kafkalog_tls_handshakes_total", network.tls_turns.done, "done")
        samples.add("kafkalog_tls_handshakes_total", network.tls_turns.failed, "failed")
        samples.add("kafkalog_queued_request_bytes", network.shared.memory.used)
        samples.add("kafkalog_fetch_sessions", len(self._broker.fetch_sessions))

    async def _of_topics(self, samples: Samples, turn: TimeSlice) -> None:
        broker = self._broker
        topics = sorted(broker.topics, key=lambda topic: topic.name)
        total = opened = offline = 0
        for number, topic in enumerate(topics):
            logs = []
            async for partition in turn.spread(range(topic.partitions)):
                total += 1
                offline += not broker.logs.is_online(topic.name, partition)
                log = broker.logs.if_open(topic.name, partition)
                if log is not None:
                    logs.append(log)
            opened += len(logs)
            if number < MAX_TOPICS:
                samples.add("kafkalog_topic_partitions", topic.partitions, topic.name)
                samples.add("kafkalog_topic_bytes_out_total", self._traffic.bytes_out[topic.name], topic.name)
                await _of_logs(samples, topic.name, logs, turn)
        self._traffic.forget({topic.name for topic in topics})
        samples.add("kafkalog_topics", len(topics))
        samples.add("kafkalog_topics_left_out", max(0, len(topics) - MAX_TOPICS))
        samples.add("kafkalog_partitions", total)
        samples.add("kafkalog_partitions_open", opened)
        samples.add("kafkalog_partitions_offline", offline)

    async def _of_storage(self, samples: Samples) -> None:
        for directory, usable in await self._broker.run_blocking(self._broker.logs.usable_bytes):
            samples.add("kafkalog_log_dir_online", usable is not None, str(directory))
            if usable is not None:
                samples.add("kafkalog_log_dir_usable_bytes", usable, str(directory))
        cleaner = self._broker.logs.cleaner
        samples.add("kafkalog_cleaner_runs_total", cleaner.totals.runs)
        samples.add("kafkalog_cleaner_read_bytes_total", cleaner.totals.bytes_read)
        samples.add("kafkalog_cleaner_written_bytes_total", cleaner.totals.bytes_written)
        samples.add("kafkalog_cleaner_seconds_total", cleaner.totals.seconds)
        samples.add("kafkalog_cleaner_uncleanable_partitions", len(cleaner.uncleanable))

    async def _of_remote_storage(self, samples: Samples, turn: TimeSlice) -> None:
        remote = self._broker.remote
        if remote is None:
            return
        for name, count in asdict(remote.counts).items():
            samples.add(f"kafkalog_remote_{name}_total", count)
        by_topic: dict[str, Counter[str]] = {}
        async for partition in turn.spread(list(remote.partitions.values())):
            sums = by_topic.setdefault(partition.remote.partition.topic, Counter())
            sums["copy_lag_segments"] += partition.copy_lag[0]
            sums["copy_lag_bytes"] += partition.copy_lag[1]
            sums["delete_lag_segments"] += partition.delete_lag[0]
            sums["delete_lag_bytes"] += partition.delete_lag[1]
            sums["log_size_bytes"] += partition.remote.finished_bytes
            sums["log_metadata_count"] += len(partition.remote)
        for topic in sorted(by_topic)[:MAX_TOPICS]:
            for name, value in by_topic[topic].items():
                samples.add(f"kafkalog_remote_{name}", value, topic)

    async def _of_groups(self, samples: Samples, turn: TimeSlice) -> None:
        shards = [shard for shard in self._broker.groups.runtime.served().values() if isinstance(shard, GroupShard)]
        states: Counter[str] = Counter()
        shown = 0
        for shard in shards:
            async for group in turn.spread(shard.committing_groups()):
                states[group.state.value] += 1
                shown += 1
                if shown <= MAX_GROUPS:
                    samples.add("kafkalog_group_members", len(group.members), group.group_id)
                    await self._lag(samples, shard, group.group_id, turn)
        for state, count in states.items():
            samples.add("kafkalog_groups", count, state)
        samples.add("kafkalog_groups_left_out", max(0, shown - MAX_GROUPS))

    async def _of_share_groups(self, samples: Samples, turn: TimeSlice) -> None:
        states: Counter[str] = Counter({ModernGroupState.EMPTY.value: 0, ModernGroupState.STABLE.value: 0})
        for shard in self._broker.groups.runtime.served().values():
            async for group in turn.spread(list(shard.share.groups.values())):
                states[group.state.value] += 1
        for state, count in states.items():
            samples.add("kafkalog_share_groups", count, state)
        in_flight = 0
        async for active in turn.spread(list(self._broker.share_partitions.active())):
            in_flight += active.partition.in_flight
        samples.add("kafkalog_share_sessions", len(self._broker.share_partitions.sessions))
        samples.add("kafkalog_share_partitions", len(self._broker.share_partitions.active()))
        samples.add("kafkalog_share_in_flight_offsets", in_flight)

    def _of_quotas(self, samples: Samples) -> None:
        quotas = self._broker.quotas
        samples.add("kafkalog_quotas", len(quotas.quotas))
        for key in (*CLIENT_KEYS, *IP_KEYS):
            samples.add("kafkalog_throttled_requests_total", quotas.throttled[key], key)
            samples.add("kafkalog_throttle_seconds_total", quotas.throttle_ms[key] / 1000, key)

    async def _of_clients(self, samples: Samples, turn: TimeSlice) -> None:
        telemetry, clients = self._broker.telemetry, self._clients
        telemetry.forget_silent()
        samples.add("kafkalog_client_instances", len(telemetry))
        samples.add("kafkalog_client_pushes_total", clients.pushes)
        samples.add("kafkalog_client_push_bytes_total", clients.bytes)
        samples.add("kafkalog_client_metrics_left_out_total", clients.left_out)
        async for *labels, value in turn.spread(list(clients.all())):
            samples.add("kafkalog_client_metric", value, *labels)

    async def _lag(self, samples: Samples, shard: GroupShard, group_id: str, turn: TimeSlice) -> None:
        for topic, partitions in list(shard.offsets.of_group(group_id).items())[:MAX_GROUP_TOPICS]:
            lag = 0
            async for partition, committed in turn.spread(list(partitions.items())):
                log = self._broker.logs.if_open(topic, partition)
                if log is not None:
                    lag += max(0, log.high_watermark - committed.offset)
            samples.add("kafkalog_group_lag", lag, group_id, topic)

    async def _of_transactions(self, samples: Samples, turn: TimeSlice) -> None:
        states: Counter[str] = Counter({state.label: 0 for state in TransactionState})
        oldest = now_ms = self._broker.clock.now_ms()
        async for transaction in turn.spread(self._broker.transactions.served()):
            states[transaction.state.label] += 1
            if transaction.state is TransactionState.ONGOING or transaction.state.is_prepared:
                oldest = min(oldest, transaction.start_ms)
        for state, count in states.items():
            samples.add("kafkalog_transactions", count, state)
        samples.add("kafkalog_transaction_oldest_seconds", (now_ms - oldest) / 1000)


_OF_LOGS: Mapping[str, Callable[[Log], float]] = {
    "bytes_in_total": lambda log: log.appended_bytes,
    "records_in_total": lambda log: max(0, log.log_end_offset - log.local.opened_at),
    "log_size_bytes": lambda log: log.size_bytes,
    "segments": lambda log: len(log.segments),
    "unflushed_records": lambda log: max(0, log.log_end_offset - log.recovery_point),
    "flushes_total": lambda log: log.local.flushes,
    "flush_seconds_total": lambda log: log.local.flush_seconds,
}
"""Metrics of a topic that are sums over its open logs."""


async def _of_logs(samples: Samples, topic: str, logs: list[Log], turn: TimeSlice) -> None:
    sums = dict.fromkeys(_OF_LOGS, 0.0)
    lag = 0
    async for log in turn.spread(logs):
        lag = max(lag, log.high_watermark - log.last_stable_offset)
        for name, measure in _OF_LOGS.items():
            sums[name] += measure(log)
    samples.add("kafkalog_topic_lso_lag", lag, topic)
    for name, value in sums.items():
        samples.add(f"kafkalog_topic_{name}", value, topic)
