"""A topic registry whose methods change one topic and raise its error."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import Outcome, TopicRegistry
from kafkalog_spark.format.partition_metadata import new_uuid


class OneTopicRegistry(TopicRegistry):
    def create(self, name: str, partitions: int, configs: Mapping[str, str] | None = None, topic_id=None) -> Topic:
        return _only(self.create_all([Topic(name, topic_id or new_uuid(), partitions, dict(configs or {}))]))

    def delete(self, name: str) -> Topic:
        return _only(self.delete_all([name]))

    def add_partitions(self, name: str, total: int) -> Topic:
        return _only(self.add_all_partitions({name: total}))

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        return _only(self.set_all_configs({name: configs}))


def _only(outcomes: list[Outcome]) -> Topic:
    (outcome,) = outcomes
    if isinstance(outcome, BrokerError):
        raise outcome
    return outcome
