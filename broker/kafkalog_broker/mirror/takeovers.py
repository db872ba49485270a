"""All mirrors in the directories of a broker become its own, and what that means for its producer ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kafkalog_broker.clock import Clock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.internal_topics import internal_topic_configs
from kafkalog_broker.coordinators.transactions_topic import TransactionsTopic
from kafkalog_broker.mirror.takeover import take_over
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.producer_ids import ProducerIds
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.transactions.loading import load


def take_mirrors_over(
    directories: Sequence[Path],
    config: BrokerConfig,
    logs: LogManager,
    topics: TopicRegistry,
    log: Callable[[str, int], Log],
    clock: Clock,
    producer_ids: ProducerIds,
) -> None:
    """Nothing where there is no mirror. It blocks. Raises what `take_over` raises."""
    internal = internal_topic_configs(config)
    taken = [take_over(path, logs, topics, internal) for path in directories]
    if not any(taken):
        return
    state = TransactionsTopic(config, topics, log, clock)
    loaded = (load(state.scan(partition)) for partition in state.owned())
    known = [transaction.producer_id for of_partition in loaded for transaction in of_partition.values()]
    producer_ids.stay_above(max(known, default=-1))  # those that have written nothing are in no log
