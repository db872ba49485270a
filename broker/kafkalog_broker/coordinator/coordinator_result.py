"""Result of an operation of a coordinator: records to write, and a response (Kafka's CoordinatorResult)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_spark.log.write.encoded_batch import EncodedRecords

RecordT = TypeVar("RecordT")  # record before encoding
ResponseT = TypeVar("ResponseT")


class CoordinatorResult(NamedTuple, Generic[RecordT, ResponseT]):
    """Result of an operation. The operation itself reads the state of a shard and does not change it.

    `CoordinatorRuntime.commit` appends the records, replays them and returns the response. If the append fails, nothing
    has changed and the response is dropped.

    Attributes:
        records: Appended as one batch, then replayed in this order. `EncodedRecords` are appended and not replayed;
            `on_commit` changes the state instead. If empty, nothing is appended.
        response: Returned to the caller of the operation.
        on_commit: Called in this order after the replay, to change state that is not in the log, such as timers.
        transaction: The producer whose open transaction the batch belongs to.
        is_awaited: False if no response depends on the records, see `CoordinatorLog.append`.
    """

    records: Sequence[RecordT] | EncodedRecords
    response: ResponseT
    on_commit: Sequence[Callable[[], None]] = ()
    transaction: ProducerIdAndEpoch | None = None
    is_awaited: bool = True
