"""Takeover: a mirror becomes the log directory of an independent broker (compare failover in KIP-1279).

Its logs are truncated to their last stable offsets, and later writes have a higher leader epoch than all copied
records. After a crash at any moment, including a power failure, the next start completes the takeover. Each step is on
disk before the next one begins:

1. All logs are flushed, so that the log end offsets in the record survive a power failure.
2. The takeover record, with the offsets of all planned truncations, is written.
3. Each log is truncated to its last stable offset, because open transactions have no coordinator here.
4. The mirror's file is renamed, so that no mirror continues in the directory.
5. Leader epochs rise above all epochs in the logs, and internal topics get their configuration.
6. The record is marked as done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.internal_topic_configs import internal_topic_configs
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.mirror.mirror_file import detach, is_mirror
from kafkalog_broker.mirror.takeover_record import PartitionTakeover, TakeoverRecord, read_or_set_aside, write_record
from kafkalog_broker.mirror.truncation import flush_truncation
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.producer_ids import ProducerIds, largest_cluster_id
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.transactions.transaction_records import load
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import MAX_INT32
from kafkalog_spark.format.names import TRANSACTION_TOPIC

_log = logging.getLogger(__name__)


def take_over(
    directory: Path, logs: LogManager, topics: TopicRegistry, internal: Mapping[str, Mapping[str, str]]
) -> bool:
    """Take over the mirror in `directory`, or complete an interrupted takeover. Call it before anything else uses the
    logs.

    Args:
        internal: Configurations of internal topics.

    Returns:
        False if there was nothing to do.

    Raises:
        BrokerError, UnsupportedFormat, OSError: If a file cannot be read or written.
    """
    record = read_or_set_aside(directory)
    if is_mirror(directory):
        _flush_all(logs, topics)
        record = _plan(record, logs, topics)
        write_record(directory, record)
        for planned in record.partitions:
            _truncate(logs, planned)
        detach(directory)
    elif record is None or record.is_done:
        return False
    for planned in record.partitions:
        log = _log_of(logs, planned.topic, planned.partition)
        if log is not None:
            log.lead(min(planned.leader_epoch, MAX_INT32))
    topics.set_all_configs({name: configs for name, configs in internal.items() if name in topics})
    write_record(directory, replace(record, is_done=True))
    return True


def _flush_all(logs: LogManager, topics: TopicRegistry) -> None:
    """Flush all logs. A log that cannot be flushed is offline from then on; the others are taken over."""
    for topic in topics:
        for partition in range(topic.partitions):
            try:
                if (log := _log_of(logs, topic.name, partition)) is not None:
                    log.flush()
            except BrokerError as error:
                _log.error("%s", error)


def _plan(before: TakeoverRecord | None, logs: LogManager, topics: TopicRegistry) -> TakeoverRecord:
    """Plan the truncations, considering the record of an interrupted attempt."""
    earlier = {} if before is None else {(cut.topic, cut.partition): cut for cut in before.partitions}
    partitions = []
    for name, partition in sorted((topic.name, partition) for topic in topics for partition in range(topic.partitions)):
        log = _log_of(logs, name, partition)
        cut = earlier.get((name, partition))
        if log is None:
            continue
        epoch = min(log.leader_epoch + 1, MAX_INT32)
        if epoch == log.leader_epoch:
            _log.error("%s: leader epoch %d is the largest one, so this broker writes with it too", log.name, epoch)
        # The earlier attempt's entry stays if it has truncated the log already.
        if cut is None or not log.log_end_offset == cut.log_end_offset < cut.cut_end:
            cut = PartitionTakeover(name, partition, log.last_stable_offset, log.log_end_offset, epoch)
        partitions.append(cut)
    return TakeoverRecord(tuple(partitions), is_done=False)


def _truncate(logs: LogManager, planned: PartitionTakeover) -> None:
    log = _log_of(logs, planned.topic, planned.partition)
    if log is None or log.log_end_offset <= planned.log_end_offset:
        return
    _log.warning(
        "%s: truncating offsets %d to %d, which follow the start of a transaction that is still open at the source",
        log.name, planned.log_end_offset, log.log_end_offset - 1,
    )  # fmt: skip
    logs.lower_checkpoints(planned.topic, planned.partition, planned.log_end_offset)
    removed = Follower(log).truncate_to(planned.log_end_offset)
    flush_truncation(log)
    logs.remove_later(removed, log.config)


def _log_of(logs: LogManager, topic: str, partition: int) -> Log | None:
    """Return a partition's log; None if it is offline, which must not stop the takeover of the others."""
    try:
        return logs.get(topic, partition)
    except BrokerError as error:
        _log.error("%s-%d is not taken over: %s", topic, partition, error)
        return None


def take_mirrors_over(
    directories: Sequence[Path],
    config: BrokerConfig,
    logs: LogManager,
    topics: TopicRegistry,
    log: Callable[[str, int], Log],
    clock: Clock,
    producer_ids: ProducerIds,
) -> None:
    """Take over all mirrors in a broker's log directories. Blocks.

    Producer IDs allocated afterwards are above those in the transaction log, even if a Kafka broker wrote it. Raises
    like `take_over`.
    """
    internal = internal_topic_configs(config)
    were_mirrors = [take_over(path, logs, topics, internal) for path in directories]
    if producer_ids.had_file and not any(were_mirrors):
        return
    state = CoordinatorLog(TRANSACTION_TOPIC, topics, log, clock, config.transaction_state_log_num_partitions)
    for partition in state.owned():  # producers that have written nothing are in no other log
        try:
            in_transactions = [transaction.producer_id for transaction in load(state.scan(partition)).values()]
        except KafkalogError as error:
            _log.warning("%s-%d cannot be read, producer IDs in it are unknown: %s", state.name, partition, error)
        else:
            producer_ids.stay_above(largest_cluster_id(in_transactions))
