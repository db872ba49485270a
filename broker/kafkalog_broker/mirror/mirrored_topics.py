"""Local topics of a mirror, which are created, enlarged and deleted according to a plan."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.mirror.topic_plan import TopicPlan
from kafkalog_broker.protocol.mirror_messages import NO_ID
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import printable
from kafkalog_spark.format.names import MAX_TOPIC_NAME_LENGTH
from kafkalog_spark.format.partition_metadata import new_uuid

_log = logging.getLogger(__name__)

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
    _workers: Workers
    _on_deleted: Callable[[str], Awaitable[None]] | None = None
    _warned: set[tuple[str, str]] = field(init=False, default_factory=set)
    refused: dict[str, str] = field(init=False, default_factory=dict)

    async def apply(self, plan: TopicPlan) -> None:
        """Carry out a plan, on the thread that owns the logs. Failures are logged, and retried with the next metadata.

        Raises:
            BrokerError: If the registry cannot be written.
        """
        for topic in plan.recreate:
            _log.warning(
                "%s was deleted at the source and created again: its mirror is deleted and starting again",
                topic.name,
            )
            await self._delete(topic.name)
        new_topics = [
            Topic(topic.name, new_uuid() if topic.id == NO_ID else topic.id, len(topic.partitions), CONFIGS)
            for topic in plan.create + plan.recreate
        ]
        refused = dict(plan.refused)
        outcomes = await self._workers.run_blocking(self._topics.create_all, new_topics)
        for new, outcome in zip(new_topics, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                refused[new.name] = str(outcome)
            else:
                _log.info("%s is mirrored from now on, %d partitions", outcome.name, outcome.partitions)
                await self._create_logs(outcome, 0)
        for topic in plan.enlarge:
            before = self._topics.topics[topic.name].partitions
            counts = {topic.name: len(topic.partitions)}
            (outcome,) = await self._workers.run_blocking(self._topics.add_all_partitions, counts)
            if isinstance(outcome, BrokerError):
                refused[topic.name] = str(outcome)
            else:
                _log.info("%s has %d partitions now, it had %d", outcome.name, outcome.partitions, before)
                await self._create_logs(outcome, before)
        for name in plan.gone:
            self._warn_once(name, f"{name} is no longer at the source or not selected: its mirror is kept unchanged")
        self.refused = {printable(f"{name:.{MAX_TOPIC_NAME_LENGTH}}"): reason for name, reason in refused.items()}
        for name, reason in self.refused.items():
            self._warn_once(name, f"{name} is not mirrored: {reason}")
        self._warned = {(key, text) for key, text in self._warned if key in plan.gone or key in self.refused}

    def _warn_once(self, key: str, text: str) -> None:
        """Log a warning unless it was already logged for the present condition."""
        if (key, text) not in self._warned:
            self._warned.add((key, text))
            _log.warning("%s", text)

    async def _create_logs(self, topic: Topic, first: int) -> None:
        config = self._logs.config_of(topic)
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
