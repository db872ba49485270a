"""The local topics of a mirror: made, enlarged and made anew as a TopicPlan says."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.mirror.topic_plan import TopicPlan
from kafkalog_broker.protocol.source_calls import SourceTopic
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.storage.topics_file import Topic
from kafkalog_broker.turn import Turn
from kafkalog_broker.workers import Workers
from kafkalog_spark.errors import printable
from kafkalog_spark.log.format.names import MAX_TOPIC_NAME_LENGTH
from kafkalog_spark.log.format.partition_metadata import new_uuid

_log = logging.getLogger(__name__)

CONFIGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Nothing leaves a mirrored log but what has left the source's: its log start offset is followed."""
_NO_ID = uuid.UUID(int=0)


class MirroredTopics:
    """apply: what a plan says, in the thread that owns the logs. refused: topics that cannot be mirrored, and why.
    on_deleted: called with a topic that is gone."""

    def __init__(
        self,
        topics: TopicRegistry,
        logs: LogManager,
        config: BrokerConfig,
        workers: Workers,
        on_deleted: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._topics = topics
        self._logs = logs
        self._config = config
        self._workers = workers
        self._on_deleted = on_deleted
        self._said: set[tuple[str, str]] = set()
        self.refused: dict[str, str] = {}

    async def apply(self, plan: TopicPlan) -> None:
        """What cannot be done is said; the next metadata try it again. Raises BrokerError when the registry cannot be
        written."""
        for topic in plan.anew:
            _log.warning(
                "%s was deleted at the source and created again: its mirror is deleted, too, and begins anew",
                topic.name,
            )
            await self._delete(topic.name)
        made = [Topic(topic.name, _id_of(topic), len(topic.partitions), CONFIGS) for topic in plan.create + plan.anew]
        refused = dict(plan.odd)
        for new, outcome in zip(made, await self._blocking(self._topics.create_all, made), strict=True):
            if isinstance(outcome, BrokerError):
                refused[new.name] = str(outcome)
            else:
                _log.info("%s is mirrored from now on, %d partitions", outcome.name, outcome.partitions)
                await self._make_logs(outcome, 0)
        for topic in plan.enlarge:
            before = self._topics.topics[topic.name].partitions
            (outcome,) = await self._blocking(
                self._topics.add_all_partitions, {topic.name: len(topic.partitions)}
            )  # fmt: skip
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
        places = self._logs.place_all((topic.name, index) for index in range(first, topic.partitions))
        await self._blocking(places.make)
        try:
            async for index in Turn().spread(range(first, topic.partitions)):
                try:
                    self._logs.create(topic.name, index, topic.id, config, places)
                except BrokerError as error:
                    _log.error("%s", error)
        finally:
            await self._blocking(places.remove_unused)

    async def _delete(self, name: str) -> None:
        for outcome in await self._blocking(self._topics.delete_all, [name]):
            if isinstance(outcome, Topic):
                await self._blocking(self._logs.detach_topic(outcome).finish)
                if self._on_deleted is not None:
                    await self._on_deleted(name)

    async def _blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._workers.run_blocking(partial(function, *arguments))


def _id_of(topic: SourceTopic) -> uuid.UUID:
    return new_uuid() if topic.id == _NO_ID else topic.id
