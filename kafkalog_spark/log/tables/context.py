"""Collects the context of a table query: the facts that the table declares as needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalog_spark.format.checkpoint import TopicPartition
from kafkalog_spark.format.names import TRANSACTION_TOPIC
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.tables.table import Need, TableContext, TableQuery, TransactionalId


def needed_partitions(query: TableQuery, present: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions whose locations `context_of` needs for a query."""
    if query.needs(Need.LOG_ENDS) or query.needs(Need.LOG_DIRS):
        return list(present)
    if query.needs(Need.COORDINATORS):
        return [tp for tp in present if tp[0] == TRANSACTION_TOPIC]
    return []


def context_of(
    query: TableQuery, locations: Mapping[TopicPartition, PartitionLocation], roots: tuple[Root, ...]
) -> TableContext:
    """Collect the facts that the rows of a query need.

    Args:
        query: The query.
        locations: At least the `needed_partitions`, even if the query is narrowed to other topics.
        roots: The log directories.

    Raises:
        KafkalogError: If __transaction_state cannot be read.
    """
    declared = query.table.needs
    coordinators: dict[int, TransactionalId] | None = None
    if Need.COORDINATORS in declared:
        coordinators = _coordinators(locations) if query.needs(Need.COORDINATORS) else {}
    if not {Need.LOG_ENDS, Need.LOG_DIRS} & declared.keys():
        return TableContext(coordinators)
    uses_locations = query.needs(Need.LOG_ENDS) or query.needs(Need.LOG_DIRS)
    return TableContext(coordinators, locations if uses_locations else {}, roots if Need.LOG_DIRS in declared else None)


def _coordinators(locations: Mapping[TopicPartition, PartitionLocation]) -> dict[int, TransactionalId]:
    from kafkalog_spark.log.tables.transactional_ids import current_states  # loads the definitions of messages

    return {
        state["producer_id"]: state
        for (topic, _), location in locations.items()
        if topic == TRANSACTION_TOPIC
        for state in current_states(location.open(pass_over_damage=True))
    }
