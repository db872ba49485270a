"""What an operation of a coordinator wants to change, and its response (Kafka's CoordinatorResult)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

RecordT = TypeVar("RecordT")  # record as the shard knows it, before it is encoded
ResponseT = TypeVar("ResponseT")


class CoordinatorResult(NamedTuple, Generic[RecordT, ResponseT]):
    """Result of an operation that has read the state of a shard and changed nothing.

    `CoordinatorRuntime.commit` appends the records, replays them and returns the response. If the append fails, nothing
    has changed and the response is dropped.

    Attributes:
        records: Appended as one batch, then replayed in this order. `EncodedRecords` are appended only; then
            `on_commit` changes the state. If empty, nothing is appended.
        response: For the caller of the operation.
        on_commit: Called in this order after the replay. For state that is not in the log, such as timers.
        transaction: The producer whose open transaction the batch belongs to.
        is_awaited: False if no response depends on the records, see `CoordinatorLog.append`.
    """

    records: Sequence[RecordT] | EncodedRecords
    response: ResponseT
    on_commit: Sequence[Callable[[], None]] = ()
    transaction: ProducerIdAndEpoch | None = None
    is_awaited: bool = True
