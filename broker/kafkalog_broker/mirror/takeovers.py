"""All mirrors in the directories of a broker become its own, and what that means for its producer ids; the same of
directories that Kafka has written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from kafkalog_broker.clock import Clock
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.internal_topics import internal_topic_configs
from kafkalog_broker.coordinators.transactions_topic import TransactionsTopic
from kafkalog_broker.mirror.takeover import take_over
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.producer_ids import ProducerIds, largest_given
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_broker.transactions.loading import load
from kafkalog_spark.errors import KafkalogError

_logger = logging.getLogger(__name__)


def take_mirrors_over(
    directories: Sequence[Path],
    config: BrokerConfig,
    logs: LogManager,
    topics: TopicRegistry,
    log: Callable[[str, int], Log],
    clock: Clock,
    producer_ids: ProducerIds,
) -> None:
    """Nothing where there is no mirror, and producer ids were counted here before. It blocks. Raises what `take_over`
    raises."""
    internal = internal_topic_configs(config)
    taken = [take_over(path, logs, topics, internal) for path in directories]
    if producer_ids.were_known and not any(taken):
        return
    state = TransactionsTopic(config, topics, log, clock)
    for partition in state.owned():  # those that have written nothing are in no other log
        try:
            known = [transaction.producer_id for transaction in load(state.scan(partition)).values()]
        except KafkalogError as error:
            _logger.warning("%s-%d cannot be read, producer ids in it are not known: %s", state.name, partition, error)
        else:
            producer_ids.stay_above(largest_given(known))
