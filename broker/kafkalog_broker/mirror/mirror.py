"""A running mirror: follows the source's metadata, and assigns each partition to the fetcher of its leader."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.mirror.backoff import Backoff
from kafkalog_broker.mirror.mirror_file import check_source
from kafkalog_broker.mirror.mirror_options import MirrorOptions
from kafkalog_broker.mirror.mirrored_topics import MirroredTopics
from kafkalog_broker.mirror.node_fetcher import NodeFetcher
from kafkalog_broker.mirror.partition_mirror import PartitionMirror
from kafkalog_broker.mirror.rate_limit import RateLimit
from kafkalog_broker.mirror.source import Source
from kafkalog_broker.mirror.source_address import Address
from kafkalog_broker.mirror.source_connection import SourceUnreachable
from kafkalog_broker.mirror.source_offsets import find_ends
from kafkalog_broker.mirror.topic_plan import is_same, is_wanted, plan_topics, unmatched_names
from kafkalog_broker.protocol.mirror_messages import Key, SourceCluster, SourceTopic
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.file_fault import is_transient
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import KafkalogError, UnknownPartition
from kafkalog_spark.format.names import is_internal, similar_topics

_log = logging.getLogger(__name__)

_MAX_LISTED = 10  # number of topics or partitions that a message lists
_METADATA_RETRY_S = 0.25  # pause before outdated metadata is requested again, because an election takes a moment
_SOURCE_BACKOFF_MS, _NODE_BACKOFF_MS = (1_000, 10_000), (250, 10_000)
"""First and longest pause after the source, or one of its nodes, was unreachable."""
_GOOD_CONNECTION_MS = 10_000  # lifetime from which on a connection resets the pauses


@dataclass(eq=False)
class Mirror:
    """A running mirror.

    Attributes:
        on_deleted: Called with the name of a topic whose copy was deleted.
        partitions: All mirrored partitions.
        targets: With `once`, the offsets to reach; None until they are known.
    """

    _options: MirrorOptions
    _logs: LogManager
    _topics: TopicRegistry
    _workers: Workers
    _clock: Clock
    _: KW_ONLY
    on_deleted: Callable[[str], Awaitable[None]] | None = None
    partitions: dict[Key, PartitionMirror] = field(init=False, default_factory=dict)
    targets: dict[Key, int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        options = self._options
        self._source = Source(options.bootstrap, options.settings, options.max_versions)
        self._local = MirroredTopics(self._topics, self._logs, self._workers, self.on_deleted)
        self._producer_ids = ProducerIds([options.directory])
        self._rate = RateLimit(options.max_bytes_per_second)
        self._fetchers: dict[int, NodeFetcher] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._received_by_ended_fetchers = 0
        self._is_stale = asyncio.Event()  # set when the metadata must be requested again
        self._cluster_is_known = False
        self._cluster_id: str | None = None
        self._backoff = Backoff(*_SOURCE_BACKOFF_MS)
        self._node_backoffs = defaultdict[int, Backoff](partial(Backoff, *_NODE_BACKOFF_MS))
        self._errors_of_ends: dict[str, str] = {}  # with `once`, by partition name
        self._unmatched: list[str] = []
        self._logged_text = ""
        self._last_received, self._last_received_ms = 0, self._clock.monotonic_ms()

    @property
    def received_bytes(self) -> int:
        """Bytes of records received since the start."""
        return self._received_by_ended_fetchers + sum(fetcher.received_bytes for fetcher in self._fetchers.values())

    @property
    def lag(self) -> int:
        """Number of offsets that the mirror lacks, as far as is known."""
        return sum(mirror.lag or 0 for mirror in self.partitions.values())

    @property
    def is_complete(self) -> bool:
        """With `once`, True if all records that existed at the start are copied, except those of failed partitions."""
        return self.targets is not None and all(self._has_reached(key, end) for key, end in self.targets.items())

    def _has_reached(self, key: Key, end: int) -> bool:
        mirror = self.partitions.get(key)
        return mirror is not None and (mirror.log.log_end_offset >= end or mirror.has_failed)

    @property
    def failed(self) -> dict[str, str]:
        """Partitions and topics that have a permanent error, with the reason."""
        failed_partitions = {
            mirror.name: mirror.pause_reason or "" for mirror in self.partitions.values() if mirror.has_failed
        }
        missing = dict.fromkeys(self._unmatched, "the cluster has no such topic")
        return {**missing, **self._local.refused, **self._errors_of_ends, **failed_partitions}

    async def run(self) -> None:
        """Mirror until cancelled; with `once`, until all records that existed at the start are copied.

        A lack of file descriptors only causes a pause.

        Raises:
            OtherSource: If the directory is a mirror of another cluster.
            BrokerError: If the log directory has failed.
            UnknownPartition: With `once`, if no topic of the cluster is to be mirrored.
            SourceUnreachable: With `once`, if no record was received for `give_up_ms`.
        """
        try:
            while not (self._options.once and self.is_complete):
                self._is_stale.clear()
                try:
                    await self._refresh()
                    self._backoff.reset()
                    self._check_progress(None)
                    await self._pause(self._options.refresh_s)
                except SourceUnreachable as error:
                    self._check_progress(error)
                    await self._back_off(error)
                except (KafkalogError, OSError) as error:
                    if not is_transient(error):
                        raise
                    await self._back_off(error)
                except Exception as error:  # noqa: BLE001 - a bug here must not stop the fetchers
                    await self._back_off(error)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await self._source.aclose()

    async def _pause(self, seconds: float) -> None:
        """Sleep until the metadata must be requested again; with `once`, until all records are copied."""
        until = asyncio.get_running_loop().time() + seconds
        while (remaining_s := until - asyncio.get_running_loop().time()) > 0:
            try:
                # Not wait_for, which in Python 3.11 loses a cancellation at the moment when the event is set.
                async with asyncio.timeout(min(remaining_s, _METADATA_RETRY_S)):
                    await self._is_stale.wait()
            except TimeoutError:
                if self._options.once and self.is_complete:
                    return
            else:
                await asyncio.sleep(_METADATA_RETRY_S)
                return

    def _check_progress(self, error: SourceUnreachable | None) -> None:
        """With `once`, raise SourceUnreachable if no record could be received for `give_up_ms`.

        Args:
            error: Why there is no metadata, or None.
        """
        if not self._options.once:
            return
        now_ms = self._clock.monotonic_ms()
        received = self.received_bytes
        missing = [key for key, end in (self.targets or {}).items() if not self._has_reached(key, end)]
        reasons = {mirror.name: mirror.pause_reason for key, mirror in self.partitions.items() if mirror.pause_reason}
        stuck = error is not None or self.targets is None or all("{}-{}".format(*key) in reasons for key in missing)
        if not stuck or received != self._last_received:
            self._last_received, self._last_received_ms = received, now_ms
        if now_ms - self._last_received_ms < self._options.give_up_ms or self.is_complete:
            return
        reason = error or "; ".join(
            f"{name}: {pause_reason}" for name, pause_reason in sorted(reasons.items())[:_MAX_LISTED]
        )
        raise SourceUnreachable(
            f"no record was received for {self._options.give_up_ms / 1000:.0f} s: "
            f"{reason or 'a partition has no leader'}",
            hint="check --bootstrap and the cluster; the next start continues at the log end offsets",
        )

    async def _back_off(self, error: Exception) -> None:
        is_bug = not isinstance(error, (KafkalogError, OSError))
        _log.warning("%.1000s", error, exc_info=error if is_bug else None)
        await asyncio.sleep(self._backoff.record_failure(self._clock.monotonic_ms()) / 1000)

    async def _refresh(self) -> None:
        """Request the metadata, and bring topics, partitions and fetchers into line with it.

        Raises:
            OtherSource: If the directory is a mirror of another cluster.
            BrokerError, OSError: If a topic or partition cannot be changed.
            SourceUnreachable: If no node of the cluster responds.
            UnknownPartition: With `once`, if no topic of the cluster is to be mirrored.
        """
        cluster = await self._source.metadata()
        self._check_cluster(cluster)
        wanted = self._select_topics(cluster)
        self._check_topics(cluster, wanted)
        mirrored = await self._update_topics(wanted)
        await self._update_partitions(mirrored)
        await self._assign_partitions(cluster, mirrored)
        if self._options.once and self.targets is None:
            await self._find_targets(cluster, mirrored)

    def _check_cluster(self, cluster: SourceCluster) -> None:
        """Raise OtherSource or SourceUnreachable unless this is the cluster that the directory mirrors."""
        if not self._cluster_is_known:
            check_source(
                self._options.directory, cluster.cluster_id, is_empty=not self._local_topics(),
                serves=self._options.keeps_own_internal_topics, internal=self._options.internal,
            )  # fmt: skip
            self._cluster_is_known = True
            self._cluster_id = cluster.cluster_id
        elif cluster.cluster_id != self._cluster_id:
            raise SourceUnreachable(f"cluster {cluster.cluster_id} responds, expected {self._cluster_id}")

    def _select_topics(self, cluster: SourceCluster) -> dict[str, SourceTopic]:
        internal = self._options.internal and not self._options.keeps_own_internal_topics
        return {
            name: topic
            for name, topic in cluster.topics.items()
            if is_wanted(topic, self._options.topics, internal=internal)
        }

    async def _update_topics(self, wanted: Mapping[str, SourceTopic]) -> dict[str, SourceTopic]:
        """Create, enlarge and recreate local topics, and return the source's topics that exist here now."""
        plan = plan_topics(self._local_topics(), wanted)
        for topic in plan.recreate:
            for partition in range(self._topics.topics[topic.name].partitions):
                self._remove_partition((topic.name, partition))
        await self._local.apply(plan)
        return {
            name: topic
            for name, topic in wanted.items()
            if name not in plan.refused and (local := self._topics.get(name)) is not None and is_same(topic, local)
        }

    async def _find_targets(self, cluster: SourceCluster, mirrored: Mapping[str, SourceTopic]) -> None:
        """Set `targets` to the present log end offsets of the source, or request the metadata again soon."""
        ends = await find_ends(self._source, cluster, mirrored)
        if ends is not None:
            self.targets, self._errors_of_ends = ends
        else:
            asyncio.get_running_loop().call_later(_SOURCE_BACKOFF_MS[0] / 1000, self._is_stale.set)

    def _check_topics(self, cluster: SourceCluster, wanted: Collection[str]) -> None:
        """Log changes in the selected topics that the cluster lacks.

        With `once`, raise UnknownPartition if it has none of them.
        """
        unmatched = unmatched_names(self._options.topics, wanted)
        if wanted and unmatched == self._unmatched:
            return
        known = sorted(name for name, topic in cluster.topics.items() if not topic.is_internal)
        similar = [name for topic in unmatched for name in similar_topics(topic, known)]
        internal = "" if self._options.internal else ", internal ones only with --internal"
        error = UnknownPartition(
            f"no topic of the cluster matches --topics {' and '.join(unmatched) or self._options.topics.pattern}",
            hint=(f"did you mean {', '.join(dict.fromkeys(similar))}? The" if similar else "the")
            + f" user may see {len(known)} topics{': ' if known else ''}{', '.join(known[:_MAX_LISTED])}"
            + (", ..." if len(known) > _MAX_LISTED else "") + internal,
        )  # fmt: skip
        if self._options.once and not wanted and (unmatched or known):
            raise error
        if unmatched or not wanted:
            text = str(error)
            if text != self._logged_text:
                _log.warning("%s", text)
            self._logged_text = text
        self._unmatched = unmatched

    def _local_topics(self) -> dict[str, Topic]:
        """Return the topics of the directory that belong to the mirror."""
        if not self._options.keeps_own_internal_topics:
            return dict(self._topics.topics)
        return {name: topic for name, topic in self._topics.topics.items() if not is_internal(name)}

    def _remove_partition(self, key: Key) -> None:
        mirror = self.partitions.pop(key, None)
        if mirror is not None:
            mirror.owner = None
            for fetcher in self._fetchers.values():
                fetcher.partitions.pop(key, None)

    async def _update_partitions(self, mirrored: Mapping[str, SourceTopic]) -> None:
        for key in [key for key in self.partitions if key[0] not in mirrored]:
            self._remove_partition(key)
        time_slice = TimeSlice()  # opening a log blocks, and there may be thousands
        for name, topic in mirrored.items():
            local = set(self._logs.partitions(name))
            async for partition in time_slice.spread(topic.partitions):
                key = (name, partition)
                if key in self.partitions:
                    self.partitions[key].topic_id = topic.id
                elif key in local:
                    try:
                        self.partitions[key] = PartitionMirror(key, topic.id, self._logs, self._workers, self._clock)
                    except BrokerError as error:
                        _log.error("%s", error)

    async def _assign_partitions(self, cluster: SourceCluster, mirrored: Mapping[str, SourceTopic]) -> None:
        """Assign each partition to the fetcher of its leader. Nodes in a pause after a failure are left out."""
        for node, mirrors in self._partitions_by_leader(cluster, mirrored).items():
            if self._node_backoffs[node].until_ms <= self._clock.monotonic_ms():
                await self._assign_to_node(node, cluster.nodes[node], mirrors)
        for fetcher in self._fetchers.values():
            for key in [key for key, mirror in fetcher.partitions.items() if mirror.owner is not fetcher]:
                del fetcher.partitions[key]

    def _partitions_by_leader(
        self, cluster: SourceCluster, mirrored: Mapping[str, SourceTopic]
    ) -> dict[int, list[PartitionMirror]]:
        by_leader: dict[int, list[PartitionMirror]] = {}
        for mirror in self.partitions.values():
            location = mirrored[mirror.key[0]].partitions[mirror.key[1]]
            if location.leader in cluster.nodes:
                mirror.leader_epoch = location.leader_epoch
                by_leader.setdefault(location.leader, []).append(mirror)
            else:
                mirror.pause_reason = "it has no leader"
        return by_leader

    async def _assign_to_node(self, node: int, address: Address, mirrors: Sequence[PartitionMirror]) -> None:
        """Assign partitions to the fetcher of a node, after comparing the epochs of those that it did not have."""
        try:
            fetcher = self._fetchers.get(node) or await self._start_fetcher(node, address)
            new = [mirror for mirror in mirrors if mirror.owner is not fetcher]
            for mirror in new:
                mirror.owner = None  # no fetcher appends to it during the comparison
                mirror.rewind()
            await fetcher.compare_epochs(new)
        except SourceUnreachable as error:
            _log.warning("node %d: %s", node, error)
            await self._stop_fetcher(node)
            self._back_off_node(node)
            for mirror in mirrors:
                mirror.pause_reason = str(error)
            return
        for mirror in new:
            mirror.owner = fetcher
            fetcher.partitions[mirror.key] = mirror

    async def _stop_fetcher(self, node: int) -> None:
        """Stop a fetcher, which would not notice the failure of its connection while it has no partitions."""
        self._fetchers.pop(node, None)
        if (task := self._tasks.pop(node, None)) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _start_fetcher(self, node: int, address: Address) -> NodeFetcher:
        connection = await self._source.connect(address)
        fetcher = NodeFetcher(
            connection, self._options.settings, self._workers, self._rate, self._producer_ids, self._is_stale.set
        )  # fmt: skip
        self._fetchers[node] = fetcher
        self._tasks[node] = asyncio.create_task(self._fetch(node, fetcher))
        return fetcher

    async def _fetch(self, node: int, fetcher: NodeFetcher) -> None:
        started_ms = self._clock.monotonic_ms()
        try:
            await fetcher.run()
        except KafkalogError as error:
            _log.warning("node %d: %s", node, error)
        except Exception:  # noqa: BLE001 - a bug must not stop the other nodes
            _log.exception("fetching from node %d failed", node)
        finally:
            self._received_by_ended_fetchers += fetcher.received_bytes
            if self._fetchers.get(node) is fetcher:
                del self._fetchers[node], self._tasks[node]
            if self._clock.monotonic_ms() - started_ms >= _GOOD_CONNECTION_MS:
                self._node_backoffs[node].reset()
            self._back_off_node(node)

    def _back_off_node(self, node: int) -> None:
        """Pause fetching from a node that failed, and request the metadata again afterwards."""
        pause_ms = self._node_backoffs[node].record_failure(self._clock.monotonic_ms())
        asyncio.get_running_loop().call_later(pause_ms / 1000, self._is_stale.set)
