"""EndTxn by state of the transaction (TransactionCoordinator.endTransaction).

The first version of the protocol: the epoch must be the producer's. The end that has already happened may be asked for
again.

The second version (KIP-890) raises the epoch at each end, so a repetition, which has one less than
now, is known from a new end:

| state          | abort again | abort | commit again | commit |
|---|---|---|---|---|
| Empty          | fenced | raises the epoch | fenced | INVALID_TXN_STATE |
| CompleteAbort  | none   | raises the epoch | INVALID_TXN_STATE | INVALID_TXN_STATE |
| CompleteCommit | INVALID_TXN_STATE | raises the epoch | none | INVALID_TXN_STATE |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_metadata import (
    EPOCH_BUMP,
    LAST_EPOCH,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from kafkalog_spark.format.layout import ControlType

_S = TransactionState
_ALREADY = {(_S.COMPLETE_COMMIT, True), (_S.COMPLETE_ABORT, False)}
_UNDERWAY = {(_S.PREPARE_COMMIT, True), (_S.PREPARE_ABORT, False)}


def ends(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int) -> bool:
    """True when the transaction is to be prepared to end so; False when it has ended so before: the answer is given
    again.

    Raises BrokerError: invalid_producer_id_mapping, producer_fenced, concurrent_transactions, invalid_txn_state.
    """
    if client_version >= EPOCH_BUMP:
        return _second_version(metadata, producer, commit)
    if producer.producer_id != metadata.producer_id:
        raise metadata.wrong_producer_id(producer.producer_id)
    if producer.epoch != metadata.producer_epoch:
        raise metadata.fenced(producer.epoch)
    if metadata.state is _S.ONGOING:
        return True
    if (metadata.state, commit) in _ALREADY:
        return False
    raise _refused(metadata, commit)


def _second_version(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, commit: bool) -> bool:
    # the answer to an end with the last epoch was the next producer id with epoch 0
    again_after_last = (
        metadata.previous_producer_id == producer.producer_id
        and producer.epoch == LAST_EPOCH
        and metadata.producer_epoch == 0
    )
    again = metadata.producer_epoch == producer.epoch + 1
    current = metadata.producer_epoch == producer.epoch
    state = metadata.state
    if producer.producer_id != metadata.producer_id and not again_after_last:
        raise metadata.wrong_producer_id(producer.producer_id)
    if state in (_S.ONGOING, _S.EMPTY):
        known = current
    elif state.is_prepared:
        known = again
    else:
        known = again or again_after_last or current
    if not known:
        raise metadata.fenced(producer.epoch)
    if state is _S.ONGOING:
        return True
    if state.may_expire:
        if state is not _S.EMPTY and (again or again_after_last):
            if (state, commit) in _ALREADY:
                return False
        elif not commit:
            return True  # a producer that does not know what arrived may abort nothing
    raise _refused(metadata, commit)


def _refused(metadata: TransactionMetadata, commit: bool) -> BrokerError:
    if (metadata.state, commit) in _UNDERWAY:
        return metadata.busy()
    return BrokerError(
        ErrorCode.invalid_txn_state,
        f"transactional id {metadata.transactional_id!r} is {metadata.state.label}: "
        f"there is nothing to {'commit' if commit else 'abort'}",
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
