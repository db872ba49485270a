"""19 CreateTopics, versions 2 to 7. v4: -1 for the broker's defaults; v5: configuration in the answer; v7: topic ids.

Every topic has its own result. Topics named twice are refused, each once, and come last.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kafkalog_broker.admin.config_listing import ConfigEntry, topic_entries
from kafkalog_broker.admin.topic_changes import create_topics
from kafkalog_broker.admin.topic_checks import LogConfigs, NewTopic, check_new_topic, check_totals
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.runtime.process import LogRate
from kafkalog_broker.storage.topic_registry import Outcome
from kafkalog_broker.storage.topics_file import Topic
from kafkalog_spark.format.partition_metadata import new_uuid

_refused = LogRate(logging.getLogger(__name__))


@api(19, 2, 7)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    times = Counter(topic.name for topic in asked.topics)
    check_totals(broker, ((topic.num_partitions, len(topic.assignments)) for topic in asked.topics))
    wanted, refused = [], {}
    for topic in asked.topics:
        if times[topic.name] == 1:
            code = request.refused(topic.name)
            if code is ErrorCode.none:
                wanted.append(_new_topic(topic))
            else:
                refused[topic.name] = code
    if asked.validate_only:
        outcomes = await _validated(broker, wanted)
    else:
        outcomes = await create_topics(broker, wanted, request.charge)
    answers = _Answers(request, broker)
    results = []
    for new, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, Topic):
            results.append(answers.created(outcome))
        else:
            _refused.log(logging.INFO, "topic %.200r is not created: %s: %.300s", new.name, outcome.code.name, outcome)
            results.append(answers.refused(new.name, outcome.code, outcome.what))
    for name, code in refused.items():
        results.append(answers.refused(name, code, "Authorization failed."))
    for name, number in times.items():
        if number > 1:
            results.append(answers.refused(name, ErrorCode.invalid_request, "Duplicate topic name."))
    return respond(request, topics=tuple(results))


async def _validated(broker: Broker, wanted: Sequence[NewTopic]) -> list[Outcome]:
    """Check the topics as create_topics does, without creating any."""
    turn, configs_of = TimeSlice(), LogConfigs(broker)
    outcomes: list[Outcome] = []
    async for new in turn.spread(wanted):
        try:
            partitions, _ = check_new_topic(broker, new, configs_of)
            overrides = {name: value for name, value in new.configs.items() if value is not None}
            outcomes.append(Topic(new.name, new_uuid(), partitions, overrides))
        except BrokerError as error:
            outcomes.append(error)
    return outcomes


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assigned.partition_index, assigned.broker_ids) for assigned in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


class _Answers:
    """Results for each topic. Configuration that topics share is one object in it."""

    def __init__(self, request: Request, broker: Broker | None) -> None:
        self._request, self._module = request, response_module(request)
        self._broker = broker
        self._configs: dict[tuple[tuple[str, str], ...], tuple[Any, ...]] = {}
        self._entries: dict[tuple[str, str | None, int], Any] = {}

    def created(self, topic: Topic) -> Any:
        kind = self._module.CreatableTopicResult
        if not self._request.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quiet=True):
            return entity(
                kind, name=topic.name, topic_id=topic.id, error_code=ErrorCode.none, error_message=None,
                num_partitions=-1, replication_factor=-1, configs=(),
                topic_config_error_code=int(ErrorCode.topic_authorization_failed),
            )  # fmt: skip
        return entity(
            kind,
            name=topic.name,
            topic_id=topic.id,
            error_code=ErrorCode.none,
            error_message=None,
            num_partitions=topic.partitions,
            replication_factor=1,
            configs=self._configs_of(topic) if hasattr(self._module, "CreatableTopicConfigs") else (),
        )

    def _configs_of(self, topic: Topic) -> tuple[Any, ...]:
        assert self._broker is not None
        key = tuple(topic.configs.items())
        found = self._configs.get(key)
        if found is None:
            entries = topic_entries(self._broker, topic.configs)
            found = self._configs[key] = tuple(self._entry(entry) for entry in entries)
        return found

    def _entry(self, entry: ConfigEntry) -> Any:
        key = (entry.name, entry.value, entry.source)
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = entity(
                self._module.CreatableTopicConfigs,
                name=entry.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
        return found

    def refused(self, name: str, code: ErrorCode, what: str | None) -> Any:
        return entity(
            self._module.CreatableTopicResult,
            name=name,
            topic_id=None,
            error_code=code,
            error_message=what,
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )
