"""The file that says of a log directory whose mirror it is: `kafkalog.mirror.json`.

    {"version": 0, "cluster_id": "a3Vq...", "own_groups": true}

Another cluster's topics of the same names are other topics: a mirror that was pointed at one would cut its logs. So it
would those of own_groups, with which a broker has served the mirror, whose groups are its own from then on.
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
from kafkalog_broker.protocol.mirror_messages import NO_ID, SourceTopic
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
class Mirrored:
    cluster_id: str | None
    own_groups: bool


class OtherSource(KafkalogError):
    """The directory is not a mirror of this cluster."""


def check_source(
    directory: Path, cluster_id: str | None, *, is_empty: bool, serves: bool = False, internal: bool = False
) -> None:
    """Raise OtherSource when the directory mirrors another cluster, holds topics of its own, or groups of its own where
    the source's internal topics are asked for; remember the cluster in one that is new, and that a broker serves it.
    cluster_id: None of a cluster that has none. Raises CorruptFile, OSError."""
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
    state = Mirrored(cluster_id, serves or (known is not None and known.own_groups))
    if state != known:
        _write(path, state)


def keep_own_groups(directory: Path) -> None:
    """Before a broker serves the mirror, if there is one: whatever its clients commit is its own, even while its source
    is away. Raises CorruptFile, UnsupportedFormat, OSError."""
    path = directory / MIRROR_FILE
    known = read_state(path, _parse)
    if known is not None and not known.own_groups:
        _write(path, replace(known, own_groups=True))


def is_mirror(directory: Path) -> bool:
    return (directory / MIRROR_FILE).exists()


def check_is_mirror(directory: Path, *, is_empty: bool) -> None:
    """Raise OtherSource for a directory that holds topics and is no mirror."""
    if not is_empty and not is_mirror(directory):
        raise OtherSource(
            "the directory holds topics, and no mirror has made them, or a broker has served it since",
            path=str(directory),
            hint="mirror into a directory of its own",
        )


def detach(directory: Path) -> None:
    """Rename the mirror's file, on disk on return: a broker serves the directory from now on.

    What producers write to it has no place in the source's logs, so no mirror may continue in it. Raises OSError.
    """
    path = directory / MIRROR_FILE
    if path.exists():
        path.replace(path.with_name(path.name + _DETACHED))
        fsync_directory(directory)
        _log.warning(
            "%s is a mirror no more: from now on this broker is its leader, and no mirror goes on in it", directory
        )


def _write(path: Path, state: Mirrored) -> None:
    replace_file(path, json.dumps({"version": VERSION, **asdict(state)}).encode() + b"\n")


def _parse(data: bytes) -> Mirrored:
    try:
        content = json.loads(data)
        version, cluster_id, own_groups = content["version"], content["cluster_id"], content.get("own_groups", False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"expected a JSON object with version and cluster_id: {error}") from None
    if version != VERSION:
        raise UnsupportedFormat(f"version {version} of {MIRROR_FILE}, only {VERSION} is known")
    return Mirrored(cluster_id, bool(own_groups))


@dataclass(slots=True)
class TopicPlan:
    """Which local topics are made, enlarged or made anew. enlarge: with more partitions at the source. anew: deleted at
    the source and made again. gone: here, and not at the source any more. odd: why a topic is left alone."""

    create: list[SourceTopic] = field(default_factory=list)
    enlarge: list[SourceTopic] = field(default_factory=list)
    anew: list[SourceTopic] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    odd: dict[str, str] = field(default_factory=dict)


def is_wanted(topic: SourceTopic, pattern: re.Pattern[str], *, internal: bool) -> bool:
    """True if the topic is to be mirrored: its whole name matches; internal ones only when they are asked for. What is
    internal here the source need not call so. A name too long for any topic is not matched: `plan_topics` says it."""
    if topic.name == CLUSTER_METADATA_TOPIC or not (internal or not (topic.is_internal or is_internal(topic.name))):
        return False
    return len(topic.name) > MAX_TOPIC_NAME_LENGTH or pattern.fullmatch(topic.name) is not None


def unmatched_names(pattern: re.Pattern[str], wanted: Collection[str]) -> list[str]:
    """Return the alternatives of a pattern such as `orders|clicks` that are plain names, and match none of `wanted`."""
    names = [part for part in pattern.pattern.split("|") if re.fullmatch(r"[a-zA-Z0-9._-]+", part)]
    return [name for name in names if not any(re.fullmatch(name, topic) for topic in wanted)]


def is_same(topic: SourceTopic, mine: Topic) -> bool:
    """True if the local topic is a copy of this one, as far as ids tell."""
    return topic.id in (NO_ID, mine.id)


def plan_topics(local: Mapping[str, Topic], wanted: Mapping[str, SourceTopic]) -> TopicPlan:
    """wanted: the source's topics that are to be mirrored."""
    plan = TopicPlan()
    for name, topic in wanted.items():
        mine, count = local.get(name), len(topic.partitions)
        missing = next((index for index in range(count) if index not in topic.partitions), None)
        if not valid_topic_name(name):
            plan.odd[name] = "no topic can have this name"
        elif missing is not None or not count:
            plan.odd[name] = f"its metadata lists {count} partitions, and {missing or 0} is not one of them"
        elif mine is None:
            plan.create.append(topic)
        elif not is_same(topic, mine):
            plan.anew.append(topic)
        elif count > mine.partitions:
            plan.enlarge.append(topic)
        elif count < mine.partitions and topic.id == NO_ID:
            plan.anew.append(topic)
        elif count < mine.partitions:  # no topic loses partitions: the node is behind
            plan.odd[name] = f"its metadata lists {count} partitions, it had {mine.partitions}"
    plan.gone = [name for name in local if name not in wanted]
    return plan


CONFIGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Nothing leaves a mirrored log but what has left the source's: its log start offset is followed."""


@dataclass(eq=False)
class MirroredTopics:
    """The local topics of a mirror. refused: those that cannot be mirrored, and why. on_deleted: called with a topic
    that is gone."""

    _topics: TopicRegistry
    _logs: LogManager
    _config: BrokerConfig
    _workers: Workers
    _on_deleted: Callable[[str], Awaitable[None]] | None = None
    _said: set[tuple[str, str]] = field(init=False, default_factory=set)
    refused: dict[str, str] = field(init=False, default_factory=dict)

    async def apply(self, plan: TopicPlan) -> None:
        """In the thread that owns the logs. Failures are logged, and tried again with the next metadata. Raises
        BrokerError when the registry cannot be written."""
        for topic in plan.anew:
            _log.warning(
                "%s was deleted at the source and created again: its mirror is deleted, too, and begins anew",
                topic.name,
            )
            await self._delete(topic.name)
        made = [
            Topic(topic.name, new_uuid() if topic.id == NO_ID else topic.id, len(topic.partitions), CONFIGS)
            for topic in plan.create + plan.anew
        ]
        refused = dict(plan.odd)
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
            self._say(name, f"{name} is not there at the source, or not asked for: its mirror is left as it is")
        self.refused = {printable(f"{name:.{MAX_TOPIC_NAME_LENGTH}}"): why for name, why in refused.items()}
        for name, why in self.refused.items():
            self._say(name, f"{name} is not mirrored: {why}")
        self._said = {(key, text) for key, text in self._said if key in plan.gone or key in self.refused}

    def _say(self, key: str, text: str) -> None:
        """Once, for as long as it is so."""
        if (key, text) not in self._said:
            self._said.add((key, text))
            _log.warning("%s", text)

    async def _make_logs(self, topic: Topic, first: int) -> None:
        config = LogConfig.of(self._config, topic.configs)
        topic_ids = {(topic.name, index): topic.id for index in range(first, topic.partitions)}
        places = await self._workers.run_blocking(self._logs.place_all, topic_ids)
        try:
            async for index in TimeSlice().spread(range(first, topic.partitions)):
                try:
                    self._logs.create(topic.name, index, topic.id, config, places)
                except BrokerError as error:
                    _log.error("%s", error)
        finally:
            await self._workers.run_blocking(places.remove_unused)

    async def _delete(self, name: str) -> None:
        for outcome in await self._workers.run_blocking(self._topics.delete_all, [name]):
            if isinstance(outcome, Topic):
                await self._workers.run_blocking(self._logs.detach_topic(outcome).finish)
                if self._on_deleted is not None:
                    await self._on_deleted(name)
