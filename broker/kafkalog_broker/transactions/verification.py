"""Verification of transactions (KIP-890): a batch may begin one in a partition only if the coordinator knows of it.

Without this, a batch that was delayed in the network could arrive after its transaction had ended and open one that
nobody ever ends. Answer and append are one step of the event loop, so no end of the transaction can come between.
"""

from __future__ import annotations

from enum import Enum

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_coordinator import TransactionCoordinator
from kafkalog_broker.transactions.transaction_metadata import EPOCH_BUMP, ProducerIdAndEpoch, TopicPartition


class Speaks(Enum):
    """Behaviour of a client by its version of Produce or TxnOffsetCommit (TransactionSupportedOperation)."""

    CLASSIC = "INVALID_TXN_STATE for a partition that was not added"
    ABORTABLE = "TRANSACTION_ABORTABLE instead"
    ADDS_PARTITIONS = "partitions are added by writing to them"

    @classmethod
    def of_produce(cls, version: int) -> Speaks:
        return cls.ADDS_PARTITIONS if version >= 12 else cls.ABORTABLE if version == 11 else cls.CLASSIC

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> Speaks:
        return cls.ADDS_PARTITIONS if version >= 5 else cls.ABORTABLE if version == 4 else cls.CLASSIC


_TRY_AGAIN = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


def verify(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partition: TopicPartition,
    speaks: Speaks,
) -> None:
    """Raise BrokerError unless the transaction that is open holds the partition, or does now.

    Codes: invalid_producer_id_mapping, invalid_producer_epoch, invalid_txn_state or transaction_abortable,
    concurrent_transactions and those of a coordinator that is not ready.
    """
    try:
        if speaks is Speaks.ADDS_PARTITIONS:
            coordinator.add_partitions(transactional_id, producer, frozenset({partition}), EPOCH_BUMP)
            return
        code = coordinator.verify_partitions(transactional_id, producer, frozenset({partition}))[partition]
    except BrokerError as error:
        if error.code is ErrorCode.producer_fenced:  # what producers have known since their first version
            raise BrokerError(ErrorCode.invalid_producer_epoch, error.what) from error
        raise
    if code is not ErrorCode.none:
        raise BrokerError(
            code if speaks is Speaks.ABORTABLE else ErrorCode.invalid_txn_state,
            f"{partition} was not added to the transaction of {transactional_id!r}",
        )


def produce_error(error: BrokerError, speaks: Speaks) -> BrokerError:
    """As a producer is answered: what passes is NOT_ENOUGH_REPLICAS, which every client tries again without asking for
    metadata. Clients of the second version know CONCURRENT_TRANSACTIONS too."""
    passes = error.code in _TRY_AGAIN or (
        error.code is ErrorCode.concurrent_transactions and speaks is not Speaks.ADDS_PARTITIONS
    )
    if not passes:
        return error
    return BrokerError(
        ErrorCode.not_enough_replicas,
        f"the coordinator does not know yet whether the partition belongs to the transaction: {error.what}",
    )
