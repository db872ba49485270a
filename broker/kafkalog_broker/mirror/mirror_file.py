"""The file `kafkalog.mirror.json`, which records which cluster a log directory mirrors.

    {"version": 0, "cluster_id": "a3Vq...", "own_groups": true}

Another cluster's topics with the same names are different topics; a mirror pointed at it would truncate its logs. With
own_groups a broker has served the mirror, so its groups are its own and must not be replaced by the source's.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.client_codec import NO_ID, SourceTopic
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat, printable
from kafkalog_spark.format.atomic_file import fsync_directory, read_state, replace_file
from kafkalog_spark.format.names import CLUSTER_METADATA_TOPIC, MAX_TOPIC_NAME_LENGTH, is_internal, valid_topic_name
from kafkalog_spark.format.partition_metadata import new_uuid

_log = logging.getLogger(__name__)

MIRROR_FILE = "kafkalog.mirror.json"
VERSION = 0
_DETACHED = ".detached"


@dataclass(frozen=True, slots=True)
class MirrorState:
    """Content of the file. `cluster_id` is None for a cluster without an ID."""

    cluster_id: str | None
    own_groups: bool


class OtherSource(KafkalogError):
    """The directory is not a mirror of this cluster."""


def check_source(
    directory: Path, cluster_id: str | None, *, is_empty: bool, serves: bool = False, internal: bool = False
) -> None:
    """Check that the directory may mirror this cluster, and record the cluster and whether a broker serves the mirror.

    Args:
        cluster_id: None if the cluster has no ID.
        is_empty: The directory has no topics.
        serves: A broker serves the mirror.
        internal: The source's internal topics are mirrored too.

    Raises:
        OtherSource: If the directory mirrors another cluster, has topics of its own, or has groups of its own while
            internal topics are to be mirrored.
        CorruptFile, OSError: If the file cannot be read or written.
    """
    path = directory / MIRROR_FILE
    known = read_state(path, _parse)
    if known is None:
        check_is_mirror(directory, is_empty=is_empty)
    elif known.cluster_id != cluster_id:
        raise OtherSource(
            f"the directory mirrors the cluster {known.cluster_id}, this one is {cluster_id}",
            path=str(path),
            hint="mirror each cluster into a directory of its own",
        )
    elif known.own_groups and internal:
        raise OtherSource(
            "a broker has served the directory (kafkalog-broker --mirror-of): its groups are its own, and mirroring "
            "the source's internal topics would replace them",
            path=str(path),
            hint="mirror without --internal, or into another directory",
        )
    state = MirrorState(cluster_id, serves or (known is not None and known.own_groups))
    if state != known:
        _write(path, state)


def keep_own_groups(directory: Path) -> None:
    """Record that a broker serves the mirror, if the directory is one. Raises CorruptFile, UnsupportedFormat, OSError.

    Offsets that its clients commit are its own, even while the source is unreachable.
    """
    path = directory / MIRROR_FILE
    known = read_state(path, _parse)
    if known is not None and not known.own_groups:
        _write(path, replace(known, own_groups=True))


def is_mirror(directory: Path) -> bool:
    """Return whether the directory is a mirror."""
    return (directory / MIRROR_FILE).exists()


def check_is_mirror(directory: Path, *, is_empty: bool) -> None:
    """Raise OtherSource if the directory has topics but is not a mirror."""
    if not is_empty and not is_mirror(directory):
        raise OtherSource(
            "the directory has topics that no mirror created, or a broker has taken it over",
            path=str(directory),
            hint="mirror into a directory of its own",
        )


def detach(directory: Path) -> None:
    """Rename the mirror's file, because a broker owns the directory from now on; on disk on return.

    Records that producers write to it do not exist in the source's logs, so no mirror may continue in it. Raises
    OSError.
    """
    path = directory / MIRROR_FILE
    if path.exists():
        path.replace(path.with_name(path.name + _DETACHED))
        fsync_directory(directory)
        _log.warning(
            "%s is no longer a mirror: this broker leads it now, and no mirror can continue in it",
            directory,
        )


def _write(path: Path, state: MirrorState) -> None:
    replace_file(path, json.dumps({"version": VERSION, **asdict(state)}).encode() + b"\n")


def _parse(data: bytes) -> MirrorState:
    try:
        content = json.loads(data)
        version, cluster_id, own_groups = content["version"], content["cluster_id"], content.get("own_groups", False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"expected a JSON object with version and cluster_id: {error}") from None
    if version != VERSION:
        raise UnsupportedFormat(f"{MIRROR_FILE} has version {version}, only {VERSION} is supported")
    return MirrorState(cluster_id, bool(own_groups))


@dataclass(slots=True)
class TopicPlan:
    """Changes to local topics.

    Attributes:
        create: Topics that do not exist here.
        enlarge: Topics with more partitions at the source.
        recreate: Topics that were deleted at the source and created again.
        gone: Local topics that are no longer mirrored.
        refused: Topics that cannot be mirrored, with the reason.
    """

    create: list[SourceTopic] = field(default_factory=list)
    enlarge: list[SourceTopic] = field(default_factory=list)
    recreate: list[SourceTopic] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def is_wanted(topic: SourceTopic, pattern: re.Pattern[str], *, internal: bool) -> bool:
    """Return whether a topic is to be mirrored: its whole name matches, and it is not internal unless `internal`.

    The source need not flag topics as internal that are internal here. A name that is too long counts as a match, so
    that `plan_topics` reports it.
    """
    if topic.name == CLUSTER_METADATA_TOPIC or not (internal or not (topic.is_internal or is_internal(topic.name))):
        return False
    return len(topic.name) > MAX_TOPIC_NAME_LENGTH or pattern.fullmatch(topic.name) is not None


def unmatched_names(pattern: re.Pattern[str], wanted: Collection[str]) -> list[str]:
    """Return the alternatives of a pattern such as `orders|clicks` that are plain names, and match none of `wanted`."""
    names = [part for part in pattern.pattern.split("|") if re.fullmatch(r"[a-zA-Z0-9._-]+", part)]
    return [name for name in names if not any(re.fullmatch(name, topic) for topic in wanted)]


def is_same(topic: SourceTopic, mine: Topic) -> bool:
    """Return whether the local topic is a copy of this one, as far as IDs tell."""
    return topic.id in (NO_ID, mine.id)


def plan_topics(local: Mapping[str, Topic], wanted: Mapping[str, SourceTopic]) -> TopicPlan:
    """Compare local topics with the source's topics that are to be mirrored."""
    plan = TopicPlan()
    for name, topic in wanted.items():
        mine, count = local.get(name), len(topic.partitions)
        missing = next((index for index in range(count) if index not in topic.partitions), None)
        if not valid_topic_name(name):
            plan.refused[name] = "the name is not a valid topic name"
        elif missing is not None or not count:
            plan.refused[name] = f"its metadata lists {count} partitions, and {missing or 0} is not one of them"
        elif mine is None:
            plan.create.append(topic)
        elif not is_same(topic, mine):
            plan.recreate.append(topic)
        elif count > mine.partitions:
            plan.enlarge.append(topic)
        elif count < mine.partitions and topic.id == NO_ID:
            plan.recreate.append(topic)
        elif count < mine.partitions:  # a topic never loses partitions, so the node's metadata is outdated
            plan.refused[name] = f"its metadata lists {count} partitions, but it had {mine.partitions}"
    plan.gone = [name for name in local if name not in wanted]
    return plan


CONFIGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Overrides of mirrored topics. Records are deleted only by following the source's log start offset."""


@dataclass(eq=False)
class MirroredTopics:
    """Creates, enlarges and deletes the local topics of a mirror.

    Attributes:
        refused: Topics that cannot be mirrored, with the reason.
    """

    _topics: TopicRegistry
    _logs: LogManager
    _config: BrokerConfig
    _workers: Workers
    _on_deleted: Callable[[str], Awaitable[None]] | None = None
    _warned: set[tuple[str, str]] = field(init=False, default_factory=set)
    refused: dict[str, str] = field(init=False, default_factory=dict)

    async def apply(self, plan: TopicPlan) -> None:
        """Carry out a plan, on the thread that owns the logs. Failures are logged, and repeated with the next metadata.

        Raises:
            BrokerError: If the registry cannot be written.
        """
        for topic in plan.recreate:
            _log.warning(
                "%s was deleted at the source and created again: its mirror is deleted and starting again",
                topic.name,
            )
            await self._delete(topic.name)
        made = [
            Topic(topic.name, new_uuid() if topic.id == NO_ID else topic.id, len(topic.partitions), CONFIGS)
            for topic in plan.create + plan.recreate
        ]
        refused = dict(plan.refused)
        for new, outcome in zip(made, await self._workers.run_blocking(self._topics.create_all, made), strict=True):
            if isinstance(outcome, BrokerError):
                refused[new.name] = str(outcome)
            else:
                _log.info("%s is mirrored from now on, %d partitions", outcome.name, outcome.partitions)
                await self._make_logs(outcome, 0)
        for topic in plan.enlarge:
            before = self._topics.topics[topic.name].partitions
            counts = {topic.name: len(topic.partitions)}
            (outcome,) = await self._workers.run_blocking(self._topics.add_all_partitions, counts)
            if isinstance(outcome, BrokerError):
                refused[topic.name] = str(outcome)
            else:
                _log.info("%s has %d partitions now, it had %d", outcome.name, outcome.partitions, before)
                await self._make_logs(outcome, before)
        for name in plan.gone:
            self._warn_once(name, f"{name} is no longer at the source or not selected: its mirror is kept unchanged")
        self.refused = {printable(f"{name:.{MAX_TOPIC_NAME_LENGTH}}"): why for name, why in refused.items()}
        for name, why in self.refused.items():
            self._warn_once(name, f"{name} is not mirrored: {why}")
        self._warned = {(key, text) for key, text in self._warned if key in plan.gone or key in self.refused}

    def _warn_once(self, key: str, text: str) -> None:
        """Log a warning unless it was already logged for the present condition."""
        if (key, text) not in self._warned:
            self._warned.add((key, text))
            _log.warning("%s", text)

    async def _make_logs(self, topic: Topic, first: int) -> None:
        config = LogConfig.of(self._config, topic.configs)
        topic_ids = {(topic.name, index): topic.id for index in range(first, topic.partitions)}
        prepared = await self._workers.run_blocking(self._logs.prepare_partitions, topic_ids)
        try:
            async for index in TimeSlice().spread(range(first, topic.partitions)):
                try:
                    self._logs.create(topic.name, index, topic.id, config, prepared)
                except BrokerError as error:
                    _log.error("%s", error)
        finally:
            await self._workers.run_blocking(prepared.remove_unused)

    async def _delete(self, name: str) -> None:
        for outcome in await self._workers.run_blocking(self._topics.delete_all, [name]):
            if isinstance(outcome, Topic):
                await self._workers.run_blocking(self._logs.detach_topic(outcome).finish)
                if self._on_deleted is not None:
                    await self._on_deleted(name)
