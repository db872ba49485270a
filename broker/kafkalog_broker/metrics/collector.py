"""Collector of the samples of one scrape from the state of the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.group_shard import GroupShard
from kafkalog_broker.groups.modern.modern_group import ModernGroupState
from kafkalog_broker.metrics.metric_table import MAX_GROUP_TOPICS, MAX_GROUPS, MAX_TOPICS
from kafkalog_broker.metrics.request_counts import RequestCounts
from kafkalog_broker.metrics.samples import Samples
from kafkalog_broker.net.network import Network
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.quotas.quota_entity import CLIENT_KEYS, IP_KEYS
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.lifecycle import BrokerState, Lifecycle
from kafkalog_broker.runtime.traffic import Traffic
from kafkalog_broker.storage.log_dir_usage import read_usable_bytes
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.telemetry.client_metrics import ClientMetrics
from kafkalog_broker.transactions.transaction_state import TransactionState

_version = cache(metadata.version)

_LOG_METRICS: Mapping[str, Callable[[Log], float]] = {
    "bytes_in_total": lambda log: log.appended_bytes,
    "records_in_total": lambda log: log.appended_records,
    "log_size_bytes": lambda log: log.size_bytes,
    "segments": lambda log: len(log.segments),
    "unflushed_records": lambda log: max(0, log.log_end_offset - log.recovery_point),
    "flushes_total": lambda log: log.flush_count,
    "flush_seconds_total": lambda log: log.flush_seconds,
}
"""Metrics of a topic that are sums over its open logs -> function that returns the value of one log."""


class Collector:
    """Collects the samples of a scrape.

    Samples of requests and connections exist at any time, all others only while clients are served.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        listeners: Sequence[str],
        requests: RequestCounts,
        traffic: Traffic,
        clients: ClientMetrics,
    ) -> None:
        """
        Args:
            lifecycle: State of the broker.
            listeners: Names of the broker's listeners.
            requests: Counts of requests.
            traffic: Counts of errors and bytes.
            clients: Metrics that clients have pushed.
        """
        self._lifecycle = lifecycle
        self._listeners = listeners
        self._requests = requests
        self._traffic = traffic
        self._clients = clients
        self._broker: Broker | None = None
        self._network: Network | None = None

    def attach(self, broker: Broker, network: Network) -> None:
        """Collect from this broker, all of whose parts exist."""
        self._broker, self._network = broker, network

    async def collect(self) -> Samples:
        """Return the samples of one scrape, and yield to the event loop meanwhile."""
        samples = Samples()
        time_slice = TimeSlice()
        broker = self._broker
        samples.add("kafkalog_build_info", 1, _version("kafkalog"))
        samples.add("kafkalog_ready", self._lifecycle.not_ready_reason() is None)
        await self._add_requests(samples, time_slice)
        await self._add_connections(samples, time_slice)
        samples.add("kafkalog_fetch_sessions", 0 if broker is None else len(broker.fetcher.sessions))
        if broker is not None and self._lifecycle.state is BrokerState.RUNNING:
            await self._add_topics(broker, samples, time_slice)
            await self._add_storage(broker, samples)
            await self._add_remote_storage(broker, samples, time_slice)
            await self._add_groups(broker, samples, time_slice)
            await self._add_share_groups(broker, samples, time_slice)
            self._add_quotas(broker, samples)
            await self._add_client_metrics(broker, samples, time_slice)
            await self._add_transactions(broker, samples, time_slice)
        return samples

    async def _add_requests(self, samples: Samples, time_slice: TimeSlice) -> None:
        async for name, counts in time_slice.spread(self._requests.by_api.items()):
            samples.add_histogram("kafkalog_request_seconds", counts.buckets, counts.latency_sum_s, name)
            samples.add("kafkalog_request_bytes_total", counts.request_bytes, name)
            samples.add("kafkalog_response_bytes_total", counts.response_bytes, name)
            samples.add("kafkalog_requests_closed_total", counts.closed, name)
        for (key, code), count in list(self._traffic.errors.items()):
            samples.add("kafkalog_errors_total", count, api_name(key), ErrorCode(code).name)
        if self._network is not None:
            for holder, seconds in self._network.shared.loop_watch.longest.items():
                samples.add("kafkalog_event_loop_longest_hold_seconds", seconds, holder)

    async def _add_connections(self, samples: Samples, time_slice: TimeSlice) -> None:
        by_listener = Counter(dict.fromkeys(self._listeners, 0))
        network = self._network
        opened = refused = handshakes = failed_handshakes = queued_bytes = 0
        if network is not None:
            async for connection in time_slice.spread(list(network.quotas.open)):
                by_listener[connection.info.listener] += 1
            opened, refused = network.quotas.admitted, network.quotas.refused
            handshakes, failed_handshakes = network.tls_turns.done, network.tls_turns.failed
            queued_bytes = network.shared.memory.used
        for listener, count in by_listener.items():
            samples.add("kafkalog_connections", count, listener)
        samples.add("kafkalog_connections_opened_total", opened)
        samples.add("kafkalog_connections_refused_total", refused)
        samples.add("kafkalog_tls_handshakes_total", handshakes, "done")
        samples.add("kafkalog_tls_handshakes_total", failed_handshakes, "failed")
        samples.add("kafkalog_queued_request_bytes", queued_bytes)

    async def _add_topics(self, broker: Broker, samples: Samples, time_slice: TimeSlice) -> None:
        topics = sorted(broker.topics, key=lambda topic: topic.name)
        total = opened = offline = 0
        for number, topic in enumerate(topics):
            logs = []
            async for partition in time_slice.spread(range(topic.partitions)):
                total += 1
                offline += not broker.logs.is_online(topic.name, partition)
                log = broker.logs.if_open(topic.name, partition)
                if log is not None:
                    logs.append(log)
            opened += len(logs)
            if number < MAX_TOPICS:
                samples.add("kafkalog_topic_partitions", topic.partitions, topic.name)
                samples.add("kafkalog_topic_bytes_out_total", self._traffic.bytes_out[topic.name], topic.name)
                await _add_logs(samples, topic.name, logs, time_slice)
        self._traffic.keep_topics({topic.name for topic in topics})
        samples.add("kafkalog_topics", len(topics))
        samples.add("kafkalog_topics_left_out", max(0, len(topics) - MAX_TOPICS))
        samples.add("kafkalog_partitions", total)
        samples.add("kafkalog_partitions_open", opened)
        samples.add("kafkalog_partitions_offline", offline)

    async def _add_storage(self, broker: Broker, samples: Samples) -> None:
        for directory, usable in await broker.run_blocking(read_usable_bytes, broker.logs.dirs.all):
            samples.add("kafkalog_log_dir_online", usable is not None, str(directory))
            if usable is not None:
                samples.add("kafkalog_log_dir_usable_bytes", usable, str(directory))
        cleaner = broker.logs.cleaner
        samples.add("kafkalog_cleaner_runs_total", cleaner.totals.runs)
        samples.add("kafkalog_cleaner_read_bytes_total", cleaner.totals.bytes_read)
        samples.add("kafkalog_cleaner_written_bytes_total", cleaner.totals.bytes_written)
        samples.add("kafkalog_cleaner_seconds_total", cleaner.totals.seconds)
        samples.add("kafkalog_cleaner_uncleanable_partitions", len(cleaner.uncleanable))

    async def _add_remote_storage(self, broker: Broker, samples: Samples, time_slice: TimeSlice) -> None:
        remote = broker.remote
        if remote is None:
            return
        for name, count in asdict(remote.counts).items():
            samples.add(f"kafkalog_remote_{name}_total", count)
        by_topic: dict[str, Counter[str]] = {}
        async for partition in time_slice.spread(list(remote.partitions.values())):
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

    async def _add_groups(self, broker: Broker, samples: Samples, time_slice: TimeSlice) -> None:
        states: Counter[str] = Counter()
        groups = 0
        for shard in broker.groups.runtime.loaded_shards().values():
            async for group in time_slice.spread(shard.committing_groups()):
                states[group.state.value] += 1
                groups += 1
                if groups <= MAX_GROUPS:
                    samples.add("kafkalog_group_members", len(group.members), group.group_id)
                    await self._add_group_lag(broker, samples, shard, group.group_id, time_slice)
        for state, count in states.items():
            samples.add("kafkalog_groups", count, state)
        samples.add("kafkalog_groups_left_out", max(0, groups - MAX_GROUPS))

    async def _add_group_lag(
        self, broker: Broker, samples: Samples, shard: GroupShard, group_id: str, time_slice: TimeSlice
    ) -> None:
        for topic, partitions in list(shard.offsets.of_group(group_id).items())[:MAX_GROUP_TOPICS]:
            lag = 0
            async for partition, committed in time_slice.spread(list(partitions.items())):
                log = broker.logs.if_open(topic, partition)
                if log is not None:
                    lag += max(0, log.high_watermark - committed.offset)
            samples.add("kafkalog_group_lag", lag, group_id, topic)

    async def _add_share_groups(self, broker: Broker, samples: Samples, time_slice: TimeSlice) -> None:
        states: Counter[str] = Counter({ModernGroupState.EMPTY.value: 0, ModernGroupState.STABLE.value: 0})
        for shard in broker.groups.runtime.loaded_shards().values():
            async for group in time_slice.spread(list(shard.share.groups.values())):
                states[group.state.value] += 1
        for state, count in states.items():
            samples.add("kafkalog_share_groups", count, state)
        in_flight = 0
        async for active in time_slice.spread(list(broker.share_partitions.active_partitions())):
            in_flight += active.partition.in_flight_count
        samples.add("kafkalog_share_sessions", len(broker.share_partitions.sessions))
        samples.add("kafkalog_share_partitions", len(broker.share_partitions.active_partitions()))
        samples.add("kafkalog_share_in_flight_offsets", in_flight)

    def _add_quotas(self, broker: Broker, samples: Samples) -> None:
        quotas = broker.quotas
        samples.add("kafkalog_quotas", len(quotas.quotas))
        for key in (*CLIENT_KEYS, *IP_KEYS):
            samples.add("kafkalog_throttled_requests_total", quotas.throttled[key], key)
            samples.add("kafkalog_throttle_seconds_total", quotas.throttle_ms[key] / 1000, key)

    async def _add_client_metrics(self, broker: Broker, samples: Samples, time_slice: TimeSlice) -> None:
        telemetry = broker.telemetry
        clients = self._clients
        telemetry.remove_expired()
        samples.add("kafkalog_client_instances", len(telemetry))
        samples.add("kafkalog_client_pushes_total", clients.pushes)
        samples.add("kafkalog_client_push_bytes_total", clients.bytes)
        samples.add("kafkalog_client_metrics_left_out_total", clients.dropped)
        async for *labels, value in time_slice.spread(list(clients.samples())):
            samples.add("kafkalog_client_metric", value, *labels)

    async def _add_transactions(self, broker: Broker, samples: Samples, time_slice: TimeSlice) -> None:
        states: Counter[str] = Counter({state.label: 0 for state in TransactionState})
        oldest = now_ms = broker.clock.now_ms()
        async for transaction in time_slice.spread(broker.transactions.loaded_metadata()):
            states[transaction.state.label] += 1
            if transaction.state is TransactionState.ONGOING or transaction.state.is_prepared:
                oldest = min(oldest, transaction.start_ms)
        for state, count in states.items():
            samples.add("kafkalog_transactions", count, state)
        samples.add("kafkalog_transaction_oldest_seconds", (now_ms - oldest) / 1000)


async def _add_logs(samples: Samples, topic: str, logs: list[Log], time_slice: TimeSlice) -> None:
    sums = dict.fromkeys(_LOG_METRICS, 0.0)
    lag = 0
    async for log in time_slice.spread(logs):
        lag = max(lag, log.high_watermark - log.last_stable_offset)
        for name, measure in _LOG_METRICS.items():
            sums[name] += measure(log)
    samples.add("kafkalog_topic_lso_lag", lag, topic)
    for name, value in sums.items():
        samples.add(f"kafkalog_topic_{name}", value, topic)
