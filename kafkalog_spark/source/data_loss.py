"""Errors for records that a query would miss.

The cases and their wording are those of Spark's Kafka source (KAFKA_DATA_LOSS in its kafka-error-conditions.json;
`KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

from kafkalog_spark.errors import DataLoss
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.source.topic_partitions import TopicPartition, set_text, tp_text

MAY_BE_LOST = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed. If you don't want your "
    "{} to fail on such cases, set the source option failOnDataLoss to false. Reason: "
)
"""Beginning of every message. The placeholder stands for "query" or "streaming query"."""
_BROKEN = (
    "This could either be a user error that the start offset is set too high and this is the first batch, or the "
    "kafka topic-partition is broken, and some data may have been missed."
)


def records_lost(tp: TopicPartition, reason: str, offset: int | None = None) -> DataLoss:
    """Return the error for records that a stream misses."""
    return DataLoss(MAY_BE_LOST.format("streaming query") + reason, topic_partition=tp_text(tp), offset=offset)


def partitions_deleted(partitions: Collection[TopicPartition], not_read: Collection[TopicPartition] = ()) -> DataLoss:
    """Return the error for deleted partitions of a stream.

    Args:
        partitions: The partitions that the query no longer finds.
        not_read: Those of `partitions` that still exist, but are not part of the query's subscription.
    """
    reason = f"Partitions {set_text(partitions)} have been deleted."
    hint = None
    if not_read:
        hint = (
            f"the log directory holds {set_text(not_read)}, which the query does not read: does the checkpoint belong "
            "to a query of other topics?"
        )
    return DataLoss(MAY_BE_LOST.format("streaming query") + reason, hint=hint)


def offset_changed(tp: TopicPartition, before: int, now: int) -> str:
    """Return the reason for a partition whose end is now below an offset that the stream has reached."""
    return f"Partition {tp_text(tp)} offset was changed from {before} to {now}. {_BROKEN}"


def recreation_reason(topic: str, before: uuid.UUID | None, now: uuid.UUID | None) -> str | None:
    """Return the reason for a topic whose ID was `before` and is `now`; None if they are equal or one is unknown."""
    if before is None or now is None or before == now:
        return None
    return f"Topic {topic} was deleted and created again: its id was {uuid_to_text(before)} and is {uuid_to_text(now)}."
