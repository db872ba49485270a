"""State of a transactional id, and the transitions of its state machine (TransactionMetadata).

Values do not change: each step gives the metadata that is to be written, and what was known stays in force until it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch, encode_message
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_spark.errors import KafkalogError, UnsupportedFormat
from kafkalog_spark.format.layout import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ControlType
from kafkalog_spark.format.messages import message

log = logging.getLogger(__name__)

# The states of a transactional id (Kafka's TransactionState).
#
# Empty and Complete... lead to PrepareAbort in the second version only: there a producer may abort without knowing
# whether the coordinator has seen anything of its transaction. Kafka has two states more, Dead and
# PrepareEpochFence, for changes that wait for an append. Here an append does not wait; both are read and never
# written.


class TransactionState(IntEnum):
    """The value is what stands in the records of __transaction_state; `label` is what administrators see."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """`PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """How the transaction ends is decided and written down, markers are outstanding."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Nothing is open: the id may be forgotten after transactional.id.expiration.ms."""
        return self in _ENDED


_S = TransactionState
_ENDED = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

BY_LABEL = {state.label: state for state in TransactionState}

MAY_FOLLOW: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _ENDED,
    _S.ONGOING: _ENDED | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: _ENDED | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
}
"""To each state those that it may follow."""


MAX_EPOCH = MAX_PRODUCER_EPOCH
LAST_EPOCH = MAX_EPOCH - 1
"""No producer gets a higher one: the coordinator must be able to fence it (TransactionMetadata.isEpochExhausted)."""

NOT_STARTED = -1

CLASSIC, EPOCH_BUMP = 0, 2
"""transaction.version that a client speaks. EPOCH_BUMP: partitions are added by writing to them, and the end of a
transaction raises the epoch (KIP-890). Kafka writes 0 for all clients before that."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id, the fields of TransactionLogValue in order, and one that is not in the log. Times in ms.
    partitions: of an open transaction; of a prepared one those whose marker is outstanding.

    last_producer_epoch: the one before, with which a producer may ask again whose answer was lost; -1 when there is
    none to be accepted. Not in the log, as in Kafka. next_producer_id: the id that follows at the end of a transaction
    whose epoch is the last one, else -1.
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
        return self.producer_epoch >= LAST_EPOCH

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def _to(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        """Raises BrokerError unknown_server_error, as Kafka, where a state follows that may not: nothing is written."""
        if self.state not in MAY_FOLLOW[state]:
            what = f"{self.transactional_id!r}: {state.label} after {self.state.label}"
            raise BrokerError(ErrorCode.unknown_server_error, what)
        return replace(self, state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    # ---- InitProducerId

    def begun(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int, new_producer_id: Callable[[], int]
    ) -> TransactionMetadata:
        """A producer begins, or goes on after an error with the epoch that it has (KIP-360); with a new id where the
        epochs of the one before are used up. Raises BrokerError producer_fenced when another has begun since."""
        producer_id, epoch = self.producer_id, self.producer_epoch + 1
        last = NO_PRODUCER_EPOCH if expected_epoch is None else self.producer_epoch  # with which it may ask again
        if expected_epoch is not None and self.producer_epoch not in (NO_PRODUCER_EPOCH, expected_epoch):
            if expected_epoch != self.last_producer_epoch:
                raise self.fenced(expected_epoch)
            epoch, last = self.producer_epoch, self.last_producer_epoch  # it asks again: the first answer was lost
        elif self.is_exhausted:
            producer_id, epoch = new_producer_id(), 0
        return self._to(
            TransactionState.EMPTY, now_ms, producer_id=producer_id, producer_epoch=epoch, last_producer_epoch=last,
            timeout_ms=timeout_ms, partitions=frozenset(), start_ms=NOT_STARTED,
        )  # fmt: skip

    # ---- AddPartitionsToTxn

    def with_partitions(self, added: Iterable[TopicPartition], client_version: int, now_ms: int) -> TransactionMetadata:
        begun = self.start_ms if self.state is TransactionState.ONGOING else now_ms
        return self._to(
            TransactionState.ONGOING, now_ms, partitions=self.partitions | frozenset(added), start_ms=begun,
            client_version=client_version,
        )  # fmt: skip

    # ---- EndTxn

    def prepared(self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> TransactionMetadata:
        """The decided end. The second version raises the epoch, as does fencing a producer, whatever version it speaks:
        what it sends from now on is refused. Only PREPARE states show MAX_EPOCH. next_producer_id: after the last
        epoch, else -1."""
        epoch, last = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP:
            epoch, last = min(self.producer_epoch + 1, MAX_EPOCH), self.producer_epoch
        return self._to(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT, now_ms,
            producer_epoch=epoch, last_producer_epoch=last, next_producer_id=next_producer_id,
            client_version=client_version,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
        )  # fmt: skip

    def completed(self, now_ms: int) -> TransactionMetadata:
        """All markers are written. After the last epoch the next producer id follows, with epoch 0."""
        state = _S.COMPLETE_COMMIT if self.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
        producer = self.producer
        if self.client_version >= EPOCH_BUMP and self.next_producer_id != NO_PRODUCER_ID:
            producer = ProducerIdAndEpoch(self.next_producer_id, 0)
        return self._to(
            state, now_ms, producer_id=producer.producer_id, producer_epoch=producer.epoch,
            next_producer_id=NO_PRODUCER_ID, partitions=frozenset(),
        )  # fmt: skip

    # ---- errors that several requests share

    def fenced(self, epoch: int) -> BrokerError:
        return BrokerError(
            ErrorCode.producer_fenced,
            f"transactional id {self.transactional_id!r}: epoch {epoch} was sent, the producer's is "
            f"{self.producer_epoch}; another producer with this id, or the coordinator, has ended its transaction",
        )

    def wrong_producer_id(self, producer_id: int) -> BrokerError:
        return BrokerError(
            ErrorCode.invalid_producer_id_mapping,
            f"transactional id {self.transactional_id!r} has producer id {self.producer_id}, not {producer_id}",
        )

    def busy(self) -> BrokerError:
        return BrokerError(
            ErrorCode.concurrent_transactions,
            f"transactional id {self.transactional_id!r}: markers of its last transaction are still being written "
            f"({self.state.label}); try again",
        )


# EndTxn by state of the transaction (TransactionCoordinator.endTransaction).
#
# The first version of the protocol: the epoch must be the producer's. The end that has already happened may be asked
# for again.
#
# The second version (KIP-890) raises the epoch at each end, so a repetition, which has one less than now, is known
# from a new end:
#
# | state          | abort again | abort | commit again | commit |
# |---|---|---|---|---|
# | Empty          | fenced | raises the epoch | fenced | INVALID_TXN_STATE |
# | CompleteAbort  | none   | raises the epoch | INVALID_TXN_STATE | INVALID_TXN_STATE |
# | CompleteCommit | INVALID_TXN_STATE | raises the epoch | none | INVALID_TXN_STATE |

_ALREADY = {(_S.COMPLETE_COMMIT, True), (_S.COMPLETE_ABORT, False)}
_UNDERWAY = {(_S.PREPARE_COMMIT, True), (_S.PREPARE_ABORT, False)}


def ends(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int) -> bool:
    """True when this end is to be prepared, False when it has ended so before: the answer is given again. Raises
    BrokerError: invalid_producer_id_mapping, producer_fenced, concurrent_transactions, invalid_txn_state."""
    state, raises_epoch = metadata.state, client_version >= EPOCH_BUMP
    is_current = metadata.producer_epoch == producer.epoch
    again = raises_epoch and metadata.producer_epoch == producer.epoch + 1
    # the answer to an end with the last epoch was the next producer id with epoch 0
    again_after_last = (
        raises_epoch
        and metadata.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_EPOCH
        and metadata.producer_epoch == 0
    )
    if producer.producer_id != metadata.producer_id and not again_after_last:
        raise metadata.wrong_producer_id(producer.producer_id)
    if state in (_S.ONGOING, _S.EMPTY) or not raises_epoch:
        known = is_current
    else:
        known = again if state.is_prepared else again or again_after_last or is_current
    if not known:
        raise metadata.fenced(producer.epoch)
    is_new = not (again or again_after_last)
    if state is _S.ONGOING:
        return True
    if (state, commit) in _ALREADY and not (raises_epoch and is_new):
        return False
    if raises_epoch and not commit and state.may_expire and (is_new or state is _S.EMPTY):
        return True  # a producer that does not know what arrived may abort nothing
    if (state, commit) in _UNDERWAY:
        raise metadata.busy()
    what = f"there is nothing to {'commit' if commit else 'abort'}"
    raise BrokerError(
        ErrorCode.invalid_txn_state, f"transactional id {metadata.transactional_id!r} is {state.label}: {what}"
    )


# Markers: the control records that end a transaction in each of its partitions.


class EndMarker(NamedTuple):
    """transaction_version: 2 asks for an epoch above the one that wrote the transaction (KIP-890)."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int

    @property
    def control_type(self) -> ControlType:
        return ControlType.COMMIT if self.commit else ControlType.ABORT


WriteMarker = Callable[[TopicPartition, EndMarker], None]
"""Writes a marker. Raises BrokerError: unknown_topic_or_partition for one that does not exist, invalid_producer_epoch
and transaction_coordinator_fenced for a marker that comes too late, and any other code when it is to be tried again."""


# ---- keys and values of the records in __transaction_state, as Kafka 4.3 writes them: TransactionLogKey 0;
# TransactionLogValue 1, of which 0 is read too. A null value is a tombstone.

_KEY, _VALUE = message("TransactionLogKey"), message("TransactionLogValue")


def transaction_key(transactional_id: str) -> bytes:
    return encode_message(_KEY, (transactional_id,))


def transaction_value(metadata: TransactionMetadata) -> bytes:
    """Partitions stand in the order of their topics and numbers; Kafka has them in that of a hash table."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return _VALUE.encode(
        (
            metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, metadata.state,
            None if metadata.state is TransactionState.EMPTY else topics.items(), metadata.last_update_ms,
            metadata.start_ms, metadata.previous_producer_id, metadata.next_producer_id, metadata.client_version,
        )
    )  # fmt: skip


def read_transaction_key(data: bytes) -> str:
    """The transactional id. Raises UnsupportedFormat for another version, CorruptLog."""
    return str(_KEY.decode(data, "a key of __transaction_state")[0])


def read_transaction_value(transactional_id: str, data: bytes) -> TransactionMetadata:
    what = f"the record of transactional id {transactional_id!r}"
    producer_id, epoch, timeout_ms, status, topics, updated_ms, start_ms, *tagged = _VALUE.decode(data, what)
    try:
        state = TransactionState(status)
    except ValueError:
        raise UnsupportedFormat(f"{what} has the state {status}, which is not known") from None
    partitions = frozenset(TopicPartition(topic, index) for topic, indexes in topics or () for index in indexes)
    return TransactionMetadata(
        transactional_id, producer_id, epoch, timeout_ms, state, partitions, updated_ms, start_ms, *tagged
    )


Transactions = dict[str, TransactionMetadata]  # by transactional id


def load(batches: Iterable[CoordinatorBatch]) -> Transactions:
    """The last record of each id. One that cannot be read is logged and left out: the others must not suffer."""
    latest: dict[bytes, bytes] = {}
    for batch in batches:
        for key, value in batch.records:
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
    loaded: Transactions = {}
    for key, value in latest.items():
        try:
            transactional_id = read_transaction_key(key)
            loaded[transactional_id] = read_transaction_value(transactional_id, value)
        except KafkalogError as error:
            log.error("a record of __transaction_state is left out: %s (key %s)", error, key.hex())
    return loaded
