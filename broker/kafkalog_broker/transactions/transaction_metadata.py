"""State of a transactional ID (Kafka's TransactionMetadata).

Values are immutable: each transition returns the metadata to write, and the current metadata stays valid until it is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_state import VALID_PREVIOUS_STATES, TransactionState
from kafkalog_spark.format.layout import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

MAX_EPOCH = MAX_PRODUCER_EPOCH
LAST_EPOCH = MAX_EPOCH - 1
"""The highest epoch of a producer. The coordinator must be able to fence the producer with a higher one
(TransactionMetadata.isEpochExhausted)."""

NOT_STARTED = -1

CLASSIC, EPOCH_BUMP = 0, 2
"""transaction.version of a client. EPOCH_BUMP: a batch adds its partition to the transaction, and the end of a
transaction increments the epoch (KIP-890). Kafka writes 0 for all earlier clients."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional ID, with the fields of TransactionLogValue in their order and `last_producer_epoch`. Times are
    in ms.

    The methods that return changed metadata raise BrokerError unknown_server_error, as Kafka does, if the transition is
    not allowed.

    Attributes:
        partitions: Partitions of an open transaction. For a prepared transaction, the partitions without a marker.
        previous_producer_id: Producer ID before the last transition.
        next_producer_id: Producer ID that replaces an exhausted one when the transaction ends, or NO_PRODUCER_ID.
        client_version: CLASSIC or EPOCH_BUMP: the version of the client whose request caused the last transition.
        last_producer_epoch: The epoch before the last increment, with which a producer that did not receive the
            response may repeat its request. NO_PRODUCER_EPOCH if no repetition is accepted. Not persisted, as in Kafka.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = 0
    start_ms: int = NOT_STARTED
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = CLASSIC
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_exhausted(self) -> bool:
        """True if the epoch cannot be incremented, so that the producer needs another id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def with_producer(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int, new_producer_id: Callable[[], int]
    ) -> TransactionMetadata:
        """Return the metadata for a producer that calls InitProducerId (Kafka's prepareIncrementProducerEpoch).

        Args:
            expected_epoch: The epoch of a producer that continues after an error (KIP-360); None for a new producer.
            new_producer_id: Called if the epochs of the current ID are exhausted.

        Raises:
            BrokerError: producer_fenced, if another producer has taken over the ID.
        """
        producer_id = self.producer_id
        epoch = self.producer_epoch + 1
        last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch
        if expected_epoch is not None and self.producer_epoch not in (NO_PRODUCER_EPOCH, expected_epoch):
            if expected_epoch != self.last_producer_epoch:
                raise self.fenced_error(expected_epoch)
            # The producer repeats a request whose response was lost: it gets the same epoch again.
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        elif self.is_exhausted:
            producer_id = new_producer_id()
            epoch = 0
        return self._transition(
            TransactionState.EMPTY, now_ms, producer_id=producer_id, producer_epoch=epoch,
            last_producer_epoch=last_epoch, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=NOT_STARTED,
        )  # fmt: skip

    def with_partitions(self, added: Iterable[TopicPartition], client_version: int, now_ms: int) -> TransactionMetadata:
        """Return the metadata with more partitions, which starts a transaction if none is open."""
        start_ms = self.start_ms if self.state is TransactionState.ONGOING else now_ms
        return self._transition(
            TransactionState.ONGOING, now_ms, partitions=self.partitions | frozenset(added), start_ms=start_ms,
            client_version=client_version,
        )  # fmt: skip

    def prepared(self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> TransactionMetadata:
        """Return the metadata with the outcome of the transaction.

        With EPOCH_BUMP the epoch is incremented, so that later requests with the current epoch are fenced. An epoch of
        MAX_EPOCH exists only in prepared states.

        Args:
            next_producer_id: Producer ID after an exhausted one, or NO_PRODUCER_ID.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP:
            epoch = min(self.producer_epoch + 1, MAX_EPOCH)
            last_epoch = self.producer_epoch
        return self._transition(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT, now_ms,
            producer_epoch=epoch, last_producer_epoch=last_epoch, next_producer_id=next_producer_id,
            client_version=client_version,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
        )  # fmt: skip

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the metadata after all markers were written. An exhausted producer ID is replaced by the next one."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        producer = self.producer
        if self.client_version >= EPOCH_BUMP and self.next_producer_id != NO_PRODUCER_ID:
            producer = ProducerIdAndEpoch(self.next_producer_id, 0)
        return self._transition(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT, now_ms,
            producer_id=producer.producer_id, producer_epoch=producer.epoch, next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )  # fmt: skip

    def _transition(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        if self.state not in VALID_PREVIOUS_STATES[state]:
            message = f"{self.transactional_id!r}: {state.label} after {self.state.label}"
            raise BrokerError(ErrorCode.unknown_server_error, message)
        return replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    def fenced_error(self, epoch: int) -> BrokerError:
        return BrokerError(
            ErrorCode.producer_fenced,
            f"transactional id {self.transactional_id!r}: epoch {epoch} was sent, the producer's is "
            f"{self.producer_epoch}; another producer with this id, or the coordinator, has ended its transaction",
        )

    def wrong_producer_id_error(self, producer_id: int) -> BrokerError:
        return BrokerError(
            ErrorCode.invalid_producer_id_mapping,
            f"transactional id {self.transactional_id!r} has producer id {self.producer_id}, not {producer_id}",
        )

    def concurrent_error(self) -> BrokerError:
        return BrokerError(
            ErrorCode.concurrent_transactions,
            f"transactional id {self.transactional_id!r}: markers of its last transaction are still being written "
            f"({self.state.label}); try again",
        )
