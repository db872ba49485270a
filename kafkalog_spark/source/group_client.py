"""Client that commits a consumer group's offsets at a broker."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from kafkalog_spark.errors import GroupCommitFailed, install_hint
from kafkalog_spark.source.offsets import Offsets
from kafkalog_spark.source.topic_partitions import TopicPartition
from kafkalog_spark.spark import librdkafka

REQUEST_SECONDS = 10.0  # timeout of a commit

Errors = Mapping[TopicPartition, str]
"""Errors of a commit by partition."""


class AdminGroupClient:
    """Client that sends commits with confluent-kafka's admin client. Raises as `librdkafka.make_client`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._connection_error = ""

        def make() -> Any:
            from confluent_kafka.admin import AdminClient

            # With its default log level the client writes to stderr at every attempt to connect. The warning that
            # GroupCommitter logs has the same text.
            return AdminClient({"log_level": 0, **settings, "error_cb": self._on_connection_error})

        self._admin = librdkafka.make_client(
            make, "commitGroup", f"{install_hint('producer')} on the driver", "with commitGroup they are librdkafka's"
        )

    def commit(self, group: str, offsets: Offsets) -> Future[Errors]:
        """Send a commit.

        Returns:
            A future of the errors by partition. It raises GroupCommitFailed if the whole commit failed.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka import TopicPartition as KafkaPartition

        self._connection_error = ""
        positions = [KafkaPartition(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
        group_offsets = [ConsumerGroupTopicPartitions(group, positions)]
        responses = self._admin.alter_consumer_group_offsets(group_offsets, request_timeout=REQUEST_SECONDS)
        result: Future[Errors] = Future()
        responses[group].add_done_callback(lambda response: self._set_result(response, result))
        return result

    def last_connection_error(self) -> str:
        """Return the last connection error, which a response does not contain; empty if there is none."""
        self._admin.poll(0)  # calls _on_connection_error
        return self._connection_error

    def _on_connection_error(self, error: Any) -> None:
        self._connection_error = error.str()

    @staticmethod
    def _set_result(response: Future[Any], result: Future[Errors]) -> None:
        failed = response.exception()
        if failed is not None:
            error = failed.args[0] if failed.args else failed
            result.set_exception(GroupCommitFailed(_error_text(error) if hasattr(error, "str") else str(error)))
            return
        positions = response.result().topic_partitions
        result.set_result({(p.topic, p.partition): _error_text(p.error) for p in positions if p.error is not None})


def _error_text(error: Any) -> str:
    text: str = error.str()
    if error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"):
        text += " (the group has members; name a group that only this query commits to)"
    return text
