"""Verification of transactions (KIP-890): a batch may start a transaction in a partition only if the coordinator knows
that the partition is part of it.

Otherwise a batch that was delayed in the network could arrive after the end of its transaction, and start one that is
never ended. Verification and append are in the same step of the event loop, so the transaction cannot end in between.
"""

from __future__ import annotations

from enum import Enum, auto

from kafkalog_broker.errors import BrokerError, ErrorCode

PRODUCE_GENERIC_ERROR_VERSION, TXN_OFFSET_COMMIT_GENERIC_ERROR_VERSION = 11, 4
"""The only versions of Produce and TxnOffsetCommit with SupportedOperation.GENERIC_ERROR."""

NOT_READY = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
"""Errors of a coordinator after which the same request may succeed later."""


class SupportedOperation(Enum):
    """How the version of a request handles a partition that is not part of the transaction (Kafka's
    TransactionSupportedOperation)."""

    DEFAULT_ERROR = auto()  # INVALID_TXN_STATE
    GENERIC_ERROR = auto()  # TRANSACTION_ABORTABLE
    ADD_PARTITION = auto()  # the partition is added to the transaction

    @classmethod
    def of(cls, version: int, generic_error_version: int) -> SupportedOperation:
        """Return the operation of a request version. `generic_error_version` is the only version of the API with
        GENERIC_ERROR."""
        if version < generic_error_version:
            return cls.DEFAULT_ERROR
        return cls.GENERIC_ERROR if version == generic_error_version else cls.ADD_PARTITION


def produce_error(error: BrokerError, operation: SupportedOperation) -> BrokerError:
    """Return the error for a producer when verification has failed.

    Errors of a coordinator that is not ready become NOT_ENOUGH_REPLICAS, after which every client repeats the request
    without requesting metadata. So does CONCURRENT_TRANSACTIONS for versions before ADD_PARTITION, whose clients do not
    handle it.
    """
    is_retriable = error.code in NOT_READY or (
        error.code is ErrorCode.concurrent_transactions and operation is not SupportedOperation.ADD_PARTITION
    )
    if not is_retriable:
        return error
    return BrokerError(
        ErrorCode.not_enough_replicas,
        f"the coordinator cannot verify yet that the partition is part of the transaction: {error.what}",
    )
