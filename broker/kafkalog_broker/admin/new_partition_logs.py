"""Create the logs of new partitions, and delete them again if not all logs of a topic can be created."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.new_partitions import NewPartitions
from kafkalog_broker.storage.topic import Topic

_log = logging.getLogger(__name__)


class NewLogs(NamedTuple):
    """The logs to create for a topic."""

    topic: Topic
    partitions: range
    config: LogConfig


class FailedLogs(NamedTuple):
    """Logs of a topic that could not all be created. Some of them may exist."""

    logs: NewLogs
    error: Exception

    def response_error(self, message: str) -> BrokerError:
        """Return the error for the client; UNKNOWN_SERVER_ERROR, with a logged traceback, for an unexpected one."""
        error = self.error
        if isinstance(error, BrokerError):
            return error
        _log.error("%s: %s: %s", message, type(error).__name__, error, exc_info=error)
        return BrokerError(ErrorCode.unknown_server_error, f"{message}: {type(error).__name__}: {error}")


async def create_logs(broker: Broker, new_logs: Sequence[NewLogs]) -> list[FailedLogs]:
    """Create the files of all partitions in threads, then add the logs in time slices of the event loop."""
    if not new_logs:
        return []
    time_slice = TimeSlice()
    try:
        topic_ids = {(logs.topic.name, index): logs.topic.id for logs in new_logs for index in logs.partitions}
        directories: NewPartitions = await broker.run_blocking(broker.logs.prepare_partitions, topic_ids)
    except BrokerError as error:  # no log directory is online
        return [FailedLogs(logs, error) for logs in new_logs]
    failed: list[FailedLogs] = []
    try:
        for logs in new_logs:
            try:
                async for index in time_slice.spread(logs.partitions):
                    if broker.topics.by_id(logs.topic.id) is None:
                        continue  # the topic was deleted in the meantime
                    broker.logs.create(logs.topic.name, index, logs.topic.id, logs.config, directories)
            except Exception as error:  # noqa: BLE001 - any failure must be rolled back by the caller
                failed.append(FailedLogs(logs, error))
    finally:
        await broker.run_blocking(directories.remove_unused)
    return failed


async def delete_created_logs(broker: Broker, logs: NewLogs) -> bool:
    """Delete the logs of a topic of which `create_logs` could not create all.

    Returns:
        False if the logs were kept because the topic was deleted meanwhile, or because a client has already written to
        one of them. In the latter case the missing partitions are offline until the next start.
    """
    topic = logs.topic
    if broker.topics.by_id(topic.id) is None:
        return False
    created = [index for name, index in broker.logs.partitions(topic.name) if index in logs.partitions]
    if any(_has_records(broker, topic.name, index) for index in created):
        missing = ((topic.name, index) for index in set(logs.partitions) - set(created))
        broker.logs.absent.update(dict.fromkeys(missing, "its log could not be created"))
        return False
    await broker.run_blocking(broker.logs.detach((topic.name, index) for index in created).finish)
    return True


def _has_records(broker: Broker, topic: str, index: int) -> bool:
    try:
        return broker.log(topic, index).log_end_offset > 0
    except BrokerError:  # the partition is offline, so no client can have written to it
        return False
