"""A mirror becomes a broker's own directory: its logs end where nothing is open, and what is written next is newer than
all that was copied (what KIP-1279 asks of a failover).

In this order, so that a crash at any moment leaves something that this can be done to again:

1. the record `kafkalog.mirror.takeover.json`: what will be cut, and each partition's new leader epoch;
2. each log is cut to its last stable offset: transactions that are open have no coordinator here, and what comes after
   them was never to be read before they ended;
3. the mirror's file is renamed: no mirror goes on in the directory from here on;
4. leader epochs are raised above all that the logs hold, and internal topics get the configuration of internal topics;
5. the record says that it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.mirror.mirror_file import detach, is_mirror
from kafkalog_broker.mirror.takeover_record import Taken, TakeoverRecord, read_record, write_record
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.log.format.layout import MAX_INT32

_log = logging.getLogger(__name__)


def take_over(
    directory: Path, logs: LogManager, topics: TopicRegistry, internal: Mapping[str, Mapping[str, str]]
) -> bool:
    """Make the mirror in `directory`, if it is one, a directory of this broker's own, or finish that. Before anybody
    else uses the logs; False where there was nothing to do. internal: the configuration of internal topics. Raises
    BrokerError, CorruptFile, OSError."""
    record = read_record(directory)
    if is_mirror(directory):
        record = _planned(record, logs, topics)
        write_record(directory, record)
        for taken in record.partitions:
            _cut(logs, taken)
        detach(directory)
    elif record is None or record.is_done:
        return False
    for taken in record.partitions:
        log = _log_of(logs, taken.topic, taken.partition)
        if log is not None:
            log.lead(min(taken.leader_epoch, MAX_INT32))
    topics.set_all_configs({name: configs for name, configs in internal.items() if name in topics})
    write_record(directory, replace(record, is_done=True))
    return True


def _planned(before: TakeoverRecord | None, logs: LogManager, topics: TopicRegistry) -> TakeoverRecord:
    """before: of an attempt that did not come to its end."""
    known = {} if before is None else {(one.topic, one.partition): one for one in before.partitions}
    found = []
    for topic in topics:
        for partition in range(topic.partitions):
            log = _log_of(logs, topic.name, partition)
            if log is not None:
                found.append(_plan(log, known.get((topic.name, partition))))
    return TakeoverRecord(tuple(sorted(found, key=lambda one: (one.topic, one.partition))), is_done=False)


def _plan(log: Log, before: Taken | None) -> Taken:
    stable, end, epoch = log.last_stable_offset, log.log_end_offset, log.leader_epoch + 1
    if epoch > MAX_INT32:
        _log.error("%s: leader epoch %d is the last there is: this broker writes with it too", log.name, MAX_INT32)
        epoch = MAX_INT32
    if before is not None and end == before.log_end_offset < before.cut_end:
        return before  # cut already, before a crash
    return Taken(log.topic, log.partition, stable, end, epoch)


def _cut(logs: LogManager, taken: Taken) -> None:
    log = _log_of(logs, taken.topic, taken.partition)
    if log is None or log.log_end_offset <= taken.log_end_offset:
        return
    _log.warning(
        "%s: offsets %d to %d are cut off: they come after the beginning of a transaction that had not ended at the "
        "source", log.name, taken.log_end_offset, log.log_end_offset - 1,
    )  # fmt: skip
    follower = log.follow()
    logs.lower_checkpoints(taken.topic, taken.partition, taken.log_end_offset)
    logs.remove_later(follower.truncate_to(taken.log_end_offset), log.config)


def _log_of(logs: LogManager, topic: str, partition: int) -> Log | None:
    """None for one that is offline, which the other partitions do not wait for."""
    try:
        return logs.get(topic, partition)
    except BrokerError as error:
        _log.error("%s-%d is left as the mirror has it: %s", topic, partition, error)
        return None
